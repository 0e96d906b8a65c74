"""Arithmetic, comparisons, logic and casts, all broadcasting as NumPy does."""

from __future__ import annotations

import math
from functools import partial, reduce

import numpy as np

from te_lite.errors import require
from te_lite.expr.dtype import computed, largest, promote
from te_lite.expr.expr import FLOATS

from ...ir.errors import GraphError
from ...ir.extents import is_open
from ...ir.nodes import Expr
from .emit import add, binary, call, cast, const, div, maximum, minimum, mul
from .model import dtype_name
from .node import Converter, Converters, Node


def unary(name: str) -> Converter:
    """An operator of one tensor that the graph knows by `name`."""
    return lambda node: call(name, node.input(0))


def two(name: str) -> Converter:
    """A broadcasting operator of two tensors that the graph knows by `name`."""
    return lambda node: binary(name, node.input(0), node.input(1))


def fold(name: str) -> Converter:
    """A broadcasting operator of one or more tensors."""
    return lambda node: reduce(partial(binary, name), _all(node))


def _all(node: Node) -> list[Expr]:
    node.require(node.inputs, "at least one input is needed")
    return [node.input(i) for i in range(len(node.inputs))]


def mean(node: Node) -> Expr:
    """Mean of tensors, element by element."""
    return div(reduce(add, _all(node)), const(len(node.inputs), node.input(0).dtype))


def divide(node: Node) -> Expr:
    """Div; integers are divided towards zero."""
    return div(node.input(0), node.input(1))


def modulo(node: Node) -> Expr:
    """Mod of integers has the sign of the divisor, with fmod=1 of the dividend."""
    a, b = node.input(0), node.input(1)
    fmod = node.integer("fmod", 0)
    node.require(fmod or a.dtype not in FLOATS, "floats need fmod=1", dtype=a.dtype)
    return binary("mod" if fmod else "floor_mod", a, b)


def power(node: Node) -> Expr:
    """Pow; small constant exponents become products and roots.  The result has the dtype of the base."""
    x, y = node.input(0), node.input(1)
    exponent = node.known(1)
    if exponent is not None and exponent.size == 1 and len(exponent.shape) <= len(x.shape) and x.dtype in FLOATS:
        short = _small_power(x, float(exponent.reshape(())))
        if short is not None:
            return short
    wide = promote(x.dtype, y.dtype)
    return cast(binary("power", cast(x, wide), cast(y, wide)), x.dtype)


def _small_power(x: Expr, exponent: float) -> Expr | None:
    """A power as a product or a root; None when it is none."""
    match exponent:
        case 1.0:
            return x
        case 2.0:
            return mul(x, x)
        case 3.0:
            return mul(mul(x, x), x)
        case 0.5:  # a root of -inf is NaN and one of -0 is -0, a power neither
            return call("where", binary("equal", x, -math.inf), const(math.inf, x.dtype), add(call("sqrt", x), 0))
    return None


def infinite(node: Node) -> Expr:
    """IsInf: of either sign, or of the one that is asked for."""
    x = node.input(0)
    wanted = {-np.inf: node.integer("detect_negative", 1), np.inf: node.integer("detect_positive", 1)}
    if all(wanted.values()):
        return binary("equal", call("abs", x), np.inf)
    signs = [binary("equal", x, value) for value, asked in wanted.items() if asked]
    return signs[0] if signs else const(np.zeros(x.shape), "bool")


def reciprocal(node: Node) -> Expr:
    """Reciprocal: 1 / x."""
    return div(1.0, node.input(0))


def to_dtype(node: Node) -> Expr:
    """Cast; to the dtype it has it is nothing.  Of numbers too large a float of 8 bits is its largest (saturate)."""
    return converted(node.input(0), dtype_name(node.integer("to"), str(node)), bool(node.integer("saturate", 1)))


def converted(x: Expr, dtype: str, saturate: bool) -> Expr:
    """`x` in another dtype; a float of 8 bits stops at its largest number if asked to, infinities too.

    Floats of 4 bits always do, and have no NaN: it becomes their largest number, as in ONNX's tests.
    """
    if x.dtype == dtype:
        return x
    x = cast(x, computed(x.dtype))
    if saturate and dtype.startswith("float8"):
        x = x if x.dtype in FLOATS else cast(x, "float32")
        x = call("clip", x, a_min=-largest(dtype), a_max=largest(dtype))
    if dtype.startswith("float4") and x.dtype in FLOATS:
        x = call("where", binary("equal", x, x), x, const(largest(dtype), x.dtype))
    return binary("not_equal", x, 0) if dtype == "bool" and x.dtype != "bool" else cast(x, dtype)


