"""How far rounding may move the value of an expression: an expression of its own, for each kind of node.

`None` stands for an exact value.  Every floating-point operation is taken to be off by `u` of its result (`u` is half
of the dtype's epsilon; functions of the mathematical library by 8 `u`) and by one step of the smallest numbers, which
devices may flush to zero; what its operands are off by is carried through: sums add, products weigh each side with
the other, monotone functions are taken at both ends.  Sums count the magnitudes of their terms, so that they may be
associated in any way.  (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1 to 3.3.)

An error is infinite where the value may be anything: a quotient by a number that may be zero, an overflow on the way
in the dtype of the program that the float64 reference does not have, a NaN in a maximum.  It is NaN or finite where a
reference is NaN or infinite for certain.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial, reduce

import ml_dtypes
import numpy as np

from te_lite.computation.tensor import Tensor
from te_lite.expr.dtype import SMALL_FLOATS, largest
from te_lite.expr.expr import FLOATS, Binary, Call, Cast, Compare, Const, Expr, Load, Logical, Not, Select, Var
from te_lite.expr.interval import dtype_interval
from te_lite.expr.intrinsics import BITS, CALLS

REAL = "float64"
FUNCTION = 8.0
"""Rounding of a library function, in units of `u`: 4 units in the last place."""
SAFETY = 2.0
"""By how much more than a bound programs may be off: bounds are those of likely errors."""
INFINITE = Const(math.inf, REAL)
NOTHING = Const(0.0, REAL)


def unit(dtype: str) -> float:
    """Half of the epsilon of a float dtype: the largest relative error of one operation."""
    return float(ml_dtypes.finfo(np.dtype(dtype)).eps) / 2


def least(dtype: str) -> float:
    """What may be lost of a value near zero: all below the smallest normal number (of small floats: of their steps)."""
    kind = ml_dtypes.finfo(np.dtype(dtype))
    return float(kind.smallest_normal if dtype in ("float32", REAL) else kind.smallest_subnormal)


def real(e: Expr) -> Expr:
    """`e` as a float."""
    return e if e.dtype in FLOATS else Cast(REAL, e)


def plus(*terms: Expr | None) -> Expr | None:
    """The sum of those errors that are not None."""
    known = [term for term in terms if term is not None]
    return reduce(partial(Binary, "+"), known) if known else None


def times(a: Expr | None, b: Expr | None) -> Expr | None:
    return None if a is None or b is None else Binary("*", a, b)


def larger(a: Expr | None, b: Expr | None) -> Expr | None:
    return b if a is None else a if b is None else Binary("max", a, b)


def magnitude(e: Expr) -> Expr:
    """The absolute value; that of an infinity is the largest finite number."""
    size = Call("abs", (real(e),), REAL)
    return Binary("min", size, Const(largest(e.dtype if e.dtype in FLOATS else REAL), REAL))


def shown(error: Expr | None) -> Expr:
    """An error as an expression; that of an exact value is 0."""
    return NOTHING if error is None else error


def where(cond: Expr, a: Expr | None, b: Expr | None) -> Expr:
    return Select(cond, shown(a), shown(b))


def overflows(size: Expr, dtype: str) -> Expr:
    """Whether a magnitude is finite in the reference and not in `dtype`."""
    above = Compare(">", size, Const(largest(dtype), REAL))
    return Logical("&&", above, Compare("<", size, INFINITE))


def rounding(e: Expr, size: Expr, units: float = 1.0) -> Expr | None:
    """What the operation at the top of `e` adds; `size` is the magnitude that it rounds."""
    if e.dtype not in FLOATS:
        return None
    shift = Binary("*", magnitude(size), Const(units * unit(e.dtype), REAL))
    whole = Binary("+", shift, Const(least(e.dtype), REAL))
    return whole if e.dtype == REAL else Select(overflows(size, e.dtype), INFINITE, whole)


def size_of(e: Expr) -> Expr:
    return Call("abs", (real(e),), REAL)


def _positive(e: Expr) -> Expr:
    return Compare(">", e, NOTHING)


def _nan(*parts: Expr) -> Expr | None:
    """Whether one of the floats among `parts` is NaN; None when there is none."""
    found: Expr | None = None
    for part in parts:
        if part.dtype in FLOATS and not isinstance(part, Const):
            test = Call("isnan", (part,), "bool")
            found = test if found is None else Logical("||", found, test)
    return found


def unless_nan(error: Expr | None, *parts: Expr) -> Expr | None:
    """`error`, infinite where one of `parts` is NaN: minima and maxima may lose it."""
    nan = _nan(*parts)
    return error if nan is None else where(nan, INFINITE, error)


def uncertain(error: Expr | None) -> Expr | None:
    """An infinite error wherever `error` is not zero."""
    return None if error is None else where(_positive(error), INFINITE, None)


@dataclass(frozen=True)
class Errors:
    """Errors of expressions that read tensors; `tensors` has the error tensor of each inexact one, `variables` the
    error of each variable whose value is inexact."""

    tensors: Mapping[Tensor, Tensor]
    variables: Mapping[Var, Var] = field(default_factory=dict)

    def of(self, e: Expr) -> Expr | None:
        """An upper bound of what rounding changes in `e`, a float64 expression of the same variables; None: nothing."""
        match e:
            case Var():
                return self.variables.get(e)
            case Load(tensor=tensor, indices=indices):
                moved = uncertain(plus(*[self.of(i) for i in indices]))
                own = self.tensors.get(tensor)
                return plus(None if own is None else Load(own, indices), moved)
            case Binary(op="+" | "-"):
                error = plus(self.of(e.a), self.of(e.b), rounding(e, Binary("+", size_of(e.a), size_of(e.b))))
                return _unwrapped(Binary(e.op, real(e.a), real(e.b)), error, e.dtype)
            case Binary(op="*"):
                error = plus(*product([(magnitude(x), self.of(x)) for x in (e.a, e.b)])[1], rounding(e, size_of(e)))
                return _unwrapped(Binary("*", real(e.a), real(e.b)), error, e.dtype)
            case Binary(op="min" | "max"):
                return unless_nan(larger(self.of(e.a), self.of(e.b)), e.a, e.b)
            case Binary():
                return self._divided(e)
            case Compare(a=a, b=b):
                return self._compared(a, b)
            case Logical(a=a, b=b):
                return larger(self.of(a), self.of(b))
            case Not(a=a):
                return self.of(a)
            case Select(cond=cond, a=a, b=b):
                return self._selected(cond, a, b)
            case Cast():
                return self._cast(e)
            case Call():
                return self._called(e)
        return None

    def _compared(self, a: Expr, b: Expr) -> Expr | None:
        """1 where the comparison may come out otherwise."""
        both = plus(self.of(a), self.of(b))
        return None if both is None else Cast(REAL, Compare("<=", size_of(Binary("-", real(a), real(b))), both))

    def _selected(self, cond: Expr, a: Expr, b: Expr) -> Expr | None:
        chosen, x, y = self.of(cond), self.of(a), self.of(b)
        error = None if x is None and y is None else where(cond, x, y)
        if chosen is None:
            return error
        other = plus(larger(x, y), size_of(Binary("-", real(a), real(b))))
        return where(_positive(chosen), other, error)

    def _divided(self, e: Binary) -> Expr | None:
        """`/`, `//` and `%`; the quotient is off by the errors of both sides over what is left of the divisor."""
        x, y = self.of(e.a), self.of(e.b)
        if e.dtype not in FLOATS:
            return uncertain(plus(x, y))
        quotient = Binary("/", real(e.a), real(e.b))
        left = size_of(e.b) if y is None else Binary("-", size_of(e.b), y)
        carried = plus(x, times(magnitude(quotient), y))
        if carried is not None:
            carried = Binary("/", carried, left)
            carried = carried if y is None else where(_positive(left), carried, INFINITE)
        rounded = rounding(e, size_of(quotient))
        if e.op == "/":
            return plus(carried, rounded)
        steps = _ends("floor", quotient, carried)
        if e.op == "//":
            return plus(steps, rounded)
        whole = magnitude(Call("floor", (quotient,), REAL))
        return plus(x, times(magnitude(e.b), steps), times(whole, y), rounding(e, size_of(e)))

    def _cast(self, e: Cast) -> Expr | None:
        given = self.of(e.a)
        if e.dtype in FLOATS and e.dtype not in SMALL_FLOATS:
            return given if np.can_cast(e.a.dtype, e.dtype) else plus(given, rounding(e, size_of(e.a)))
        if given is None:
            return None
        if e.dtype == "bool":
            return Cast(REAL, Compare("<=", size_of(e.a), given))
        if e.a.dtype not in FLOATS and e.dtype not in FLOATS:
            return _unwrapped(real(e.a), given, e.dtype)
        return self._narrowed(e, given)

    def _narrowed(self, e: Cast, given: Expr) -> Expr | None:
        """The reference rounds to small floats and integers as programs do; what is open is to which of two."""
        margin = Binary("*", Const(SAFETY, REAL), given)
        return larger(*[_apart(Cast(e.dtype, Binary(op, real(e.a), margin)), e) for op in "+-"])

    def _called(self, e: Call) -> Expr | None:
        x = self.of(e.args[-1] if e.func == "if_then_else" else e.args[0])
        match e.func:
            case "if_then_else":
                chosen, y = self.of(e.args[0]), self.of(e.args[1])
                if x is None and y is None:
                    return uncertain(chosen)
                return plus(Call(e.func, (e.args[0], shown(y), shown(x)), REAL), uncertain(chosen))
            case "abs":
                return x
            case "isnan":
                return None if x is None else where(Compare("==", x, INFINITE), INFINITE, None)
            case _ if e.func in BITS:
                return uncertain(plus(*map(self.of, e.args)))
            case "pow":
                return plus(self._power(e), rounding(e, size_of(e), 2 * FUNCTION))
            case _ if CALLS[e.func].whole:
                return None if x is None else _ends(e.func, real(e.args[0]), x)
        return plus(_carried(e.func, real(e.args[0]), x), rounding(e, size_of(e), FUNCTION))

    def _power(self, e: Call) -> Expr | None:
        a, b = map(real, e.args)
        x, y = map(self.of, e.args)
        if x is None and y is None:
            return None
        value, found = Call("pow", (a, b), REAL), None
        for base in _both_ends(a, x):
            for exponent in _both_ends(b, y):
                found = larger(found, size_of(Binary("-", Call("pow", (base, exponent), REAL), value)))
        return found


def _unwrapped(value: Expr, error: Expr | None, dtype: str) -> Expr | None:
    """The error of integers, infinite where one within it leaves the dtype and wraps around."""
    if error is None or dtype in FLOATS:
        return error
    low, high = [Const(float(end), REAL) for end in dtype_interval(dtype)]
    above, below = Compare("<=", Binary("+", value, error), high), Compare(">=", Binary("-", value, error), low)
    return where(Logical("&&", above, below), error, INFINITE)


def _apart(a: Expr, b: Expr) -> Expr:
    """How far two numbers of a dtype are apart: infinitely, where one alone is infinite or NaN."""
    distance = size_of(Binary("-", real(a), real(b)))
    if a.dtype in FLOATS:
        one, two = [Call("isnan", (x,), "bool") for x in (a, b)]
        broken = Call("isnan", (distance,), "bool")
        distance = Select(broken, Select(Logical("&&", one, two), NOTHING, INFINITE), distance)
    return Select(Compare("==", a, b), NOTHING, distance)


def _both_ends(value: Expr, error: Expr | None) -> list[Expr]:
    return [value] if error is None else [Binary(op, value, error) for op in "+-"]


def _carried(func: str, value: Expr, error: Expr | None) -> Expr | None:
    """What `func` makes of an error of its argument."""
    if error is None:
        return None
    steepest = CALLS[func].steepest
    if steepest is not None:
        return error if steepest == 1.0 else Binary("*", Const(steepest, REAL), error)
    if func == "tan":
        steep = Binary("+", Const(1.0, REAL), Binary("*", Call("tan", (value,), REAL), Call("tan", (value,), REAL)))
        return Binary("*", Binary("*", Const(2.0, REAL), steep), error)
    return _ends(func, size_of(value) if func == "cosh" else value, error)


def _ends(func: str, value: Expr, error: Expr | None) -> Expr | None:
    """The difference of a monotone function at both ends of the interval that `error` makes of its argument."""
    if error is None:
        return None
    low, high = Binary("-", value, error), Binary("+", value, error)
    if CALLS[func].from_zero:
        low = Binary("max", low, NOTHING)
    return size_of(Binary("-", Call(func, (high,), REAL), Call(func, (low,), REAL)))


def product(factors: list[tuple[Expr, Expr | None]]) -> tuple[Expr, list[Expr]]:
    """`(magnitude, errors)` of a product of factors given as `(magnitude, error)`; each error is itself a product."""
    size, errors = factors[0][0], [] if factors[0][1] is None else [factors[0][1]]
    for other, error in factors[1:]:
        widened = other if error is None else Binary("+", other, error)
        errors = [Binary("*", e, widened) for e in errors]
        if error is not None:
            errors.append(Binary("*", size, error))
        size = Binary("*", size, other)
    return size, errors
