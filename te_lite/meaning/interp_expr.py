"""The meaning of scalar expressions: each is compiled once to a closure that computes all lanes at a time.

A value is a NumPy scalar (the same in every lane) or an array whose shape broadcasts to the lanes.  Every node
computes in its own dtype: integers wrap, `a // b` rounds the exact quotient down, of floats too, `a % b` is what is
left of it, `/` on integers rounds towards zero, casts to integers truncate, `round` goes to the nearest even;
what C leaves undefined is in `arithmetic.py`.
min and max of a NaN are NaN.  A closure takes the mask of the active lanes (None: all).
`if_then_else`, `&&` and `||` evaluate an operand only in the lanes that need it; `select` evaluates both.
What depends on constants and lanes only is computed once.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np

from ..errors import InterpError, require
from ..expr.arithmetic import convert, trunc_divide
from ..expr.expr import (
    FLOATS,
    Binary,
    BufferLoad,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Logical,
    Not,
    Reduce,
    Select,
    Var,
)
from ..expr.intrinsics import CALLS
from ..loops.width import Widths

Value = Any  # np.generic | np.ndarray
Mask = Any  # None | np.ndarray of bool
Eval = Callable[[Mask], Value]


@dataclass(frozen=True, slots=True)
class Code:
    """`run(mask)` computes the value; it never changes if `fixed`, and needs no mask if `pure`."""

    run: Eval
    fixed: bool = False
    pure: bool = True


class Site(Protocol):
    """Where an expression stands: what its variables and loads mean, and how a fault is reported."""

    def var(self, v: Var) -> Code: ...

    def load(self, e: BufferLoad, index: Code) -> Code: ...

    def fail(self, law: str, bad: Value, mask: Mask, **got: Value) -> NoReturn: ...


def fixed(value: Value) -> Code:
    """The code of a value that is known already."""
    return Code(lambda mask: value, fixed=True)


def number(value: int | float | bool, dtype: str) -> Value:
    """A NumPy scalar; integers out of range wrap."""
    if dtype in FLOATS or dtype == "bool":
        return np.dtype(dtype).type(value)
    return np.array(int(value) & (2**64 - 1), np.uint64).astype(dtype)[()]


def compile_expr(e: Expr, site: Site) -> Code:
    """The closure of `e`.  Raises InterpError for tensor-level nodes (`Load`, `Reduce`)."""
    match e:
        case Var():
            return site.var(e)
        case Const():
            return fixed(number(e.value, e.dtype))
        case BufferLoad():
            return site.load(e, compile_expr(e.index, site))
        case Load() | Reduce():
            raise InterpError(f"{e!r}: only lowered expressions can be run")
        case Binary():
            return _binary(e, compile_expr(e.a, site), compile_expr(e.b, site))
        case Compare():
            return _apply(_COMPARE[e.op], compile_expr(e.a, site), compile_expr(e.b, site))
        case Logical():
            return _logical(e.op == "&&", compile_expr(e.a, site), compile_expr(e.b, site))
        case Not():
            return _apply(np.logical_not, compile_expr(e.a, site))
        case Cast():
            dtype = np.dtype(e.dtype)
            numbers = e.a.dtype in FLOATS and e.dtype not in FLOATS
            return _apply(lambda x: convert(x, dtype) if numbers else x.astype(dtype), compile_expr(e.a, site))
        case Select():
            return _apply(_choose, *[compile_expr(x, site) for x in (e.cond, e.a, e.b)])
        case Call(func="if_then_else"):
            cond, a, b = [compile_expr(x, site) for x in e.args]
            return _if_then_else(cond, a, b, np.dtype(e.dtype).type(0))
        case Call():
            return _call(e, [compile_expr(x, site) for x in e.args])
    raise InterpError(f"not an expression: {type(e).__name__}")


def evaluate(e: Expr, values: Mapping[Var, Value], mask: Mask = None) -> Value:
    """The value of an expression without loads, given its variables (where `mask` holds)."""
    widths = Widths({v: (int(np.min(x)), int(np.max(x))) for v, x in values.items()})
    with np.errstate(all="ignore"):
        return compile_expr(widths.wide(e), _Given(values)).run(mask)


@dataclass(frozen=True)
class _Given:
    values: Mapping[Var, Value]

    def var(self, v: Var) -> Code:
        require(v in self.values, InterpError, v.name, "the variable has no value")
        return fixed(self.values[v])

    def load(self, e: BufferLoad, index: Code) -> Code:
        raise InterpError(f"{e!r}: there is no memory to load from")

    def fail(self, law: str, bad: Value, mask: Mask, **got: Value) -> NoReturn:
        raise InterpError(f"expression: {law}")


# ----------------------------------------------------------------------------------------------- operators


def _apply(f: Callable[..., Value], *codes: Code) -> Code:
    """`f` of the operands' values, at once if they are fixed."""
    pure = all(c.pure for c in codes)
    if pure and all(c.fixed for c in codes):
        return fixed(f(*[c.run(None) for c in codes]))
    if len(codes) == 1:
        (one,) = [c.run for c in codes]
        return Code(lambda mask: f(one(mask)), pure=pure)
    if len(codes) == 2:
        a, b = [c.run for c in codes]
        return Code(lambda mask: f(a(mask), b(mask)), pure=pure)
    runs = [c.run for c in codes]
    return Code(lambda mask: f(*[run(mask) for run in runs]), pure=pure)


