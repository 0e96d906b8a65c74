"""Operators of QOperator models: integers in, by their definition floats inside, integers out; and integer products."""

from __future__ import annotations

from math import prod

from ...ir.nodes import Expr
from ..onnx.activation import leaky_relu, softmax, softmax_flat
from ..onnx.emit import add, binary, call, cast, concatenate, mul, reshape, transpose
from ..onnx.node import Converter, Converters, Node
from ..onnx.pool import avg_pool
from ..onnx.quantized import dequantize, dynamic_quantize, matmul_integer, qlinear_conv, quantize
from ..onnx.select import narrow
from .parts import attrs_but, floats, made, other, stored
from .products import first, last

BYTES = ("int8", "uint8")


def _both(name: str) -> Converter:
    """A sum or product of two quantised tensors that broadcast."""

    def convert(node: Node) -> Expr:
        kind = _kind(node, node.input(0))
        node.require(
            node.input(3).dtype == kind, "both operands must have one dtype", dtypes=(kind, node.input(3).dtype)
        )
        return stored(node, binary(name, floats(node, 0, 1, 2), floats(node, 3, 4, 5)), 6, 7, kind)

    return convert


def _kind(node: Node, x: Expr) -> str:
    node.require(x.dtype in BYTES, f"quantised dtypes are {', '.join(BYTES)}", dtype=x.dtype)
    return x.dtype


def sigmoid(node: Node) -> Expr:
    """QLinearSigmoid."""
    return stored(node, call("sigmoid", floats(node, 0, 1, 2)), 3, 4, _kind(node, node.input(0)))


def leaky(node: Node) -> Expr:
    """QLinearLeakyRelu."""
    x = made(leaky_relu, other(node, floats(node, 0, 1, 2), **attrs_but(node)))
    return stored(node, x, 3, 4, _kind(node, node.input(0)))


def q_softmax(node: Node) -> Expr:
    """QLinearSoftmax, as Softmax of the opset that it names."""
    x = floats(node, 0, 1, 2)
    of = softmax if node.integer("opset") >= 13 else softmax_flat
    axis = node.axis(node.integer("axis", -1), len(x.shape))
    return stored(node, made(of("nn.softmax"), other(node, x, axis=axis)), 3, 4, _kind(node, node.input(0)))


def concat(node: Node) -> Expr:
    """QLinearConcat: scale and zero point of the result, then a tensor, its scale and its zero point, and so on."""
    count = (len(node.inputs) - 2) // 3
    node.require(count >= 1 and len(node.inputs) == 2 + 3 * count, "inputs are two, then three a tensor",
                 inputs=len(node.inputs))  # fmt: skip
    kind = _kind(node, node.input(2))
    parts = [floats(node, k, k + 1, k + 2) for k in range(2, 2 + 3 * count, 3)]
    axis = node.axis(node.integer("axis"), len(parts[0].shape))
    return stored(node, concatenate(parts, axis), 0, 1, kind)


def average_pool(node: Node) -> Expr:
    """QLinearAveragePool; with `channels_last` the channels of data and result are last."""
    x, to_last = floats(node, 0, 1, 2), node.integer("channels_last", 0)
    attrs = attrs_but(node, "channels_last")
    out = made(avg_pool, other(node, first(x) if to_last else x, **attrs))
    return stored(node, last(out) if to_last else out, 3, 4, _kind(node, node.input(0)))


def global_pool(node: Node) -> Expr:
    """QLinearGlobalAveragePool; spatial axes stay with extent 1."""
    x, to_last = floats(node, 0, 1, 2), node.integer("channels_last", 0)
    node.require(len(x.shape) >= 3, "spatial axes are needed", shape=x.shape)
    axes = tuple(range(1, len(x.shape) - 1)) if to_last else tuple(range(2, len(x.shape)))
    return stored(node, call("mean", x, axis=axes, keepdims=True), 3, 4, _kind(node, node.input(0)))


def reduce_mean(node: Node) -> Expr:
    """QLinearReduceMean over the axes that it names."""
    x = floats(node, 0, 1, 2)
    axes = node.axes(node.integers("axes", ()), len(x.shape)) or tuple(range(len(x.shape)))
    out = call("mean", x, axis=axes, keepdims=bool(node.integer("keepdims", 1)))
    return stored(node, out, 3, 4, _kind(node, node.input(0)))


def where(node: Node) -> Expr:
    """QLinearWhere: condition, then two quantised tensors, then scale and zero point of the result."""
    kind = _kind(node, node.input(1))
    x, y = floats(node, 1, 2, 3), floats(node, 4, 5, 6)
    return stored(node, call("where", cast(node.input(0), "bool"), x, y), 7, 8, kind)


def nhwc_qlinear_conv(node: Node) -> Expr:
    """QLinearConv of onnxruntime: as ONNX's, with the channels last where `channels_last` says so."""
    to_last = node.integer("channels_last", 0)
    x = first(node.input(0)) if to_last else node.input(0)
    rest = [node.optional(k) for k in range(1, 9)]
    out = made(qlinear_conv, other(node, x, *rest, **attrs_but(node, "channels_last")))
    return last(out) if to_last else out


