"""Operators that onnxruntime had before ONNX did, or for other dtypes, which mean what ONNX's mean."""

from __future__ import annotations

from ...ir.nodes import Expr
from ..onnx.emit import reshape
from ..onnx.node import Converters, Node
from ..onnx.quantized import matmul_integer
from ..onnx.scatter import gather_nd
from ..onnx.select import pad_inputs, triangle
from .parts import made, other


def expand_dims(node: Node) -> Expr:
    """ExpandDims: a new axis of extent 1, where the second input says."""
    x, axis = node.input(0), int(node.scalar(1))
    at = node.axis(axis, len(x.shape) + 1)
    return reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def matmul_of_16_bits(node: Node) -> Expr:
    """MatMulInteger16: a product of 16-bit integers in int32."""
    return made(matmul_integer, other(node, node.input(0), node.input(1)))


CONVERTERS: Converters = {
    "ExpandDims": {1: expand_dims},
    "GatherND": {1: gather_nd},
    "MatMulInteger16": {1: matmul_of_16_bits},
    "Pad": {1: pad_inputs},
    "Trilu": {1: triangle},
}
