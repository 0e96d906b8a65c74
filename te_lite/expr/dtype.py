"""Element types.

A *stored* dtype is one that memory holds and no machine here computes with: bfloat16, floats of 8 and 4 bits, integers
of 4 bits (one a byte).  An operation on them is written in the dtype of `STORED`, and its result is cast back; the
constructors of `node.py` do so.  Their arrays are those of the package ml_dtypes, which gives NumPy these dtypes.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

SMALL_FLOATS = ("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "bfloat16")
STORED = {"int4": "int8", "uint4": "uint8"} | dict.fromkeys(SMALL_FLOATS, "float32")
"""What is computed with instead of a stored dtype: one that has all its values."""

INTEGER_BITS = {
    "int4": 4, "uint4": 4, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32,
    "int64": 64, "uint64": 64,
}  # fmt: skip
FLOATS = (*SMALL_FLOATS, "float16", "float32", "float64")
DTYPES = ("bool", *INTEGER_BITS, *FLOATS)
DTYPE_LAW = f"the dtype must be one of {', '.join(DTYPES)}"
BYTES = {dtype: np.dtype(dtype).itemsize for dtype in DTYPES}
INDEX = "int32"


def is_unsigned(dtype: str) -> bool:
    """Whether an integer dtype has no negative values."""
    return dtype.startswith("u")


def computed(dtype: str) -> str:
    """The dtype in which operations on `dtype` are done: itself, unless it is a stored one."""
    return STORED.get(dtype, dtype)


def accumulated(dtype: str) -> str:
    """The dtype in which operators of networks compute on `dtype` before they round once: float32 for all halves."""
    return "float32" if dtype == "float16" else computed(dtype)


def largest(dtype: str) -> float:
    """The largest finite value of a float dtype."""
    return float(ml_dtypes.finfo(np.dtype(dtype)).max)


def python_number(value: Any) -> Any:
    """A scalar of NumPy (of any library with `item()`) as a number of Python; anything else, and arrays, as it is."""
    many = isinstance(value, np.ndarray) and value.size != 1
    return value.item() if hasattr(value, "item") and not many else value


def promote(a: str, b: str) -> str:
    """The dtype of an operation on `a` and `b`: floats win, then the wider one, then the one without a sign.

    Of two small floats it is float32, which has the values of both.
    """
    if a != b and {a, b} <= {*SMALL_FLOATS, "float16"}:
        return "float32"
    return max(a, b, key=DTYPES.index)
