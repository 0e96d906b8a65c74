"""What ONNX's operators of single elements mean, from its pages: arithmetic, comparisons, functions, activations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from .blocks import absent, add, arithmetic, chosen_floats, div, f, mul, number, sub
from .bounded import Value, exact, unknown_where
from .operators import alike, binary, call, cast, choose, compare, junction

Args = list[Any]
Attrs = Mapping[str, Any]
Meaning = Callable[[Args, Attrs], Any]


def _many(op: str) -> Meaning:
    return lambda args, attrs: reduce(partial(arithmetic, op), args)


def _negative(args: Args, attrs: Attrs) -> Value:
    (x,) = args
    return Value(-x.v, x.e, x.dtype, unsigned=x.unsigned)


def _mod(args: Args, attrs: Attrs) -> Value:
    return binary("fmod" if attrs.get("fmod") else "%", *args)


def _power(args: Args, attrs: Attrs) -> Value:
    return cast(call("pow", list(alike(*args))), args[0].dtype)


def _sign(args: Args, attrs: Attrs) -> Value:
    (x,) = args
    if not x.is_float:
        return unknown_where(np.sign(x.v), x.e > 0, x.dtype)
    return Value(np.sign(x.v), np.where(x.sign_known | np.isnan(x.v), 0.0, np.inf), x.dtype)


def _clip(args: Args, attrs: Attrs) -> Value:
    x, low, high = [*args, None, None][:3]
    x = x if low is None else binary("max", x, low)
    return x if high is None else binary("min", x, high)


def _shift(args: Args, attrs: Attrs) -> Value:
    a, b = args
    f_of = np.left_shift if attrs["direction"] == "LEFT" else np.right_shift
    return unknown_where(f_of(a.v, b.v).astype(a.dtype), (a.e > 0) | (b.e > 0), a.dtype)


def _xor(args: Args, attrs: Attrs) -> Value:
    a, b = args
    return unknown_where(a.v ^ b.v, (a.e > 0) | (b.e > 0), "bool")


def _inverted(args: Args, attrs: Attrs) -> Value:
    return replace(args[0], v=~args[0].v)


def _is_infinite(args: Args, attrs: Attrs) -> Value:
    (x,) = args
    up, down = attrs.get("detect_positive", 1), attrs.get("detect_negative", 1)
    found = ((x.v == np.inf) & bool(up)) | ((x.v == -np.inf) & bool(down))
    return unknown_where(found, ~x.known, "bool")


def _reciprocal(args: Args, attrs: Attrs) -> Value:
    return div(number(1, args[0]), args[0])


def _where_positive(x: Value, a: Value, b: Value, over: float = 0.0) -> Value:
    """`a` where x > over, else `b`; NaN stays NaN."""
    out = choose(compare(">", x, number(over, x)), a, b)
    return chosen_floats(np.isnan(x.v) & x.known, x, out)


def _relu(args: Args, attrs: Attrs) -> Value:
    return binary("max", args[0], number(0, args[0]))


def _leaky(args: Args, attrs: Attrs) -> Value:
    slope = args[1] if len(args) > 1 else number(attrs.get("alpha", absent(0.01)), args[0])
    low = mul(args[0], slope)
    return choose(compare("<", *alike(args[0], number(0, args[0]))), low, args[0])


def _open_zeros(meaning: Meaning) -> Meaning:
    """Zeros of either sign: of -0.0 such a function may be made as a sum of two halves."""

    def of(args: Args, attrs: Attrs) -> Value:
        out = meaning(args, attrs)
        return replace(out, unsigned=out.v == 0)

    return of


def _elu(args: Args, attrs: Attrs) -> Value:
    (x,) = args
    alpha = number(attrs.get("alpha", 1.0), x)
    return _where_positive(x, x, mul(alpha, f("expm1", binary("min", x, number(0, x)))))


def _selu(args: Args, attrs: Attrs) -> Value:
    x, alpha, gamma = args[0], 1.67326319217681884765625, 1.05070102214813232421875
    low = mul(number(alpha, x), f("expm1", binary("min", x, number(0, x))))
    return mul(number(gamma, x), _where_positive(x, x, low))


def _celu(args: Args, attrs: Attrs) -> Value:
    (x,) = args
    alpha = number(attrs.get("alpha", 1.0), x)
    low = mul(alpha, f("expm1", div(binary("min", x, number(0, x)), alpha)))
    return add(_relu([x], {}), low)


def _hard_sigmoid(args: Args, attrs: Attrs) -> Value:
    (x,) = args
    line = add(mul(number(attrs.get("alpha", absent(0.2)), x), x), number(attrs.get("beta", 0.5), x))
    return binary("min", binary("max", line, number(0, x)), number(1, x))


def _hard_swish(args: Args, attrs: Attrs) -> Value:
    return mul(args[0], _hard_sigmoid(args, {"alpha": 1 / 6}))


def _gelu(args: Args, attrs: Attrs) -> Value:
    (x,) = args
    if attrs.get("approximate", "none") == "tanh":
        cube = mul(mul(mul(x, x), x), number(0.044715, x))
        inner = f("tanh", mul(number(math.sqrt(2 / math.pi), x), add(x, cube)))
    else:
        inner = f("erf", mul(x, number(math.sqrt(0.5), x)))
    return mul(mul(number(0.5, x), x), add(number(1, x), inner))


def _mish(args: Args, attrs: Attrs) -> Value:
    return mul(args[0], f("tanh", f("softplus", args[0])))


def _softsign(args: Args, attrs: Attrs) -> Value:
    return div(args[0], add(number(1, args[0]), f("abs", args[0])))


def _thresholded(args: Args, attrs: Attrs) -> Value:
    x, alpha = args[0], attrs.get("alpha", 1.0)
    return choose(compare(">", x, number(alpha, x)), x, number(0, x))


def _shrink(args: Args, attrs: Attrs) -> Value:
    x, bias, edge = args[0], number(attrs.get("bias", 0.0), args[0]), number(attrs.get("lambd", 0.5), args[0])
    low = choose(compare("<", x, number(-attrs.get("lambd", 0.5), x)), add(x, bias), number(0, x))
    return choose(compare(">", x, edge), sub(x, bias), low)


def _swish(args: Args, attrs: Attrs) -> Value:
    return mul(args[0], f("sigmoid", mul(number(attrs.get("alpha", 1.0), args[0]), args[0])))


def _acos(args: Args, attrs: Attrs) -> Value:
    return sub(number(math.pi / 2, args[0]), f("asin", args[0]))


def _quantize(args: Args, attrs: Attrs) -> Value:
    """To the nearest of the even ones, saturated; a scale of one number or along an axis."""
    x, scale, zero = args
    axis = attrs.get("axis", 1)
    scale, zero = (_along(y, x.v.ndim, axis) for y in (scale, zero))
    whole = f("round", div(x, scale))
    whole = add(cast(whole, "float64"), cast(zero, "float64"))
    info = np.iinfo(zero.dtype)
    low, high = exact(float(info.min), "float64"), exact(float(info.max), "float64")
    return cast(binary("min", binary("max", whole, low), high), zero.dtype)


def _dequantize(args: Args, attrs: Attrs) -> Value:
    x, scale, zero = args
    axis = attrs.get("axis", 1)
    scale, zero = (_along(y, x.v.ndim, axis) for y in (scale, zero))
    off = binary("-", cast(x, "int32"), cast(zero, "int32"))
    return mul(cast(off, scale.dtype), scale)


def _along(x: Value, rank: int, axis: int) -> Value:
    shape = [-1 if a == axis % max(rank, 1) else 1 for a in range(rank)] if x.v.ndim else []
    return x.rearranged(lambda y: y.reshape(shape))


def _cast(args: Args, attrs: Attrs) -> Value:
    return cast(args[0], attrs["to"])


def _one(function: str) -> Meaning:
    return lambda args, attrs: f(function, args[0])


_COMPARED = {"Equal": "==", "Less": "<", "LessOrEqual": "<=", "Greater": ">", "GreaterOrEqual": ">="}
_CALLED = ("Abs", "Ceil", "Floor", "Round", "Exp", "Log", "Sqrt", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Erf",
           "Sigmoid", "Asin", "Asinh", "Acosh", "Atan", "Atanh", "Softplus")  # fmt: skip
_BITS = {"BitwiseAnd": "bit_and", "BitwiseOr": "bit_or", "BitwiseXor": "bit_xor"}

ELEMENTS: dict[str, Meaning] = {
    "Add": _many("+"), "Sub": _many("-"), "Mul": _many("*"), "Div": _many("/"), "Sum": _many("+"),
    "Max": _many("max"), "Min": _many("min"), "Mean": lambda args, attrs: div(
        reduce(add, args), number(len(args), args[0])),
    "Mod": _mod, "Pow": _power, "Neg": _negative, "Sign": _sign, "Clip": _clip, "BitShift": _shift,
    "BitwiseNot": _inverted, "Not": _inverted, "Xor": _xor, "IsInf": _is_infinite, "IsNaN": _one("isnan"),
    "Reciprocal": _reciprocal, "Relu": _relu, "LeakyRelu": _leaky, "PRelu": _open_zeros(_leaky),
    "Elu": _open_zeros(_elu), "Selu": _open_zeros(_selu),
    "Celu": _open_zeros(_celu), "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish, "Gelu": _gelu, "Mish": _mish,
    "Softsign": _softsign, "ThresholdedRelu": _thresholded, "Shrink": _shrink, "Acos": _acos, "Cast": _cast,
    "QuantizeLinear": _quantize, "DequantizeLinear": _dequantize,
    "And": lambda args, attrs: junction("and", *args), "Or": lambda args, attrs: junction("or", *args),
    "Where": lambda args, attrs: choose(*args),
    **{name: (lambda args, attrs, op=op: compare(op, *alike(*args))) for name, op in _COMPARED.items()},
    **{name: (lambda args, attrs, fn=fn: call(fn, args)) for name, fn in _BITS.items()},
    **{name: _one(name.lower()) for name in _CALLED},
}  # fmt: skip
"""By the name of the operator: its result of the values of its inputs and its attributes."""
