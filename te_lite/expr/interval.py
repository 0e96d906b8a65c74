"""Intervals of integers: the range of an operation from the ranges of its operands.

An interval is a pair (lo, hi), both inclusive, with -inf and inf where there is no bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from .dtype import INTEGER_BITS
from .expr import Binary, Call, Cast, Const, Expr, Select

INF = math.inf
Interval = tuple[float, float]

EVERYTHING: Interval = (-INF, INF)
INDEX_DTYPES = ("int32", "int64")


def dtype_interval(dtype: str) -> Interval:
    """The values of `dtype`; floats have every value."""
    if dtype == "bool":
        return 0, 1
    bits = INTEGER_BITS.get(dtype)
    if bits is None:
        return EVERYTHING
    return (0, (1 << bits) - 1) if dtype.startswith("u") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def union(x: Interval, y: Interval) -> Interval:
    return min(x[0], y[0]), max(x[1], y[1])


def product(x: Interval, y: Interval) -> Interval:
    corners = [a * b if a and b else 0 for a in x for b in y]
    return min(corners), max(corners)


def quotient(x: Interval, y: Interval) -> Interval:
    """Of floor division; a divisor that may be 0 gives no bound."""
    if y[0] <= 0 <= y[1]:
        return EVERYTHING
    corners = [_floordiv(a, b) for a in x for b in y]
    return min(corners), max(corners)


def _floordiv(a: float, b: float) -> float:
    if abs(a) == INF:
        return a if b > 0 else -a
    if abs(b) == INF:
        return 0 if a == 0 or (a > 0) == (b > 0) else -1
    return a // b


def remainder(x: Interval, y: Interval) -> Interval:
    """Of floor division: it has the sign of the divisor and is nearer to zero."""
    if y[0] <= 0 <= y[1]:
        return EVERYTHING
    if y[0] > 0:
        return (x[0], x[1]) if x[0] >= 0 and x[1] < y[0] else (0, min(y[1] - 1, x[1]) if x[0] >= 0 else y[1] - 1)
    return y[0] + 1, 0


def truncated(x: Interval, y: Interval) -> Interval:
    """Of division that rounds to zero, over non-negative operands; no bound otherwise."""
    return quotient(x, y) if x[0] >= 0 and y[0] > 0 else EVERYTHING


def binary_interval(op: str, x: Interval, y: Interval) -> Interval:
    match op:
        case "+":
            return x[0] + y[0], x[1] + y[1]
        case "-":
            return x[0] - y[1], x[1] - y[0]
        case "*":
            return product(x, y)
        case "//":
            return quotient(x, y)
        case "%":
            return remainder(x, y)
        case "min":
            return min(x[0], y[0]), min(x[1], y[1])
        case "max":
            return max(x[0], y[0]), max(x[1], y[1])
        case _:
            return truncated(x, y)


def xor_interval(x: Interval, y: Interval) -> Interval:
    """Of integers that are not negative: as many bits as the larger one has."""
    most = max(x[1], y[1])
    return (0, (1 << int(most).bit_length()) - 1) if min(x[0], y[0]) >= 0 and most < INF else EVERYTHING


def node_interval(e: Expr, of: Callable[[Expr], Interval]) -> Interval:
    """The range of integer node `e` where `of` gives the ranges of its children.

    Sums, products and casts whose range does not fit the dtype may wrap: they get the range of the dtype, or no
    bound for index dtypes.
    """
    wraps = e.dtype not in INDEX_DTYPES
    match e:
        case Const(value=value):
            return (int(value), int(value)) if math.isfinite(value) else EVERYTHING
        case Binary(op=op, a=a, b=b):
            out = binary_interval(op, of(a), of(b))
            wraps = wraps or op in ("+", "-", "*")
        case Select(a=a, b=b) | Call(func="if_then_else", args=(_, a, b)):
            out = union(of(a), of(b))
        case Call(func="index_xor", args=(a, b)):
            out = xor_interval(of(a), of(b))
        case Cast(a=a):
            out = of(a)
            wraps = True
        case _:
            out = EVERYTHING
    lo, hi = dtype_interval(e.dtype)
    if wraps and not (lo <= out[0] and out[1] <= hi):
        return EVERYTHING if e.dtype in INDEX_DTYPES else (lo, hi)
    return out
