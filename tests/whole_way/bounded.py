"""Values with a bound of what rounding may have added to them, and how results are compared with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
ORDER = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
DIGITS = {"float16": 11, "float32": 24, "float64": 53}
LARGEST = {"float16": 65504.0, "float32": 3.4028234663852886e38, "float64": 1.7976931348623157e308}
SMALLEST = {"float16": 2.0**-14, "float32": 2.0**-126, "float64": 2.0**-1022}
ULPS_OF_CALLS = 8.0


@dataclass(frozen=True, eq=False)
class Value:
    """Values of a dtype (floats as float64), and how far a right program may be off (0 or inf for integers).

    `made` is "const" or "axes" where constants, or axes as well, are all that it is made of; index arithmetic of int32
    is kept in int64, for it has no width.
    """

    v: Array
    e: Array
    dtype: str
    made: str = "data"

    @property
    def is_float(self) -> bool:
        return self.dtype in DIGITS


def exact(v: Any, dtype: str) -> Value:
    """Values without an error."""
    array = np.asarray(v)
    return Value(array.astype("float64" if dtype in DIGITS else dtype), np.zeros((), "float64"), dtype)


def rounded(v: Array, e: Array, dtype: str, exact_inputs: Array | bool = False, ulps: float = 1.0) -> Value:
    """A float result with its own rounding added; what may overflow, and NaN, is unknown."""
    eps = 2.0 ** -DIGITS[dtype]
    narrow = "float32" if dtype == "float64" else dtype
    kept = exact_inputs & (v == v.astype(narrow).astype("float64"))
    e = e + np.where(kept, 0.0, ulps * (eps * (np.abs(v) + e) + eps * SMALLEST[dtype]))
    bad = ~np.isfinite(v) | ~(np.abs(v) + e < 0.99 * LARGEST[dtype])
    return Value(np.where(bad, 0.0, v), np.where(bad, np.inf, e), dtype)


def unknown_where(v: Array, bad: Array, dtype: str) -> Value:
    return Value(v, np.where(bad, np.inf, 0.0), dtype)


def mismatch(want: Value, got: Array) -> str | None:
    """Where `got` is further from `want` than rounding explains, or None."""
    e = np.broadcast_to(want.e, want.v.shape)
    if want.is_float:
        off = np.abs(got.astype("float64") - want.v)
        limit = 2 * e + 4 * SMALLEST[want.dtype] * 2.0 ** -DIGITS[want.dtype]
        wrong = (e < np.inf) & ~(off <= limit)
    else:
        wrong = (e == 0) & (got != want.v)
    if not wrong.any():
        return None
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    where = [int(x) for x in at]
    return f"{where} is {got[at]}, not {want.v[at]} +- {e[at]:.2g} ({int(wrong.sum())} of {wrong.size} wrong)"


def compared(want: Value) -> float:
    """The share of the elements that can be compared."""
    return float((np.broadcast_to(want.e, want.v.shape) < np.inf).mean())
