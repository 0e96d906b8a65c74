"""Scalar expressions: frozen nodes, operator sugar, and the folding rules of arithmetic.

    expr = Var(name) | SizeVar(name, range) | IterVar(name, extent, kind) | Const(value)
         | Binary(op, a, b)            op in + - * / // % min max
         | Compare(op, a, b)           op in < <= > >= == !=
         | Logical(op, a, b)           op in && ||
         | Not(a) | Select(cond, a, b) | Cast(dtype, a) | Call(func, args)
         | Load(tensor, indices) | BufferLoad(buffer, index) | Reduce(...)     these three in `element.py`

Nodes compare by structure and cache their hash; variables compare by identity.  `a == b` builds a `Compare` node whose
truth value is structural equality, so it serves both as an expression and in dictionaries.  Construction folds
constants and neutral elements only, by `constant_folding.py`; nothing is re-associated, since the printed text of a
workload is its identity.  The classes fold nothing: `Binary("+", x, Const(0))` stays as it is written.

Python's operators build nodes, so the constructors behind them are here; the others are in `expr.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar, Union

from ..errors import ExprError, require
from ..hooks import Hook
from .constant_folding import OTHER, fold, fold_cast, fold_compare, folds_to, stored
from .dtype import DTYPE_LAW, DTYPES, FLOATS, INDEX, INTEGER_BITS, STORED, is_unsigned, promote, python_number
from .lanes import Range
from .misuse import Operators, Unvalued, no_truth, operand_law, truth_of_equality

ExprLike = Union["Expr", int, float, bool]


class Expr(Operators["Expr", "ExprLike"], Unvalued):
    """Base of all expression nodes.

    Its subclasses are dataclasses.  Where `dtype` is a field without a default, it is declared with `field()`: else
    the property here would be taken for the default.
    """

    __slots__ = ("_hash",)
    __match_args__: ClassVar[tuple[str, ...]] = ()
    _hash: int

    @property
    def dtype(self) -> str:
        """The type of the value, one of `DTYPES`."""
        raise NotImplementedError

    def _fields(self) -> tuple[Any, ...]:
        return tuple([getattr(self, name) for name in self.__match_args__])

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash((type(self), *self._fields())))
            return self._hash

    def __bool__(self) -> bool:
        raise no_truth(self)

    def _operator(self, op: str, a: ExprLike, b: ExprLike) -> Expr:
        return binary(op, a, b)

    def __neg__(self) -> Expr:
        require(self.dtype != "bool", ExprError, "unary minus", "a number is needed", dtype=self.dtype)
        if is_unsigned(self.dtype):
            return binary("-", Const(0, self.dtype), self)
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
        return Compare("==", *_computable(*pair(self, other)))

    def __ne__(self, other: object) -> Any:
        if not isinstance(other, Expr | int | float):
            return NotImplemented
        return Compare("!=", *_computable(*pair(self, other)))

    def equal(self, other: ExprLike) -> Expr:
        """The expression `self == other`, folded when both are constant."""
        return compare("==", self, other)

    def astype(self, dtype: str) -> Expr:
        """Convert to `dtype` (no-op when it is the same)."""
        return cast(dtype, self)

    def __repr__(self) -> str:
        return EXPR_TEXT(self)


EXPR_TEXT: Hook[[Expr], str] = Hook("the text of an expression")


def same(a: Expr, b: Expr) -> bool:
    """Structural equality of two expressions (variables by identity)."""
    if a is b:
        return True
    if type(a) is not type(b) or isinstance(a, Var) or hash(a) != hash(b):
        return False
    return all(map(_same_field, a._fields(), b._fields()))


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

    @property
    def range(self) -> tuple[int, int] | None:
        """The least and the greatest value, where a variable has them by itself."""
        return None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SizeVar(Var):
    """An extent that is known when a program runs."""

    range: tuple[int, int] = (1, 1)

    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class IterVar(Var):
    """An axis of a compute operation: `0 <= var < extent`.

    `kind` is `spatial` or `reduce`.  An extent may be a `SizeVar`, that of a reduction an expression over spatial axes.
    """

    extent: int | Expr = 1
    kind: str = "spatial"

    __hash__ = object.__hash__

    @property
    def var(self) -> IterVar:
        return self

    @property
    def dom(self) -> Range:
        return Range(0, self.extent)

    @property
    def length(self) -> int:
        """The extent where it is a number."""
        assert isinstance(self.extent, int), f"the extent of {self.name} is an expression"
        return self.extent


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Const(Expr):
    """A number of type `dtype`."""

    value: int | float | bool
    dtype: str = INDEX


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Expr):
    """`//` and `%` round towards minus infinity; `/` is the true quotient of floats (C's for integers).

    Integers divided by 0 give 0.  Where one operand of `min` or `max` is NaN, the result is.
    """

    op: str
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        return self.a.dtype


class Condition(Expr):
    """What is true or false."""

    __slots__ = ()

    @property
    def dtype(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Compare(Condition):
    """`a op b`, one of ==, !=, <, <=, >, >=; a bool."""

    op: str
    a: Expr
    b: Expr

    def __bool__(self) -> bool:
        if self.op in ("==", "!="):
            return truth_of_equality(self, same(self.a, self.b), self.op == "==")
        return Expr.__bool__(self)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Logical(Condition):
    """`a and b`, `a or b` of bools; both sides may be evaluated."""

    op: str
    a: Expr
    b: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Not(Condition):
    """The opposite of a bool."""

    a: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Select(Expr):
    """Both branches may be evaluated; use `if_then_else` to protect an access."""

    cond: Expr
    a: Expr
    b: Expr

    @property
    def dtype(self) -> str:
        return self.a.dtype


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cast(Expr):
    """`a` as a number of type `dtype`."""

    dtype: str = field()
    a: Expr


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Expr):
    """A pure intrinsic: `if_then_else` (lazy), `exp`, `sqrt`, ... (names in `CALLS`)."""

    func: str
    args: tuple[Expr, ...]
    dtype: str = field()


def const(value: int | float | bool, dtype: str | None = None) -> Const:
    """A constant; without `dtype` Python's int, float and bool become int32, float32 and bool.

    Raises ExprError for a value that the integer `dtype` does not have (indices of int32 may be larger).
    """
    if dtype is None:
        dtype = "bool" if isinstance(value, bool) else INDEX if isinstance(value, int) else "float32"
    require(dtype in DTYPES, ExprError, "const", DTYPE_LAW, dtype=dtype)
    if dtype in FLOATS:
        return Const(float(value), dtype)
    if dtype == "bool":
        return Const(bool(value), dtype)
    fits = math.isfinite(value) and stored(value, dtype) == value
    require(fits, ExprError, "const", f"the value must be one of {dtype}; cast wraps and truncates", value=value)
    return Const(int(value), dtype)


def as_expr(value: ExprLike, dtype: str | None = None) -> Expr:
    """`value` as an expression; Python numbers take `dtype`."""
    if isinstance(value, Expr):
        return value
    number = python_number(value)
    if not isinstance(number, int | float):
        raise ExprError(f"expression: {operand_law(number)}, got value={number!r}")
    return const(number, dtype)


def pair(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    """The operands of one operation in one dtype: a number takes that of the other, of two the wider one wins."""
    if not isinstance(a, Expr):
        b = as_expr(b)
        return _number_like(a, b), b
    if not isinstance(b, Expr):
        return a, _number_like(b, a)
    if a.dtype == b.dtype:
        return a, b
    wide = promote(a.dtype, b.dtype)
    return cast(wide, a), cast(wide, b)


def _computable(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """Two expressions of one dtype as operands: stored dtypes become those that are computed with."""
    within = STORED.get(a.dtype)
    return (a, b) if within is None else (cast(within, a), cast(within, b))


def _number_like(value: int | float, other: Expr) -> Expr:
    if isinstance(value, float) and other.dtype not in FLOATS and not value.is_integer():
        instead = "write x.astype('float32') for arithmetic of floats, and // instead of fractions in an index"
        raise ExprError(f"constant {value!r}: does not fit the other operand, {other!r}, of {other.dtype}; {instead}")
    return as_expr(value, None if other.dtype == "bool" else other.dtype)


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """Build `a op b`, folding constants and neutral elements by the identities of the dtype."""
    a, b = pair(a, b)
    if a.dtype in STORED:
        return cast(a.dtype, binary(op, *_computable(a, b)))
    number, other, side = (b, a, "right") if isinstance(b, Const) else (a, b, "left")
    if isinstance(number, Const):
        if isinstance(other, Const):
            value = fold(op, other.value, number.value, a.dtype)
            return Binary(op, a, b) if value is None else Const(value, a.dtype)
        given = folds_to(op, side, number.value, a.dtype)
        if given == OTHER:
            return other
        if given is not None and _is_index(other):
            return Const(stored(0, a.dtype), a.dtype)
    elif a is b and op in ("min", "max"):
        return a
    return Binary(op, a, b)


def _is_index(e: Expr) -> bool:
    """Whether `e` is certainly index arithmetic: a constant may stand for it, but not for data (`width.py`)."""
    return isinstance(e, Var | Const) or (isinstance(e, Binary) and _is_index(e.a) and _is_index(e.b))


def compare(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """Build `a op b` of dtype bool, folding constants."""
    a, b = _computable(*pair(a, b))
    if isinstance(a, Const) and isinstance(b, Const):
        return Const(fold_compare(op, a.value, b.value, a.dtype), "bool")
    return Compare(op, a, b)


def cast(dtype: str, a: ExprLike) -> Expr:
    """Convert `a` to `dtype`: nothing where it has it; constants fold (no float that the integer has no room for).
    From and to a stored dtype it goes through the one that is computed with."""
    require(dtype in DTYPES, ExprError, "cast", DTYPE_LAW, dtype=dtype)
    a = as_expr(a)
    if a.dtype == dtype:
        return a
    value = fold_cast(a.value, a.dtype, dtype) if isinstance(a, Const) else None
    if value is not None:
        return Const(value, dtype)
    source, target = STORED.get(a.dtype), STORED.get(dtype)
    if source is not None and dtype != source:
        return cast(dtype, Cast(source, a))
    return Cast(dtype, a) if target is None else Cast(dtype, _ended(a, dtype, target))


def _ended(a: Expr, dtype: str, within: str) -> Expr:
    """`a` in the dtype `within`, from which a cast to the stored `dtype` follows; of floats the nearest of integers."""
    whole = cast(within, a)
    if a.dtype not in FLOATS or dtype not in INTEGER_BITS:
        return whole
    low, high = (0, 15) if is_unsigned(dtype) else (-8, 7)
    return binary("min", binary("max", whole, Const(low, within)), Const(high, within))
