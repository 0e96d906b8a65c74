"""Casts, comparisons, choices, arithmetic and functions of values with error bounds."""

from __future__ import annotations

import math

import numpy as np

from .bounded import DIGITS, ORDER, ULPS_OF_CALLS, Array, Value, rounded, unknown_where


def alike(a: Value, b: Value) -> tuple[Value, Value]:
    """Both in the dtype of an operation on them: floats win, then the wider one."""
    dtype = max(a.dtype, b.dtype, key=ORDER.index)
    return cast(a, dtype), cast(b, dtype)


def cast(a: Value, dtype: str) -> Value:
    """As C converts: floats to integers towards zero; what does not fit is unknown."""
    if a.dtype == dtype:
        return a
    if dtype in DIGITS:
        return rounded(a.v.astype("float64"), a.e, dtype, a.e == 0)
    if dtype == "bool":
        unsure = np.abs(a.v) <= a.e if a.is_float else a.e > 0
        return unknown_where(a.v != 0, unsure & (a.e > 0), dtype)
    if not a.is_float:
        return Value(a.v.astype(dtype), a.e, dtype)
    low, high = np.trunc(a.v - a.e), np.trunc(a.v + a.e)
    info = np.iinfo(dtype)
    most = min(float(info.max), 2.0**62)
    bad = ~(low == high) | ~(low >= max(float(info.min), -(2.0**62))) | ~(high <= most)
    return unknown_where(np.where(bad, 0.0, low).astype(dtype), bad, dtype)


COMPARE = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def compare(op: str, a: Value, b: Value) -> Value:
    e = a.e + b.e
    unsure = (e > 0) & ~(np.abs(a.v - b.v) > e) if a.is_float else e > 0
    return unknown_where(COMPARE[op](a.v, b.v), unsure, "bool")


def junction(op: str, a: Value, b: Value) -> Value:
    """`and`, `or`: a sure side may decide alone."""
    if op == "and":
        sure = ((a.e == 0) & ~a.v) | ((b.e == 0) & ~b.v)
        return unknown_where(a.v & b.v, ~sure & (a.e + b.e > 0), "bool")
    sure = ((a.e == 0) & a.v) | ((b.e == 0) & b.v)
    return unknown_where(a.v | b.v, ~sure & (a.e + b.e > 0), "bool")


def choose(c: Value, a: Value, b: Value) -> Value:
    a, b = alike(a, b)
    v = np.where(c.v, a.v, b.v)
    e = np.where(c.v, a.e, b.e)
    if not a.is_float:
        return Value(v, np.where((c.e > 0) & ~((a.v == b.v) & (a.e == 0) & (b.e == 0)), np.inf, e), a.dtype)
    return Value(v, np.where(c.e > 0, np.maximum(a.e, b.e) + np.abs(a.v - b.v), e), a.dtype)


def binary(op: str, a: Value, b: Value) -> Value:
    """Operands of one dtype."""
    if not a.is_float:
        return _integers(op, a, b)
    given = (a.e == 0) & (b.e == 0)
    match op:
        case "+" | "-":
            return rounded(a.v + b.v if op == "+" else a.v - b.v, a.e + b.e, a.dtype, given)
        case "*":
            return rounded(a.v * b.v, np.abs(a.v) * b.e + np.abs(b.v) * a.e + a.e * b.e, a.dtype, given)
        case "min" | "max":
            return Value((np.minimum if op == "min" else np.maximum)(a.v, b.v), np.maximum(a.e, b.e), a.dtype)
    least = np.abs(b.v) - b.e
    quotient = a.v / b.v
    error = np.where(least > 0, (a.e + np.abs(quotient) * b.e) / least, np.inf)
    if op == "/":
        return rounded(quotient, error, a.dtype, given)
    near = error + 2.0 ** (2 - DIGITS[a.dtype]) * np.abs(quotient)
    low, high = np.floor(quotient - near), np.floor(quotient + near)
    floor = np.floor(quotient)
    if op == "//":
        return rounded(floor, high - low, a.dtype)
    rest, slip = a.v - b.v * floor, np.abs(b.v) * (high - low)
    return rounded(rest, a.e + np.abs(floor) * b.e + slip + 2.0 ** -DIGITS[a.dtype] * np.abs(b.v * floor) * 2, a.dtype)


