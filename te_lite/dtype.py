"""Element types."""

from __future__ import annotations

from typing import Any

DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
FLOATS = ("float16", "float32", "float64")
INTEGER_BITS = {"int8": 8, "uint8": 8, "int16": 16, "int32": 32, "int64": 64}
INDEX = "int32"


def is_unsigned(dtype: str) -> bool:
    """Whether an integer dtype has no negative values."""
    return dtype.startswith("u")


def python_number(value: Any) -> Any:
    """A scalar of NumPy (of any library with `item()`) as a number of Python; anything else as it is."""
    return value.item() if hasattr(value, "item") else value


def promote(a: str, b: str) -> str:
    """The dtype of an operation on `a` and `b`: floats win, then the wider one."""
    return max(a, b, key=DTYPES.index)
