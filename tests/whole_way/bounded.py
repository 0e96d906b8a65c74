"""Values with a bound of what rounding may have added to them, and how results are compared with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes  # noqa: F401  (gives NumPy bfloat16)
import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
ORDER = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bfloat16", "float16", "float32",
    "float64",
)  # fmt: skip
DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
LARGEST = {
    "bfloat16": (2 - 2.0**-7) * 2.0**127,
    "float16": 65504.0,
    "float32": 3.4028234663852886e38,
    "float64": 1.7976931348623157e308,
}
SMALLEST = {"bfloat16": 2.0**-126, "float16": 2.0**-14, "float32": 2.0**-126, "float64": 2.0**-1022}
ULPS_OF_CALLS = 8.0


def promoted(*dtypes: str) -> str:
    """The dtype in which operands meet: floats win, then the wider one; of the two halves it is float32."""
    halves = {"bfloat16", "float16"} <= set(dtypes)
    return max(dtypes if not halves else (*dtypes, "float32"), key=ORDER.index)


@dataclass(frozen=True, eq=False)
class Value:
    """Values of a dtype (floats as float64), and how far a right program may be off (0 or inf for integers).

    A bound of inf says that nothing is known of the element, not even whether it is a number: floats are 0 there.  An
    infinity or NaN with a bound of 0 is what a right program gives.  `made` is "const" or "axes" where constants, or
    axes as well, are all that it is made of; index arithmetic of int32 is kept in int64, for it has no width.
    `unsigned` says which zeros may have either sign.
    """

    v: Array
    e: Array
    dtype: str
    made: str = "data"
    unsigned: Array | bool = False

    @property
    def is_float(self) -> bool:
        return self.dtype in DIGITS

    @property
    def known(self) -> Array:
        return self.e < np.inf

    @property
    def sign_known(self) -> Array:
        """Where the value is exact, or on one side of zero."""
        return (self.e == 0) | (np.abs(self.v) > self.e)

    def rearranged(self, move: Callable[[Array], Array]) -> Value:
        """The elements in other places."""
        e, unsigned = np.broadcast_to(self.e, self.v.shape), np.broadcast_to(self.unsigned, self.v.shape)
        return replace(self, v=move(self.v), e=move(e), unsigned=move(unsigned))


def exact(v: Any, dtype: str) -> Value:
    """Values without an error."""
    array = np.asarray(v)
    return Value(array.astype("float64" if dtype in DIGITS else dtype), np.zeros((), "float64"), dtype)


def floats(v: Array, e: Array, dtype: str, unsigned: Array | bool = False) -> Value:
    """Floats in the form that `Value` asks for."""
    known = e < np.inf
    v = np.where(known, v, 0.0)
    return Value(v, np.where(known, np.where(np.isfinite(v), e, 0.0), np.inf), dtype, unsigned=unsigned & (v == 0))


def rounded(
    v: Array, e: Array, dtype: str, exact_inputs: Array | bool = False, ulps: float = 1.0,
    sure: Array | bool = False, at_once: bool = False,
) -> Value:  # fmt: skip
    """A float result with its own rounding added.

    Where `sure`, `v` is the answer, infinities and NaN included.  Elsewhere what may overflow is unknown: sums are
    regrouped, and a product may be added to before it is rounded.  Results that are rounded `at_once` are infinite
    where they surely overflow.
    """
    eps = 2.0 ** -DIGITS[dtype]
    narrow = "float32" if dtype == "float64" else dtype
    kept = exact_inputs & (v == v.astype(narrow).astype("float64"))
    e = e + np.where(kept, 0.0, ulps * (eps * (np.abs(v) + e) + eps * SMALLEST[dtype]))
    fits = (np.abs(v) + e < 0.99 * LARGEST[dtype]) | (kept & (e == 0) & (np.abs(v) <= LARGEST[dtype]))
    if at_once:
        beyond = np.abs(v) - e > 1.01 * LARGEST[dtype]
        v, sure = np.where(beyond, np.copysign(np.inf, v), v), sure | beyond
    return floats(v, np.where(sure, 0.0, np.where(fits, e, np.inf)), dtype)


def unknown_where(v: Array, bad: Array, dtype: str) -> Value:
    return Value(v, np.where(bad, np.inf, 0.0), dtype)


def mismatch(want: Value, got: Array) -> str | None:
    """Where `got` is further from `want` than rounding explains, or another infinity or no NaN; or None."""
    e = np.broadcast_to(want.e, want.v.shape)
    if want.is_float:
        found = got.astype("float64")
        limit = 2 * e + 4 * SMALLEST[want.dtype] * 2.0 ** -DIGITS[want.dtype]
        with np.errstate(invalid="ignore"):
            near = np.abs(found - want.v) <= limit
        same = (found == want.v) | (np.isnan(found) & np.isnan(want.v))
        wrong = want.known & ~np.where(np.isfinite(want.v), near, same)
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
