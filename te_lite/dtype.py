"""Element types, and what an operator makes of two constants."""

from __future__ import annotations

import math
from typing import Any

from .errors import ExprError

DTYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
FLOATS = ("float16", "float32", "float64")
INDEX = "int32"


def python_number(value: Any) -> Any:
    """A scalar of NumPy (of any library with `item()`) as a number of Python; anything else as it is."""
    return value.item() if hasattr(value, "item") else value


def promote(a: str, b: str) -> str:
    """The dtype of an operation on `a` and `b`: floats win, then the wider one."""
    return max(a, b, key=DTYPES.index)


def fold(op: str, a: int | float, b: int | float, dtype: str) -> int | float:
    """The value of a binary operation on two constants, as `Binary` defines `op`."""
    match op:
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/" if dtype in FLOATS:
            return a / b if b else math.copysign(math.inf, a) if a else math.nan
        case "/":
            return int(a / b) if abs(a) < 2**52 else (abs(int(a)) // abs(int(b))) * (1 if (a < 0) == (b < 0) else -1)
        case "//":
            return a // b
        case "%":
            return a % b
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
    raise ExprError(f"binary: unknown operator {op!r}")


_COMPARE = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}


def fold_compare(op: str, a: int | float, b: int | float) -> bool:
    """The truth of a comparison of two constants."""
    return bool(_COMPARE[op](a, b))
