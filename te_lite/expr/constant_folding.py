"""Constant folding: the identities of each class of dtypes, in one table, and the value of an operation on constants.

An identity is taken only where it holds for every value of the dtype: NaN, infinities and both zeros of floats,
wrapping of integers, `x / 0 = x // 0 = x % 0 = 0` of integers.  `docs/arithmetic.md` has the table with its reasons.

What has no value that all backends must give is not folded: a float that does not fit the integer it is cast to, and
int32 and int64 constants whose result leaves the dtype, which wrap as data and do not as indices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import ExprError
from .dtype import DTYPES, FLOATS, INTEGER_BITS, is_unsigned

Number = int | float | bool

OTHER, ZERO = "other", "zero"
"""What a law gives: the operand that is not the constant, or the constant 0."""

_INTEGER: dict[tuple[str, str, str], str] = {
    ("+", "right", "0"): OTHER, ("+", "left", "0"): OTHER, ("-", "right", "0"): OTHER,
    ("*", "right", "1"): OTHER, ("*", "left", "1"): OTHER, ("*", "right", "0"): ZERO, ("*", "left", "0"): ZERO,
    ("/", "right", "1"): OTHER, ("//", "right", "1"): OTHER, ("%", "right", "1"): ZERO,
    ("/", "left", "0"): ZERO, ("//", "left", "0"): ZERO, ("%", "left", "0"): ZERO,
    ("/", "right", "0"): ZERO, ("//", "right", "0"): ZERO, ("%", "right", "0"): ZERO,
}  # fmt: skip
IDENTITIES: dict[str, dict[tuple[str, str, str], str]] = {
    "float": {
        ("+", "right", "-0"): OTHER, ("+", "left", "-0"): OTHER, ("-", "right", "0"): OTHER,
        ("*", "right", "1"): OTHER, ("*", "left", "1"): OTHER, ("/", "right", "1"): OTHER,
    },
    "signed": _INTEGER,
    "unsigned": _INTEGER,
    "bool": _INTEGER,
}  # fmt: skip
"""For each class: (operator, side of the constant, the constant) and what the operation gives.

Beside these, `min(x, x)` and `max(x, x)` are `x` in every class.
"""


def dtype_class(dtype: str) -> str:
    """`float`, `signed`, `unsigned` or `bool`."""
    if dtype in FLOATS:
        return "float"
    return "bool" if dtype == "bool" else "unsigned" if is_unsigned(dtype) else "signed"


_IDENTITIES_OF = {dtype: IDENTITIES[dtype_class(dtype)] for dtype in DTYPES}


def folds_to(op: str, side: str, value: Number, dtype: str) -> str | None:
    """What `value op x` (side "left") or `x op value` ("right") gives for every x of `dtype`: OTHER, ZERO or None."""
    if value != 0 and value != 1:
        return None
    sign = "-" if value == 0 and math.copysign(1, value) < 0 else ""
    return _IDENTITIES_OF[dtype].get((op, side, f"{sign}{int(value)}"))


def wrapped(value: int, dtype: str) -> int:
    """An integer modulo 2**bits, as a value of an integer `dtype`."""
    bits = INTEGER_BITS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if not is_unsigned(dtype) and value >> (bits - 1) else value


def stored(value: Number, dtype: str) -> Number:
    """The value that a constant has in memory: floats rounded, narrow integers wrapped; indices as they are."""
    if dtype in FLOATS:
        with np.errstate(all="ignore"):
            return float(np.dtype(dtype).type(value))
    if dtype == "bool":
        return bool(value)
    return int(value) if dtype in ("int32", "int64") else wrapped(int(value), dtype)


def fold(op: str, a: Number, b: Number, dtype: str) -> Number | None:
    """The value of `a op b` in `dtype`; None for int32 and int64 where it leaves the dtype."""
    a, b = stored(a, dtype), stored(b, dtype)
    if dtype in FLOATS:
        kind = np.dtype(dtype).type
        with np.errstate(all="ignore"):
            return float(_operator(_FLOAT, op)(kind(a), kind(b)))
    exact = int(_operator(_EXACT, op)(int(a), int(b)))
    if dtype == "bool":
        return exact != 0
    fits = wrapped(exact, dtype)
    return fits if fits == exact or dtype not in ("int32", "int64") else None


def fold_compare(op: str, a: Number, b: Number, dtype: str) -> bool:
    """The truth of a comparison of two constants of `dtype`."""
    return bool(_COMPARE[op](stored(a, dtype), stored(b, dtype)))


def fold_cast(value: Number, source: str, target: str) -> Number | None:
    """A constant of dtype `source` as `target`; None for a float that the integer `target` has no room for."""
    value = stored(value, source)
    if target == "bool":
        return value != 0
    if target in FLOATS:
        with np.errstate(all="ignore"):
            return float(np.asarray(float(value) if source in FLOATS else int(value)).astype(target))
    if source not in FLOATS:
        return wrapped(int(value), target)
    if not math.isfinite(value):
        return None
    return int(value) if wrapped(int(value), target) == int(value) else None


def _operator(table: dict[str, Callable[[Any, Any], Any]], op: str) -> Callable[[Any, Any], Any]:
    if op not in table:
        raise ExprError(f"binary: unknown operator {op!r}")
    return table[op]


def _truncated(a: int, b: int) -> int:
    return 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_EXACT: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _truncated,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}
_FLOAT: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": np.floor_divide,
    "%": np.remainder,
    "min": lambda a, b: a if a < b or a != a else b,
    "max": lambda a, b: a if a > b or a != a else b,
}
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": lambda x, y: x < y,
    "<=": lambda x, y: x <= y,
    ">": lambda x, y: x > y,
    ">=": lambda x, y: x >= y,
    "==": lambda x, y: x == y,
    "!=": lambda x, y: x != y,
}
