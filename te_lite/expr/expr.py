"""The expression language: its nodes, from `node.py` and `element.py`, and the constructors that they do not need."""

from __future__ import annotations

from ..errors import ExprError, require
from .dtype import DTYPES, FLOATS, INDEX, STORED, promote
from .element import BufferLoad, Combiner, Load, Reduce
from .intrinsics import BITS, CALLS
from .node import (
    Binary,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    ExprLike,
    IterVar,
    Logical,
    Not,
    Select,
    SizeVar,
    Var,
    as_expr,
    binary,
    cast,
    compare,
    const,
    pair,
    same,
)

__all__ = [
    "DTYPES", "FLOATS", "INDEX", "Binary", "BufferLoad", "Call", "Cast", "Combiner", "Compare", "Const",
    "Expr", "ExprLike", "IterVar", "Load", "Logical", "Not", "Reduce", "Select", "SizeVar", "Var", "as_expr", "binary",
    "call", "cast", "compare", "const", "if_then_else", "index_xor", "logical_and", "logical_not", "logical_or",
    "maximum", "minimum", "promote", "same", "select",
]  # fmt: skip


def logical_and(*terms: ExprLike) -> Expr:
    """Conjunction, left to right; true operands vanish, a false one wins."""
    return _junction("&&", terms, neutral=True)


def logical_or(*terms: ExprLike) -> Expr:
    """Disjunction, left to right; false operands vanish, a true one wins."""
    return _junction("||", terms, neutral=False)


def _junction(op: str, terms: tuple[ExprLike, ...], neutral: bool) -> Expr:
    out: Expr | None = None
    for term in map(as_expr, terms):
        if isinstance(term, Const):
            if bool(term.value) != neutral:
                return const(not neutral, "bool")
            continue
        out = term if out is None else Logical(op, out, term)
    return const(neutral, "bool") if out is None else out


def logical_not(a: ExprLike) -> Expr:
    a = as_expr(a)
    return const(not a.value, "bool") if isinstance(a, Const) else Not(a)


def select(cond: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    """`a` where `cond` else `b`, both evaluated; never folded (printed workloads rely on it)."""
    x, y = pair(a, b)
    return Select(as_expr(cond), x, y)


def if_then_else(cond: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    """`a` if `cond` else `b`; only the chosen branch is evaluated, so it may protect an access."""
    c = as_expr(cond)
    x, y = pair(a, b)
    if isinstance(c, Const):
        return x if c.value else y
    return Call("if_then_else", (c, x, y), x.dtype)


def index_xor(a: ExprLike, b: ExprLike) -> Expr:
    """The exclusive or of two indices that are not negative: index arithmetic, where `bit_xor` is one of data."""
    x, y = pair(a, b)
    if isinstance(y, Const) and y.value == 0:
        return x
    if isinstance(x, Const) and isinstance(y, Const):
        return const(int(x.value) ^ int(y.value), x.dtype)
    return Call("index_xor", (x, y), x.dtype)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller one; NaN where one is NaN."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger one; NaN where one is NaN."""
    return binary("max", a, b)


def call(func: str, *args: ExprLike) -> Expr:
    """Apply the intrinsic `func` (one of `CALLS`) to arguments that are brought to one dtype, that of the result."""
    require(func in CALLS, ExprError, "call", f"the function must be one of {', '.join(CALLS)}", func=func)
    require(len(args) == CALLS[func].arguments, ExprError, func, "the function takes another number", got=len(args))
    operands = pair(*args) if len(args) == 2 else tuple(as_expr(a) for a in args)
    dtype = "bool" if func == "isnan" else operands[0].dtype
    if func in BITS:
        require(dtype not in FLOATS and dtype != "bool", ExprError, func, "the arguments must be integers", dtype=dtype)
    elif CALLS[func].of_integers is None:
        require(dtype in FLOATS, ExprError, func, "a float is needed; write x.astype('float32')", dtype=dtype)
    if operands[0].dtype in STORED:
        inside = call(func, *[cast(STORED[a.dtype], a) for a in operands])
        return inside if func == "isnan" else cast(dtype, inside)
    return Call(func, operands, dtype)
