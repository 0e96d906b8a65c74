"""DynamicQuantizeLSTM: an LSTM whose products are of integers, data and states being quantised as they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from ...ir.nodes import Expr
from ..onnx.emit import call, cast, mul, reshape, sub, transpose
from ..onnx.node import Converters, Node
from ..onnx.quantized import dynamic_quantize
from ..onnx.recurrent import Kind, Layer, lstm_step, recurrent
from ..onnx.select import pick
from .parts import attrs_but, other

KIND = Kind(4, 2, ("Sigmoid", "Tanh", "Tanh"), lstm_step)


@dataclass(frozen=True)
class _OfIntegers(Layer):
    """A layer whose products are sums of integers times the scales of data and weight: (directions, 1, columns)."""

    scales: Mapping[int, Expr] = field(default_factory=dict)

    def product(self, index: int, x: Expr, weight: Expr) -> Expr:
        """Rows of `x`, quantised together, times a weight of int32."""
        data, scale, zero = dynamic_quantize(other(self.node, x, outputs=3))
        total = call("nn.dense", sub(cast(data, "int32"), cast(zero, "int32")), weight, out_dtype="int32")
        factors = pick(self.scales[index], {0: range(self.direction, self.direction + 1)})
        return mul(cast(total, x.dtype), mul(scale, reshape(factors, factors.shape[1:])))


def _weight(node: Node, index: int, zero: int) -> Expr:
    """A weight (directions, columns, 4 * hidden) of integers less its zero points, in the order of LSTM's."""
    w = node.input(index)
    node.require(len(w.shape) == 3, f"input {index} must be (directions, columns, 4 * hidden)", shape=w.shape)
    return transpose(sub(cast(w, "int32"), _spread(node, cast(node.input(zero), "int32"), w)), (0, 2, 1))


def _spread(node: Node, v: Expr, w: Expr) -> Expr:
    """One value a direction, or one a column of gates."""
    count = prod(v.shape)
    law = "scales and zero points must be one a direction, or one a column of gates"
    node.require(count in (w.shape[0], w.shape[0] * w.shape[2]), law, shape=v.shape, weight=w.shape)
    return reshape(v, (w.shape[0], 1, count // w.shape[0]))


def dynamic_lstm(node: Node) -> list[Expr]:
    """DynamicQuantizeLSTM: X of all steps is quantised once, the hidden state before every step."""
    rest = [node.optional(k) for k in range(3, 8)]
    weights = [_weight(node, k, 2 * k + 7) for k in (1, 2)]
    scales = {k: _spread(node, node.input(2 * k + 6), node.input(k)) for k in (1, 2)}
    inner = other(node, node.input(0), *weights, *rest, outputs=3, **attrs_but(node))
    found = recurrent(replace(KIND, layer=partial(_OfIntegers, scales=scales)))(inner)
    inner.refuse_unread(lambda name: False)
    return found


CONVERTERS: Converters = {"DynamicQuantizeLSTM": {1: dynamic_lstm}}
