"""Quantised operators: products and convolutions of integers in int32, and the ways from floats and back."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from te_lite.expr.dtype import computed, promote
from te_lite.expr.expr import FLOATS
from te_lite.expr.interval import dtype_interval

from ...ir.nodes import Expr
from ...op.quantized import DTYPES
from ...op.quantized import dequantize as unfolded
from .conv import conv
from .elementwise import converted
from .emit import add, binary, call, cast, const, mul, reshape, sub, value_of
from .matmul import matmul
from .model import dtype_name
from .node import Converters, Node

INTEGERS = ("int4", "uint4", "int8", "uint8", "int16", "uint16")
WIDE = ("int16", "uint16", "int32")
FLOATS_STORED = ("float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")


def quantize(node: Node) -> Expr:
    """QuantizeLinear: x / scale to the nearest integer (of two the even one), plus the zero point, saturated.

    The quotient is of the dtype `precision`, else of that of the scale, which may be wider than x or narrower.
    """
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    dtype = _quantized_dtype(node, zero)
    saturate = bool(node.integer("saturate", 1))
    code = node.integer("precision", 0)
    precision = dtype_name(code, str(node)) if code else scale.dtype if scale.dtype in FLOATS else "float32"
    node.require(precision in FLOATS, "precision must be a dtype of floats", precision=precision)
    x, scale = (cast(cast(e, precision), computed(precision)) for e in (x, scale))
    held = _affine(node, x, dtype, zero, scale) if precision == x.dtype else None
    if held is not None:
        return call("qnn.quantize", x, *held[1:], axis=held[0])
    scale, spread = _along(node, scale, x), None if zero is None else _along(node, zero, x)
    quotient = cast(cast(binary("divide", x, scale), precision), x.dtype)  # bfloat16 is rounded to
    if dtype in FLOATS_STORED:  # a zero point of floats is 0
        return converted(quotient, dtype, saturate)
    return _saturated(call("round", quotient), spread, dtype)


def _affine(node: Node, x: Expr, dtype: str, zero: Expr | None, scale: Expr) -> tuple[int, Expr, Expr] | None:
    """Axis, scale and zero point of an operator of the graph; None for a form that it does not have."""
    size, named, rank = node.integer("block_size", 0), node.integer("axis", 1), len(x.shape)
    known = value_of(scale) is not None and (zero is None or value_of(zero) is not None)
    if not known or size or dtype not in DTYPES or scale.dtype not in FLOATS or not prod(x.shape):
        return None
    zero = const(np.zeros(scale.shape), dtype) if zero is None else zero
    if prod(scale.shape) == prod(zero.shape) == 1 and max(len(scale.shape), len(zero.shape)) < 2:
        return -1, reshape(scale, ()), reshape(zero, ())
    axis = node.axis(named, rank)
    return (axis, scale, zero) if scale.shape == zero.shape == x.shape[axis : axis + 1] else None


def _quantized_dtype(node: Node, zero: Expr | None) -> str:
    code = node.integer("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_name(code, str(node)) if code else "uint8"
    kinds = (*INTEGERS, *FLOATS_STORED)
    node.require(dtype in kinds, f"quantised dtypes are {', '.join(kinds)}", dtype=dtype)
    return dtype


def _saturated(x: Expr, zero: Expr | None, dtype: str) -> Expr:
    """Floats of whole numbers, with the zero point added, as integers; what is outside goes to the limit.

    The sum is at least of float32: float16 and bfloat16 do not have all integers of 16 bits.
    """
    low, high = dtype_interval(dtype)
    wide = promote(x.dtype, "float32")
    moved = x if zero is None else add(cast(x, wide), cast(zero, wide))
    return cast(call("clip", moved, a_min=low, a_max=high), dtype)


def _along(node: Node, v: Expr, x: Expr) -> Expr:
    """A scale or zero point of one value, one an index of `axis`, or one a block, shaped to broadcast with `x`."""
    rank, size, named = len(x.shape), node.integer("block_size", 0), node.integer("axis", 1)
    if prod(v.shape) == 1 and len(v.shape) < 2:
        return reshape(v, ())
    axis = node.axis(named, rank)
    if size:
        law = "a blocked scale must have the shape of the data with the axis divided by block_size"
        fits = len(v.shape) == rank and v.shape[axis] * size >= x.shape[axis] > (v.shape[axis] - 1) * size
        node.require(fits, law, data=x.shape, scale=v.shape, block_size=size)
        return call("take", v, const(np.arange(x.shape[axis]) // size, "int32"), axis=axis)
    node.require(v.shape == (x.shape[axis],), "a scale must have one value, or one an index of the axis",
                 data=x.shape, scale=v.shape, axis=axis)  # fmt: skip
    return reshape(v, tuple(n if a == axis else 1 for a, n in enumerate(x.shape)))


def dequantize(node: Node) -> Expr:
    """DequantizeLinear: (x - zero point) * scale, in the wider of the dtypes of the scale and the result at least."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    kinds = (*INTEGERS, *FLOATS_STORED, "int32")
    node.require(x.dtype in kinds, f"quantised dtypes are {', '.join(kinds)}", dtype=x.dtype)
    code = node.integer("output_dtype", 0)
    dtype = dtype_name(code, str(node)) if code else scale.dtype
    if scale.dtype in FLOATS and dtype in FLOATS:  # integers of more than 8 bits need not be numbers of float16
        scale = cast(scale, computed(promote(scale.dtype, "float32" if x.dtype in WIDE else dtype)))
    if x.dtype in FLOATS_STORED:  # a zero point of floats is 0
        return cast(mul(cast(x, scale.dtype), _along(node, scale, x)), dtype)
    held = _affine(node, x, x.dtype, zero, scale)
    if held is not None:  # not folded where `x` is a constant: a product may read its integers
        return cast(unfolded(x, *held[1:], held[0]), dtype)
    whole = cast(x, "int32") if zero is None else sub(cast(x, "int32"), _along(node, cast(zero, "int32"), x))
    return cast(mul(cast(whole, scale.dtype), _along(node, scale, x)), dtype)


