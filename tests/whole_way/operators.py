"""Casts, comparisons, choices, arithmetic and functions of values with error bounds."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from .bounded import DIGITS, LARGEST, ULPS_OF_CALLS, Array, Value, floats, promoted, rounded, unknown_where


def alike(a: Value, b: Value) -> tuple[Value, Value]:
    """Both in the dtype of an operation on them: floats win, then the wider one."""
    dtype = promoted(a.dtype, b.dtype)
    return cast(a, dtype), cast(b, dtype)


def cast(a: Value, dtype: str) -> Value:
    """Floats to integers towards zero, to the end of the dtype where it has no room, NaN to 0."""
    if a.dtype == dtype:
        return a
    if dtype in DIGITS:
        out = rounded(a.v.astype("float64"), a.e, dtype, a.e == 0, sure=~np.isfinite(a.v), at_once=True)
        return replace(out, unsigned=a.unsigned & (out.v == 0))
    if dtype == "bool":
        unsure = np.abs(a.v) <= a.e if a.is_float else a.e > 0
        return unknown_where(a.v != 0, unsure & (a.e > 0), dtype)
    if not a.is_float:
        return Value(a.v.astype(dtype), a.e, dtype)
    low, high = _whole(a.v - a.e, dtype), _whole(a.v + a.e, dtype)
    return unknown_where(low, low != high, dtype)


def _whole(x: Array, dtype: str) -> Array:
    """Floats without their fraction, in an integer dtype."""
    info = np.iinfo(dtype)
    inside = (x > float(info.min)) & (x < float(info.max))
    out = np.where(inside, x, 0.0).astype(dtype)
    return np.where(x >= float(info.max), info.max, np.where(x <= float(info.min), info.min, out)).astype(dtype)


COMPARE = {
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
}  # fmt: skip


def compare(op: str, a: Value, b: Value) -> Value:
    e = a.e + b.e
    nan = (np.isnan(a.v) | np.isnan(b.v)) if a.is_float else False
    unsure = (e > 0) & ~(np.abs(a.v - b.v) > e) & ~nan if a.is_float else e > 0
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
    unsure = c.e > 0
    if not a.is_float:
        return Value(v, np.where(unsure & ~((a.v == b.v) & (a.e == 0) & (b.e == 0)), np.inf, e), a.dtype)
    same = (a.v == b.v) | (np.isnan(a.v) & np.isnan(b.v))
    either = np.maximum(a.e, b.e) + np.where(same, 0.0, np.abs(a.v - b.v))
    unsigned = np.where(c.v, a.unsigned, b.unsigned) | unsure
    return floats(v, np.where(unsure, either, e), a.dtype, unsigned)


def binary(op: str, a: Value, b: Value) -> Value:
    """Operands of one dtype."""
    if not a.is_float:
        return _integers(op, a, b)
    out = _floats(op, a, b)
    unsigned = a.unsigned | b.unsigned
    if op in ("min", "max"):
        unsigned = unsigned | ((a.v == 0) & (b.v == 0) & (np.signbit(a.v) != np.signbit(b.v)))
    elif op == "fmod":
        unsigned = a.unsigned | ~a.sign_known
    elif op not in ("+", "-"):
        unsigned = unsigned | ~a.sign_known | ~b.sign_known
    return replace(out, unsigned=unsigned & (out.v == 0))


def _floats(op: str, a: Value, b: Value) -> Value:
    given = (a.e == 0) & (b.e == 0)
    sure = _nan_or_infinite(op, a, b)
    match op:
        case "+" | "-":
            return rounded(a.v + b.v if op == "+" else a.v - b.v, a.e + b.e, a.dtype, given, sure=sure)
        case "*":
            error = np.abs(a.v) * b.e + np.abs(b.v) * a.e + a.e * b.e
            return rounded(a.v * b.v, error, a.dtype, given, sure=sure)
        case "min" | "max":
            v = (np.minimum if op == "min" else np.maximum)(a.v, b.v)
            return floats(v, np.where(sure, 0.0, np.maximum(a.e, b.e)), a.dtype)
    least = np.abs(b.v) - b.e
    quotient = a.v / b.v
    error = np.where(least > 0, (a.e + np.abs(quotient) * b.e) / least, np.inf)
    if op == "/":
        return rounded(quotient, error, a.dtype, given, sure=sure, at_once=True)
    left = np.fmod(a.v, b.v)  # exact, as nothing is about a quotient that was rounded
    if op == "fmod":
        steps = np.where(error > 0, np.trunc(quotient + error) - np.trunc(quotient - error), 0.0)
        error = np.where(np.isinf(b.v), a.e, a.e + np.abs(np.trunc(quotient)) * b.e + np.abs(b.v) * steps)
        return rounded(left, np.where(given, 0.0, error), a.dtype, given, sure=sure)
    turned = (left != 0) & ((left < 0) != (b.v < 0))
    floor = np.where(b.v == 0, quotient, np.rint((a.v - left) / b.v) - turned)
    steps = np.where(error > 0, np.floor(quotient + error) - np.floor(quotient - error), 0.0)
    if op == "//":
        steps = np.where(np.isinf(b.v) & ~a.sign_known, np.inf, steps)
        return rounded(floor, steps, a.dtype, sure=sure)
    error = np.where(error > 0, a.e + np.abs(floor) * b.e + np.abs(b.v) * steps, 0.0)
    error = np.where(np.isinf(b.v), np.where(a.sign_known, a.e, np.inf), error)
    return rounded(left + np.where(turned, b.v, 0.0), error, a.dtype, sure=sure)


def _nan_or_infinite(op: str, a: Value, b: Value) -> Array:
    """Where the operands, NaN, infinities or a divisor of zero among them, decide the result."""
    nan = np.isnan(a.v) | np.isnan(b.v)
    known = a.known & b.known
    infinite = np.isinf(a.v) | np.isinf(b.v)
    zero = (b.v == 0) & (b.e == 0)
    signs = a.sign_known & b.sign_known
    match op:
        case "+" | "-":
            return nan | (known & infinite)
        case "*":
            return nan | (known & infinite & signs)
        case "min" | "max":
            return nan
        case "%" | "fmod":
            return nan | (known & (np.isinf(a.v) | zero | (infinite & (a.e == 0))))
    either = np.asarray(b.unsigned) & (a.v != 0)  # a zero of open sign makes an infinity of open sign
    return nan | (known & signs & (infinite | zero) & ~either)


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
    if op == "fmod":
        return np.where(b == 0, np.zeros((), a.dtype), np.fmod(a, divisor))
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
    "asinh": np.arcsinh, "asin": np.arcsin, "atanh": np.arctanh, "acosh": np.arccosh, "expm1": np.expm1,
    "softplus": lambda x: np.logaddexp(0.0, x),
}  # fmt: skip
BITS = {"bit_and": np.bitwise_and, "bit_or": np.bitwise_or, "bit_xor": np.bitwise_xor}
STEPS = {"floor": np.floor, "ceil": np.ceil, "round": np.rint, "trunc": np.trunc}


def call(function: str, args: list[Value]) -> Value:
    """A function of one float (or integer, where that has a meaning), or a power."""
    x = args[0]
    if function == "isnan":
        return unknown_where(np.isnan(x.v), ~x.known, "bool") if x.is_float else _false(x)
    if function in BITS or (function == "pow" and promoted(x.dtype, args[1].dtype) not in DIGITS):
        x, y = alike(x, args[1])
        made = BITS[function](x.v, y.v) if function in BITS else _integer_power(x.v, y.v)
        return unknown_where(made, (x.e > 0) | (y.e > 0), x.dtype)
    if not x.is_float:
        assert function in (*STEPS, "abs")
        return Value(np.abs(x.v), x.e, x.dtype) if function == "abs" else x
    if function == "abs":
        return Value(np.abs(x.v), x.e, x.dtype)
    if function == "pow":
        return _power(x, args[1])
    if function not in STEPS:
        return _smooth(function, x)
    step = STEPS[function]
    error = np.abs(step(x.v + x.e) - step(x.v - x.e))
    out = rounded(step(x.v), error, x.dtype, x.e == 0, sure=~np.isfinite(x.v))
    return replace(out, unsigned=(x.unsigned | ~x.sign_known) & (out.v == 0))


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
    sure = (_at_the_edge(function, x) & ~np.isfinite(v)) | ((x.v == 0) & (x.e == 0) & (v == 0))
    if function in RISING:
        sure = sure | (np.minimum(np.abs(f(low)), np.abs(f(high))) > 1.01 * LARGEST[x.dtype]) & np.isinf(v)
    out = rounded(v, np.where(np.isnan(e) | ~x.known, np.inf, e), x.dtype, ulps=ulps, sure=sure, at_once=True)
    return replace(out, unsigned=(x.unsigned | ~x.sign_known) & (out.v == 0))


def _at_the_edge(function: str, x: Value) -> Array:
    """Where a function has the limit, pole or NaN of C's library: what is not finite, zeros, negative numbers."""
    edge = ~np.isfinite(x.v)
    if function in ("log", "log2", "sqrt", "rsqrt"):
        edge = edge | (x.v + x.e < 0)
    if function in ("asin", "atanh"):
        edge = edge | (np.abs(x.v) - x.e > 1) | ((np.abs(x.v) == 1) & (x.e == 0))
    if function == "acosh":
        edge = edge | (x.v + x.e < 1)
    if function in ("log", "log2", "rsqrt"):
        edge = edge | ((x.v == 0) & (x.e == 0) & ~(x.unsigned & (function == "rsqrt")))
    return edge


