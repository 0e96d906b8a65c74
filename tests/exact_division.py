"""Quotients and remainders of floats by fractions, which are exact; special values by C99 (F.10.7.1) and Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

INF, NAN = math.inf, math.nan
Array = np.ndarray[Any, np.dtype[Any]]


def truncated(a: float, b: float) -> float:
    """What is left of the quotient rounded towards zero, by the exact one."""
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or b == 0:
        return NAN
    left = Fraction(a) if math.isinf(b) else Fraction(a) - math.trunc(Fraction(a) / Fraction(b)) * Fraction(b)
    return math.copysign(float(left), a)


def remainder(a: float, b: float) -> float:
    """What is left of the quotient rounded down; it has the sign of the divisor."""
    if math.isnan(truncated(a, b)):
        return NAN
    if math.isinf(b):
        return b if a and (a < 0) != (b < 0) else math.copysign(a, b)
    return math.copysign(float(Fraction(a) - math.floor(Fraction(a) / Fraction(b)) * Fraction(b)), b)


def quotient(a: float, b: float) -> float:
    """The quotient rounded down."""
    if math.isnan(a) or math.isnan(b) or (math.isinf(a) and b != 0):
        return NAN
    if b == 0:
        return NAN if a == 0 else math.copysign(INF, a) * math.copysign(1, b)
    if math.isinf(b):
        return -1.0 if a and (a < 0) != (b < 0) else math.copysign(0.0, a) * math.copysign(1, b)
    whole = math.floor(Fraction(a) / Fraction(b))
    if abs(whole) >= 2**1024 - 2**970:
        return INF if whole > 0 else -INF
    return float(whole) if whole else math.copysign(0.0, a) * math.copysign(1, b)


def each(of: Callable[[float, float], float], a: Array, b: Array) -> Array:
    """A function of two numbers for each pair, rounded to the dtype of `a`."""
    with np.errstate(all="ignore"):
        a, b = np.broadcast_arrays(a, b)
        found = [of(float(x), float(y)) for x, y in zip(a.ravel(), b.ravel(), strict=True)]
        return np.array(found, "float64").astype(a.dtype).reshape(a.shape)