def _choose(cond: Value, a: Value, b: Value) -> Value:
    if cond.ndim == 0:
        return a if cond else b
    return np.where(cond, a, b)


_ARITHMETIC: dict[str, Callable[[Value, Value], Value]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": trunc_divide,
    "//": operator.floordiv,
    "%": operator.mod,
    "min": np.minimum,
    "max": np.maximum,
}
_COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


_FLOAT_ARITHMETIC: dict[str, Callable[[Value, Value], Value]] = {**_ARITHMETIC, "/": operator.truediv}


def _binary(e: Binary, a: Code, b: Code) -> Code:
    f = (_FLOAT_ARITHMETIC if e.dtype in FLOATS else _ARITHMETIC)[e.op]
    if e.a.dtype != e.b.dtype or e.dtype == "bool":
        plain, dtype = f, np.dtype(e.dtype)
        f = lambda x, y: plain(x + np.int8(0), y + np.int8(0)).astype(dtype)  # noqa: E731
    return _apply(f, a, b)


def _logical(conjunction: bool, a: Code, b: Code) -> Code:
    f = operator.and_ if conjunction else operator.or_
    if b.pure:
        return _apply(f, a, b)
    left, right = a.run, b.run

    def run(mask: Mask) -> Value:
        x = left(mask)
        needed = x if conjunction else ~x
        if needed.ndim == 0:
            return right(mask) if needed else x
        return f(x, _lazily(right, needed, mask, np.False_))

    return Code(run, pure=False)


def _lazily(run: Eval, needed: Value, mask: Mask, otherwise: Value) -> Value:
    active = needed if mask is None else needed & mask
    if active.all():
        return run(None)
    return run(active) if active.any() else otherwise


def _if_then_else(cond: Code, a: Code, b: Code, zero: Value) -> Code:
    if a.pure and b.pure:
        return _apply(_choose, cond, a, b)
    test, then, other = cond.run, a.run, b.run

    def run(mask: Mask) -> Value:
        c = test(mask)
        if c.ndim == 0:
            return then(mask) if c else other(mask)
        return np.where(c, _lazily(then, c, mask, zero), _lazily(other, ~c, mask, zero))

    return Code(run, pure=False)


# ---------------------------------------------------------------------------------------------- intrinsics


def _call(e: Call, args: list[Code]) -> Code:
    if e.func == "index_xor":
        return _apply(np.bitwise_xor, *args)
    known = CALLS.get(e.func)
    meaning = None if known is None else known.value if e.args[0].dtype in FLOATS else known.of_integers
    require(meaning is not None, InterpError, e.func, "the intrinsic has no meaning", dtype=e.args[0].dtype)
    assert meaning is not None
    return _apply(meaning, *args)