def _power(x: Value, y: Value) -> Value:
    x, y = alike(x, y)
    root = (y.v == 0.5) & ((x.v == 0) | (x.v == -np.inf))  # of one exponent NumPy takes a root: NaN and -0.0
    v = np.power(np.where(root, np.abs(x.v), x.v), y.v)
    relative = np.abs(y.v) * x.e / np.maximum(x.v - x.e, 0) + np.abs(np.log(np.abs(x.v))) * y.e
    given = x.e + y.e == 0
    relative = np.where(given, 0.0, relative)
    edge = ~np.isfinite(x.v) | ~np.isfinite(y.v) | (x.v < 0) & np.isnan(v) | ((x.v == 0) & ~np.asarray(x.unsigned))
    error = np.where(relative < 0.1, 2 * np.abs(v) * relative, np.inf)
    return rounded(v, error, x.dtype, ulps=ULPS_OF_CALLS, sure=given & edge & ~np.isfinite(v), at_once=True)


def _integer_power(x: Array, y: Array) -> Array:
    """Modulo 2^bits; of a negative exponent `1 / x^n` without its fraction, 0 for 0."""
    x, y = np.broadcast_arrays(x, y)
    bits, whole = 8 * x.dtype.itemsize, []
    for base, n in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True):
        inverse = {1: 1, -1: 1 - 2 * (n % 2)}.get(base, 0)
        whole.append(inverse % 2**bits if n < 0 else pow(base, n, 2**bits))
    return np.array(whole, f"u{x.dtype.itemsize}").reshape(x.shape).astype(x.dtype)
