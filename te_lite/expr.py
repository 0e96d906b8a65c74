"""Scalar expressions: frozen nodes, operator sugar, and the folding rules of construction.

    expr = Var(name) | IterVar(name, extent, kind) | Const(value)
         | Binary(op, a, b)            op in + - * / // % min max
         | Compare(op, a, b)           op in < <= > >= == !=
         | Logical(op, a, b)           op in && ||
         | Not(a) | Select(cond, a, b) | Cast(dtype, a) | Call(func, args)
         | Load(tensor, indices)       an element of a tensor (before lowering)
         | BufferLoad(buffer, index)   an element of a flat buffer (after lowering)
         | Reduce(combiner, sources, axes, condition, value_index)

Nodes compare by structure and cache their hash; variables compare by identity.  `a == b` builds a `Compare`
node whose truth value is structural equality, so it serves both as an expression and in dictionaries.
Construction folds constants and the neutral elements only; nothing is re-associated, since the printed text of
a workload is its identity.  Index arithmetic is simplified in `simplify.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Union

from .errors import ExprError, require

if TYPE_CHECKING:
    from .stmt import Buffer
    from .tensor import Tensor

DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
FLOATS = ("float16", "float32", "float64")
INDEX = "int32"

ExprLike = Union["Expr", int, float, bool]


class Expr:
    """Base of all expression nodes."""

    __slots__ = ("_hash",)
    dtype: str

    def __hash__(self) -> int:
        try:
            return self._hash  # type: ignore[attr-defined, no-any-return]
        except AttributeError:
            value = hash((type(self), *(getattr(self, f.name) for f in fields(self) if f.compare)))  # type: ignore[arg-type]
            object.__setattr__(self, "_hash", value)
            return value

    def __bool__(self) -> bool:
        raise ExprError(f"the expression {self!r} has no truth value in Python; use te.if_then_else, te.all or te.any")

    def __add__(self, other: ExprLike) -> Expr:
        return binary("+", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("+", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("-", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("-", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("*", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("*", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("/", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("/", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("//", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("//", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("%", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("%", other, self)

    def __neg__(self) -> Expr:
        return binary("*", self, Const(-1.0 if self.dtype in FLOATS else -1, self.dtype))

    def __lt__(self, other: ExprLike) -> Expr:
        return compare("<", self, other)

    def __le__(self, other: ExprLike) -> Expr:
        return compare("<=", self, other)

    def __gt__(self, other: ExprLike) -> Expr:
        return compare(">", self, other)

    def __ge__(self, other: ExprLike) -> Expr:
        return compare(">=", self, other)

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, Expr | int | float):
            return NotImplemented
        return Compare("==", *_pair(self, other))

    def __ne__(self, other: object) -> Any:
        if not isinstance(other, Expr | int | float):
            return NotImplemented
        return Compare("!=", *_pair(self, other))

    def equal(self, other: ExprLike) -> Expr:
        """The expression `self == other`, folded when both are constant."""
        return compare("==", self, other)

    def astype(self, dtype: str) -> Expr:
        """Convert to `dtype` (no-op when it is the same)."""
        return cast(dtype, self)

    def __repr__(self) -> str:
        from .text import expr_text  # noqa: PLC0415  (nodes do not know how they are printed)

        return expr_text(self)


def same(a: Expr, b: Expr) -> bool:
    """Structural equality of two expressions (variables by identity)."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, Var) or hash(a) != hash(b):
        return False
    return all(_same_field(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.compare)  # type: ignore[arg-type]


def _same_field(x: Any, y: Any) -> bool:
    if isinstance(x, Expr):
        return isinstance(y, Expr) and same(x, y)
    if isinstance(x, tuple):
        return isinstance(y, tuple) and len(x) == len(y) and all(map(_same_field, x, y))
    return type(x) is type(y) and bool(x == y)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Var(Expr):
    """A named scalar; two variables are the same only if they are the same object."""

    name: str
    dtype: str = INDEX

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IterVar(Var):
    """An axis of a compute operation: `0 <= var < extent`.

    `kind` is `spatial` or `reduce`.  The extent of a reduction may be an expression over spatial axes.
    """

    extent: int | Expr = 1
    kind: str = "spatial"

    __hash__ = object.__hash__

    @property
    def var(self) -> IterVar:
        return self


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    value: int | float | bool
    dtype: str = INDEX


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Expr):
    """`//` and `%` round towards minus infinity; `/` is the true quotient of floats (C's for integers)."""

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.a.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compare(Expr):
    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return "bool"

    def __bool__(self) -> bool:
        if self.op in ("==", "!="):
            return same(self.a, self.b) == (self.op == "==")
        return Expr.__bool__(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Logical(Expr):
    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return "bool"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Expr):
    a: Expr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return "bool"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """Both branches may be evaluated; use `if_then_else` to protect an access."""

    cond: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.a.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    dtype: str
    a: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """A pure intrinsic: `if_then_else` (lazy), `exp`, `sqrt`, ... (names in `CALLS`)."""

    func: str
    args: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Load(Expr):
    """`tensor[indices]` before lowering."""

    tensor: Tensor
    indices: tuple[Expr, ...]

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.tensor.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class BufferLoad(Expr):
    """`buffer[index]` after lowering; the index counts elements of the flat buffer."""

    buffer: Buffer
    index: Expr

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.buffer.dtype


@dataclass(frozen=True, slots=True, eq=False)
class Combiner:
    """A commutative reducer: `result = f(lhs, rhs)` with an identity, one entry a value."""

    name: str
    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Reduce(Expr):
    """Output `value_index` of folding `sources` over `axes` where `condition` holds."""

    combiner: Combiner
    sources: tuple[Expr, ...]
    axes: tuple[IterVar, ...]
    condition: Expr | None = None
    value_index: int = 0
    init: tuple[Expr, ...] = field(default=())

    @property
    def dtype(self) -> str:  # type: ignore[override]
        return self.sources[self.value_index].dtype


