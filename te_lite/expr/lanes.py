"""Arithmetic that reads the same on one integer and on an int64 array of lanes.

No function here asks for the truth of an extent: choices are made by `where`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np


class Range(NamedTuple):
    """The integers from `min`, `extent` of them (an int or an expression)."""

    min: int
    extent: Any


def ceildiv(a: Any, b: Any) -> Any:
    """The quotient rounded up, for positive `b`."""
    return -(-a // b)


def product(values: Sequence[Any]) -> Any:
    """The product, or None when a factor is None; 1 for no factors."""
    out: Any = 1
    for v in values:
        if v is None:
            return None
        out = v if isinstance(out, int) and out == 1 else out * v
    return out


def row_major(sizes: Sequence[Any]) -> list[Any]:
    """By how many elements a step of each dimension moves in a buffer that is as long as `sizes`."""
    strides: list[Any] = [1] * len(sizes)
    for d in reversed(range(len(sizes) - 1)):
        strides[d] = strides[d + 1] * sizes[d + 1]
    return strides


def smaller(a: Any, b: Any) -> Any:
    """The elementwise minimum."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else np.minimum(a, b)


def larger(a: Any, b: Any) -> Any:
    """The elementwise maximum."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else np.maximum(a, b)


def gcd(a: Any, b: Any) -> Any:
    """The elementwise greatest common divisor; gcd(0, b) = b."""
    return math.gcd(a, b) if isinstance(a, int) and isinstance(b, int) else np.gcd(a, b)


def where(cond: Any, a: Any, b: Any) -> Any:
    """`a` where `cond` else `b`; `cond` is a bool or an array of them."""
    return (a if cond else b) if isinstance(cond, bool) else np.where(cond, a, b)


def both(a: Any, b: Any) -> Any:
    """Elementwise and of two truth values."""
    return (a and b) if isinstance(a, bool) and isinstance(b, bool) else np.logical_and(a, b)