def dynamic_quantize(node: Node) -> list[Expr]:
    """DynamicQuantizeLinear to uint8: the scale covers 0 and all elements (of zeros it is 1); y, scale, zero point."""
    x = node.input(0)
    axes = tuple(range(len(x.shape)))
    low, high = (binary(name, call(name[:3], x, axis=axes, keepdims=False), 0) for name in ("minimum", "maximum"))
    scale = binary("divide", sub(high, low), 255)
    scale = call("where", binary("equal", scale, 0), const(1, x.dtype), scale)
    zero = call("clip", call("round", binary("divide", call("negative", low), scale)), a_min=0.0, a_max=255.0)
    zero = cast(zero, "uint8")
    return [_saturated(call("round", binary("divide", x, scale)), zero, "uint8"), scale, zero]


def _centred(node: Node, index: int, zero_index: int, rows: bool = False) -> Expr:
    """An input as int32 without its zero point, which is one value, or one a row (of the last axes) or column."""
    x, zero = cast(node.input(index), "int32"), node.optional(zero_index)
    if zero is None:
        return x
    return sub(x, _spread(cast(zero, "int32"), rows))


def _spread(v: Expr, rows: bool) -> Expr:
    """One value as no axis; one a row with a last axis of 1."""
    if prod(v.shape) == 1:
        return reshape(v, ())
    return call("expand_dims", v, axis=1) if rows and len(v.shape) == 1 else v


def matmul_integer(node: Node) -> Expr:
    """MatMulInteger: a product of integers in int32."""
    return matmul(_integers(node, _centred(node, 0, 2, rows=True), _centred(node, 1, 3)))


def _integers(node: Node, *inputs: Expr | None) -> Node:
    """The node with other inputs."""
    return replace(node, inputs=inputs)


def qlinear_matmul(node: Node) -> Expr:
    """QLinearMatMul: the product in int32, scaled to the output's scale and saturated."""
    total = matmul(_integers(node, _centred(node, 0, 2, rows=True), _centred(node, 3, 5)))
    a, b, y = (node.input(i) for i in (1, 4, 6))
    return _requantized(node, total, mul(_spread(a, True), _spread(b, False)), y, 7)


def _requantized(node: Node, total: Expr, scale: Expr, out_scale: Expr, zero: int) -> Expr:
    """Sums in int32 times their scale over that of the output, in the output's dtype."""
    ratio = binary("divide", cast(scale, "float32"), cast(reshape(out_scale, ()), "float32"))
    point = node.input(zero)
    node.require(point.dtype in INTEGERS, f"quantised dtypes are {', '.join(INTEGERS)}", dtype=point.dtype)
    return _saturated(call("round", mul(cast(total, "float32"), ratio)), reshape(point, ()), point.dtype)


def conv_integer(node: Node) -> Expr:
    """ConvInteger: a convolution of integers in int32."""
    return conv(_integers(node, _centred(node, 0, 2), _centred_kernel(node, 1, 3)))


def _centred_kernel(node: Node, index: int, zero_index: int) -> Expr:
    """A kernel as int32 without its zero point, which is one value or one an output channel."""
    w, zero = cast(node.input(index), "int32"), node.optional(zero_index)
    return w if zero is None else sub(w, _by_channel(cast(zero, "int32"), len(w.shape), 0))


def _by_channel(v: Expr, rank: int, axis: int) -> Expr:
    count = prod(v.shape)
    return reshape(v, () if count == 1 else tuple(count if a == axis else 1 for a in range(rank)))


def qlinear_conv(node: Node) -> Expr:
    """QLinearConv: the convolution in int32 with its bias, scaled to the output's scale and saturated."""
    total = conv(_integers(node, _centred(node, 0, 2), _centred_kernel(node, 3, 5), node.optional(8)))
    weights = _by_channel(node.input(4), len(total.shape), 1)
    return _requantized(node, total, mul(reshape(node.input(1), ()), weights), node.input(6), 7)


CONVERTERS: Converters = {
    "QuantizeLinear": {10: quantize},
    "DequantizeLinear": {10: dequantize},
    "DynamicQuantizeLinear": {11: dynamic_quantize},
    "MatMulInteger": {10: matmul_integer},
    "QLinearMatMul": {10: qlinear_matmul},
    "ConvInteger": {10: conv_integer},
    "QLinearConv": {10: qlinear_conv},
}