# ---------------------------------------------------------------------------------------------- construction


def const(value: int | float | bool, dtype: str | None = None) -> Const:
    """A constant; without `dtype` Python's int, float and bool become int32, float32 and bool."""
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else INDEX if isinstance(value, int) else "float32"
    require(dtype in DTYPES, ExprError, "const", f"the dtype must be one of {', '.join(DTYPES)}", dtype=dtype)
    if dtype in FLOATS:
        return Const(float(value), dtype)
    return Const(bool(value) if dtype == "bool" else int(value), dtype)


def as_expr(value: ExprLike, dtype: str | None = None) -> Expr:
    """`value` as an expression; Python numbers take `dtype`."""
    if isinstance(value, Expr):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, int | float):
        raise ExprError(f"expression: a number or an expression is needed, got value={value!r}")
    return const(value, dtype)


def _pair(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    if not isinstance(a, Expr):
        b = as_expr(b)
        return _number_like(a, b), b
    if not isinstance(b, Expr):
        return a, _number_like(b, a)
    if a.dtype == b.dtype:
        return a, b
    wide = promote(a.dtype, b.dtype)
    return cast(wide, a), cast(wide, b)


def _number_like(value: int | float, other: Expr) -> Expr:
    if isinstance(value, float) and other.dtype not in FLOATS and not value.is_integer():
        raise ExprError(f"constant {value!r}: does not fit the other operand, which is {other.dtype}")
    return as_expr(value, None if other.dtype == "bool" else other.dtype)


def promote(a: str, b: str) -> str:
    """The dtype of an operation on `a` and `b`: floats win, then the wider one."""
    order = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
    return max(a, b, key=order.index)


def _is(e: Expr, value: int) -> bool:
    return isinstance(e, Const) and e.value == value


def fold(op: str, a: int | float, b: int | float, dtype: str) -> int | float:
    """The value of a binary operation on two constants, as `op` is defined above."""
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/" if dtype in FLOATS:
            return a / b if b else math.copysign(math.inf, a) if a else math.nan
        case "/":
            return int(a / b) if abs(a) < 2**52 else (abs(int(a)) // abs(int(b))) * (1 if (a < 0) == (b < 0) else -1)
        case "//":
            return a // b
        case "%":
            return a % b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
    raise ExprError(f"binary: unknown operator {op!r}")


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """Build `a op b`, folding constants and neutral elements."""
    a, b = _pair(a, b)
    if op in ("//", "%", "/") and _is(b, 0) and a.dtype not in FLOATS:
        raise ExprError(f"{op}: division of {a!r} by zero")
    if isinstance(a, Const) and isinstance(b, Const):
        return const(fold(op, a.value, b.value, a.dtype), a.dtype)
    match op:
        case "+" if _is(a, 0):
            return b
        case "+" | "-" if _is(b, 0):
            return a
        case "*" if _is(a, 1) or _is(b, 0):
            return b
        case "*" | "/" | "//" if _is(b, 1):
            return a
        case "*" | "/" | "//" | "%" if _is(a, 0):
            return a
        case "%" if _is(b, 1):
            return const(0, a.dtype)
        case "min" | "max" if a is b:
            return a
    return Binary(op, a, b)


_COMPARE = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}


def compare(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """Build `a op b` of dtype bool, folding constants."""
    a, b = _pair(a, b)
    if isinstance(a, Const) and isinstance(b, Const):
        return const(bool(_COMPARE[op](a.value, b.value)), "bool")
    return Compare(op, a, b)


def cast(dtype: str, a: ExprLike) -> Expr:
    """Convert `a` to `dtype`: constants fold, the same dtype is a no-op."""
    require(dtype in DTYPES, ExprError, "cast", f"the dtype must be one of {', '.join(DTYPES)}", dtype=dtype)
    a = as_expr(a)
    if a.dtype == dtype:
        return a
    if isinstance(a, Const) and (math.isfinite(a.value) or dtype in FLOATS):
        return const(a.value, dtype)
    return Cast(dtype, a)


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
    x, y = _pair(a, b)
    return Select(as_expr(cond), x, y)


def if_then_else(cond: ExprLike, a: ExprLike, b: ExprLike) -> Expr:
    """`a` if `cond` else `b`; only the chosen branch is evaluated, so it may protect an access."""
    c = as_expr(cond)
    x, y = _pair(a, b)
    if isinstance(c, Const):
        return x if c.value else y
    return Call("if_then_else", (c, x, y), x.dtype)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    """The smaller one; when one is NaN, either of the two, as the program happens to compare them."""
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    """The larger one; when one is NaN, either of the two, as the program happens to compare them."""
    return binary("max", a, b)


CALLS = (
    "if_then_else", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "pow", "abs",
    "floor", "ceil", "round", "trunc", "sin", "cos", "tan", "sinh", "cosh", "atan", "isnan",
)  # fmt: skip


def call(func: str, *args: ExprLike) -> Expr:
    """Apply the intrinsic `func` (one of `CALLS`); the result has the dtype of the first argument."""
    require(func in CALLS, ExprError, "call", f"the function must be one of {', '.join(CALLS)}", func=func)
    operands = tuple(as_expr(a) for a in args)
    dtype = "bool" if func == "isnan" else operands[0].dtype
    if func not in ("abs", "isnan", "round", "floor", "ceil", "trunc", "pow"):
        require(dtype in FLOATS, ExprError, func, "the argument must be a float", dtype=dtype)
    if len(operands) == 2:
        operands = _pair(*operands)
    return Call(func, operands, dtype)