def where(node: Node) -> Expr:
    """Where: the second input where the first holds, else the third."""
    return call("where", node.input(0), node.input(1), node.input(2))


def clip_attrs(node: Node) -> Expr:
    """Clip before opset 11: bounds are attributes."""
    bounds = [node.number(name) if node.has(name) else None for name in ("min", "max")]
    return clip_to(node.input(0), *bounds)


def clip(node: Node) -> Expr:
    """Clip from opset 11 on: bounds are optional inputs of no dimensions."""
    x = node.input(0)
    if all(node.optional(i) is None or node.known(i) is not None for i in (1, 2)):
        return clip_to(x, node.scalar(1), node.scalar(2))
    low, high = node.optional(1), node.optional(2)
    x = x if low is None else maximum(x, low)
    return x if high is None else minimum(x, high)


def clip_to(x: Expr, low: float | None, high: float | None) -> Expr:
    """`x` moved into known bounds; None is no bound, and the upper one wins."""
    low = None if low is not None and low <= _limits(x.dtype)[0] else low
    high = None if high is not None and high >= _limits(x.dtype)[1] else high
    if low is not None and high is not None and low <= high:
        return call("clip", x, a_min=low, a_max=high)
    if low is not None:
        x = call("nn.relu", x) if low == 0 else maximum(x, low)
    return x if high is None else minimum(x, high)


def _limits(dtype: str) -> tuple[float, float]:
    """What no value of `dtype` is beyond."""
    require(dtype != "bool", GraphError, "bounds", "numbers are needed", dtype=dtype)
    if dtype in FLOATS:
        return -math.inf, math.inf
    return float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)


def no_op(node: Node) -> Expr:
    """Identity."""
    return node.input(0)


def dropout(node: Node) -> list[Expr]:
    """Dropout does nothing in inference; its mask holds everywhere."""
    if node.opset >= 12:
        training, ratio = node.scalar(2), node.known(1)
        harmless = not training or (ratio is not None and not ratio.any())
        node.require(harmless, "training_mode must be false")
    else:
        node.number("ratio", 0.5)
    x = node.input(0)
    dtype = "bool" if node.opset >= 10 else x.dtype
    return [x, call("full", const(1, dtype), shape=x.shape) if is_open(*x.shape) else const(np.ones(x.shape), dtype)]


CONVERTERS: Converters = {
    "Add": {7: two("add")},
    "Sub": {7: two("subtract")},
    "Mul": {7: two("multiply")},
    "Div": {7: divide},
    "Mod": {10: modulo},
    "Pow": {7: power},
    "Sum": {6: fold("add")},
    "Mean": {6: mean},
    "Max": {6: fold("maximum")},
    "Min": {6: fold("minimum")},
    "Equal": {7: two("equal")},
    "Less": {7: two("less")},
    "LessOrEqual": {12: two("less_equal")},
    "Greater": {7: two("greater")},
    "GreaterOrEqual": {12: two("greater_equal")},
    "And": {7: two("logical_and")},
    "Or": {7: two("logical_or")},
    "Xor": {7: two("logical_xor")},
    "Not": {1: unary("logical_not")},
    "IsNaN": {9: unary("isnan")},
    "IsInf": {10: infinite},
    "Tan": {7: unary("tan")},
    "Asin": {7: unary("asin")},
    "Acos": {7: unary("acos")},
    "Atan": {7: unary("atan")},
    "Sinh": {9: unary("sinh")},
    "Cosh": {9: unary("cosh")},
    "Asinh": {9: unary("asinh")},
    "Acosh": {9: unary("acosh")},
    "Atanh": {9: unary("atanh")},
    "Where": {9: where},
    "Neg": {6: unary("negative")},
    "Abs": {6: unary("abs")},
    "Sign": {9: unary("sign")},
    "Sqrt": {6: unary("sqrt")},
    "Exp": {6: unary("exp")},
    "Log": {6: unary("log")},
    "Erf": {9: unary("erf")},
    "Sin": {7: unary("sin")},
    "Cos": {7: unary("cos")},
    "Floor": {6: unary("floor")},
    "Ceil": {6: unary("ceil")},
    "Round": {11: unary("round")},
    "Reciprocal": {6: reciprocal},
    "Cast": {6: to_dtype},
    "Clip": {6: clip_attrs, 11: clip},
    "Identity": {1: no_op},
    "Dropout": {7: dropout},
}