def _with_axis(converter: Converter) -> Converter:
    """QuantizeLinear and DequantizeLinear of onnxruntime, which have no axis unless they say so."""

    def convert(node: Node) -> Expr:
        attrs = {"axis": node.integer("axis")} if node.has("axis") else {}
        return made(converter, other(node, node.input(0), node.input(1), node.optional(2), **attrs))

    return convert


def _scaled_product(
    node: Node, operands: tuple[Expr, Expr], zeros: tuple[Expr | None, Expr | None], scale: Expr
) -> Expr:
    """The product of integers less their zero points, as floats times a scale: one value, or one a column."""
    total = made(matmul_integer, other(node, *operands, *zeros))
    node.require(prod(scale.shape) in (1, total.shape[-1]), "a scale must be one value, or one a column",
                 scale=scale.shape, columns=total.shape[-1])  # fmt: skip
    return mul(cast(total, scale.dtype), reshape(scale, () if prod(scale.shape) == 1 else scale.shape[-1:]))


def to_float(node: Node) -> Expr:
    """MatMulIntegerToFloat: the product of integers times both scales, plus a bias."""
    one, many = node.input(2), node.input(3)
    node.require(prod(one.shape) == 1, "the scale of A must be one value", shape=one.shape)
    scale = mul(reshape(one, ()), reshape(many, (prod(many.shape),)))
    zeros = node.optional(4), node.optional(5)
    return _biased(node, _scaled_product(node, (node.input(0), node.input(1)), zeros, scale), 6)


def projected(node: Node, x: Expr, weight: Expr, scale: Expr, zeros: tuple[Expr | None, Expr | None]) -> Expr:
    """A product of integers as floats, for those who add to it."""
    return _scaled_product(node, (x, weight), zeros, scale)


def _biased(node: Node, x: Expr, index: int) -> Expr:
    bias = node.optional(index)
    if bias is None:
        return x
    node.require(bias.shape == x.shape[-1:], "the bias must have one value a column", bias=bias.shape, output=x.shape)
    return add(x, bias)


def dynamic(node: Node) -> Expr:
    """DynamicQuantizeMatMul: A is quantised as DynamicQuantizeLinear does, and multiplied by B in integers."""
    data, scale, zero = dynamic_quantize(other(node, node.input(0), outputs=3))
    many = node.input(2)
    both = mul(scale, reshape(many, (prod(many.shape),)))
    return _biased(node, _scaled_product(node, (data, node.input(1)), (zero, node.optional(3)), both), 4)


def q_gemm(node: Node) -> Expr:
    """QGemm: alpha A' B' + C of integers, as floats, or quantised where the result has a scale."""
    a, b = (node.input(k) for k in (0, 3))
    node.require(len(a.shape) == len(b.shape) == 2, "A and B must be matrices", A=a.shape, B=b.shape)
    a = transpose(a, (1, 0)) if node.integer("transA", 0) else a
    b = transpose(b, (1, 0)) if node.integer("transB", 0) else b
    total = made(matmul_integer, other(node, a, b, node.optional(2), node.optional(5)))
    c, many = node.optional(6), node.input(4)
    total = total if c is None else add(total, narrow(c))
    scale = mul(mul(reshape(node.input(1), ()), reshape(many, (prod(many.shape),))), node.number("alpha", 1.0))
    out = mul(cast(total, scale.dtype), scale)
    if node.optional(7) is None:
        return out
    kind = _kind(node, node.input(0) if node.optional(8) is None else node.input(8))
    return stored(node, out, 7, 8, kind)


def mul_integer(node: Node) -> Expr:
    """MulInteger: the product of two tensors less their zero points, element by element in int32."""
    parts = []
    for at in (0, 2):
        x, zero = cast(node.input(at), "int32"), node.optional(at + 1)
        parts.append(x if zero is None else binary("subtract", x, reshape(cast(zero, "int32"), ())))
    return mul(parts[0], parts[1])


CONVERTERS: Converters = {
    "DequantizeLinear": {1: _with_axis(dequantize)},
    "DynamicQuantizeMatMul": {1: dynamic},
    "MatMulIntegerToFloat": {1: to_float},
    "MulInteger": {1: mul_integer},
    "QGemm": {1: q_gemm},
    "QLinearAdd": {1: _both("add")},
    "QLinearAveragePool": {1: average_pool},
    "QLinearConcat": {1: concat},
    "QLinearConv": {1: nhwc_qlinear_conv},
    "QLinearGlobalAveragePool": {1: global_pool},
    "QLinearLeakyRelu": {1: leaky},
    "QLinearMul": {1: _both("multiply")},
    "QLinearReduceMean": {1: reduce_mean},
    "QLinearSigmoid": {1: sigmoid},
    "QLinearSoftmax": {1: q_softmax},
    "QLinearWhere": {1: where},
    "QuantizeLinear": {1: _with_axis(quantize)},
}