def _integers(op: str, a: Value, b: Value) -> Value:
    unsure = (a.e > 0) | (b.e > 0)
    if a.dtype == "bool" and op in ("min", "max"):
        return unknown_where(a.v & b.v if op == "min" else a.v | b.v, unsure, "bool")
    match op:
        case "+":
            v = a.v + b.v
        case "-":
            v = a.v - b.v
        case "*":
            v = a.v * b.v
        case "min":
            v = np.minimum(a.v, b.v)
        case "max":
            v = np.maximum(a.v, b.v)
        case _:
            v = _division(op, a.v, b.v)
    return unknown_where(np.asarray(v).astype(a.dtype), unsure, a.dtype)


def _division(op: str, a: Array, b: Array) -> Array:
    """Division by zero gives 0, and so does its remainder; the lowest value divided by -1 wraps around."""
    divisor = np.where(b == 0, np.ones((), b.dtype), b)
    quotient, rest = np.floor_divide(a, divisor), np.remainder(a, divisor)
    if op == "/":
        quotient = quotient + ((rest != 0) & ((a < 0) != (divisor < 0))).astype(a.dtype)
    return np.where(b == 0, np.zeros((), a.dtype), rest if op == "%" else quotient)


# ---------------------------------------------------------------------------------------------------- calls


def _erf(x: Array) -> Array:
    return np.vectorize(math.erf, otypes=["float64"])(x) if x.size else x


RISING = {
    "exp": np.exp, "exp2": np.exp2, "log": np.log, "log2": np.log2, "sqrt": np.sqrt, "tanh": np.tanh, "erf": _erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "sinh": np.sinh, "atan": np.arctan,
}  # fmt: skip
STEPS = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc}


def call(function: str, args: list[Value]) -> Value:
    """A function of one float (or integer, where that has a meaning), or a power."""
    x = args[0]
    if function == "isnan":
        return unknown_where(np.zeros(x.v.shape, bool), x.e == np.inf, "bool") if x.is_float else _false(x)
    if not x.is_float:
        assert function in (*STEPS, "abs")
        return Value(np.abs(x.v), x.e, x.dtype) if function == "abs" else x
    if function == "abs":
        return Value(np.abs(x.v), x.e, x.dtype)
    if function in STEPS:
        step = STEPS[function]
        return rounded(step(x.v), np.abs(step(x.v + x.e) - step(x.v - x.e)), x.dtype, x.e == 0)
    if function == "pow":
        return _power(x, args[1])
    return _smooth(function, x)


def _false(x: Value) -> Value:
    return Value(np.zeros(x.v.shape, bool), x.e, "bool")


def _smooth(function: str, x: Value) -> Value:
    low, high = x.v - x.e, x.v + x.e
    ulps = ULPS_OF_CALLS
    if function in RISING:
        f = RISING[function]
        v, e = f(x.v), f(high) - f(low)
    elif function == "rsqrt":
        v, e = 1 / np.sqrt(x.v), 1 / np.sqrt(low) - 1 / np.sqrt(high)
    elif function == "cosh":
        v, e = np.cosh(x.v), np.sinh(np.abs(x.v) + x.e) * 2 * x.e
    elif function in ("sin", "cos"):
        v, e = (np.sin if function == "sin" else np.cos)(x.v), x.e
        ulps, e = 1.0, e + ULPS_OF_CALLS * 2.0 ** -DIGITS[x.dtype]
    else:
        assert function == "tan"
        v = np.tan(x.v)
        slope = 1 + (np.abs(v) + 1) ** 2
        e = np.where(x.e * slope < 0.1, 2 * x.e * slope, np.inf)
    if function in ("tanh", "erf", "sigmoid", "sinh", "atan"):
        e = e + ULPS_OF_CALLS * 2.0 ** -DIGITS[x.dtype]
    return rounded(v, np.where(np.isnan(e), np.inf, e), x.dtype, ulps=ulps)


def _power(x: Value, y: Value) -> Value:
    x, y = alike(x, y)
    v = np.power(x.v, y.v)
    relative = np.abs(y.v) * x.e / np.maximum(x.v - x.e, 0) + np.abs(np.log(np.abs(x.v))) * y.e
    relative = np.where(x.e + y.e == 0, 0.0, relative)
    return rounded(v, np.where(relative < 0.1, 2 * np.abs(v) * relative, np.inf), x.dtype, ulps=ULPS_OF_CALLS)
