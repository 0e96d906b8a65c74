"""Arithmetic where C leaves it undefined or NumPy departs from C; the tables are in docs/arithmetic.md.

All operations of integers wrap around to their dtype; a quotient and a remainder of a division by zero are 0; what does
not fit a conversion from floats becomes the nearest integer of the dtype, and NaN becomes 0.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .dtype import INTEGER_BITS, STORED, is_unsigned

Array = NDArray[Any]


def trunc_divide(a: Array, b: Array) -> Array:
    """The quotient of integers, rounded towards zero."""
    quotient: Any = np.floor_divide(a, b)
    inexact = (b != 0) & ((a < 0) != (b < 0)) & (quotient * b != a)
    return np.asarray(quotient + inexact).astype(quotient.dtype)[()]


def power(a: Array, b: Array) -> Array:
    """`a ** b` of numbers of one dtype, as docs/arithmetic.md has it."""
    return _float_power(a, b) if np.asarray(a).dtype.kind == "f" else _int_power(a, b)


def _int_power(a: Array, b: Array) -> Array:
    """`a ** b` of integers; a negative exponent gives `1 / a ** -b` without its fraction."""
    power = np.power(a, np.where(b < 0, 0, b).astype(np.asarray(b).dtype))
    odd = np.where(b & 1, a, a * a)
    inverse = np.where(np.abs(a) == 1, odd, 0)
    return np.asarray(np.where(b < 0, inverse, power)).astype(np.asarray(a).dtype)[()]


def _float_power(a: Array, b: Array) -> Array:
    """`a ** b` of floats, as C99 has it.

    NumPy takes the square root where the exponent is one number, 0.5: NaN for `-inf` and `-0.0` for itself, while the
    powers are `inf` and `0.0`.
    """
    edge = (b == 0.5) & ((a == 0) | (a == -np.inf))
    return np.asarray(np.power(np.where(edge, np.abs(a), a).astype(np.asarray(a).dtype), b))[()]


def convert(x: Array, dtype: Any) -> Array:
    """`x` as numbers of `dtype`: integers wrap, floats lose their fraction and stop at the ends, NaN becomes 0.

    From and to a stored dtype it goes through the one that is computed with.
    """
    found = np.asarray(x)
    kind = np.dtype(dtype)
    source, target = STORED.get(found.dtype.name), STORED.get(kind.name)
    if source is not None and kind != np.dtype(source):
        return convert(found.astype(source), kind)
    if target is not None and found.dtype != np.dtype(target):
        whole = found.dtype.kind == "f" and kind.name in INTEGER_BITS
        least, most = (0, 15) if is_unsigned(kind.name) else (-8, 7)
        return np.asarray(convert(np.clip(found, least, most) if whole else found, target)).astype(kind)[()]
    if found.dtype.kind != "f" or kind.kind not in "iu":
        return found.astype(kind)[()]
    ends, values = np.iinfo(kind), found if found.dtype.itemsize > 2 else found.astype(np.float32)
    low, high = values <= float(ends.min), values >= float(ends.max + 1)
    inside = np.where(low | high | np.isnan(values), 0, values).astype(kind)
    return np.where(high, ends.max, np.where(low, ends.min, inside)).astype(kind)[()]
