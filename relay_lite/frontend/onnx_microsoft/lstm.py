"""DynamicQuantizeLSTM: an LSTM whose products are of integers, data and states being quantised as they come."""

from __future__ import annotations

from dataclasses import fields, replace
from math import prod

from ...ir.nodes import Expr
from ..onnx.emit import cast, mul, reshape, sub, transpose
from ..onnx.node import Converters, Node
from ..onnx.quantized import dynamic_quantize
from ..onnx.recurrent import Kind, Layer, State, lstm_step, recurrent
from .parts import attrs_but, other


def _rounded(node: Node, x: Expr) -> Expr:
    """`x` as its 8 bits mean it: what a product of integers reads, times its scale."""
    data, scale, zero = dynamic_quantize(other(node, x, outputs=3))
    return mul(cast(sub(cast(data, "int32"), cast(zero, "int32")), scale.dtype), scale)


class _Rounded(Layer):
    """A layer whose product with the hidden state reads its 8 bits."""

    def from_state(self, h: Expr) -> Expr:
        """What the hidden state adds to all gates."""
        return super().from_state(_rounded(self.node, h))


def _step(layer: Layer, x: Expr, state: State) -> State:
    return lstm_step(_Rounded(**{f.name: getattr(layer, f.name) for f in fields(layer)}), x, state)


KIND = replace(Kind(4, 2, ("Sigmoid", "Tanh", "Tanh"), lstm_step), step=_step)


def _weight(node: Node, index: int, scale: int) -> Expr:
    """A weight (directions, columns, 4 * hidden) of integers as floats in the order of LSTM's, which is turned."""
    w = node.input(index)
    node.require(len(w.shape) == 3, f"input {index} must be (directions, columns, 4 * hidden)", shape=w.shape)
    factors, zero = (_spread(node, node.input(scale + k), w) for k in range(2))
    return transpose(mul(cast(sub(cast(w, "int32"), cast(zero, "int32")), factors.dtype), factors), (0, 2, 1))


def _spread(node: Node, v: Expr, w: Expr) -> Expr:
    """One value a direction, or one a column of gates."""
    count = prod(v.shape)
    law = "scales and zero points must be one a direction, or one a column of gates"
    node.require(count in (w.shape[0], w.shape[0] * w.shape[2]), law, shape=v.shape, weight=w.shape)
    return reshape(v, (w.shape[0], 1, count // w.shape[0]))


def dynamic_lstm(node: Node) -> list[Expr]:
    """DynamicQuantizeLSTM: X of all steps is quantised once, the hidden state before every step."""
    x = _rounded(node, node.input(0))
    rest = [node.optional(k) for k in range(3, 8)]
    inner = other(node, x, _weight(node, 1, 8), _weight(node, 2, 10), *rest, outputs=3, **attrs_but(node))
    found = recurrent(KIND)(inner)
    inner.refuse_unread(lambda name: False)
    return found


CONVERTERS: Converters = {"DynamicQuantizeLSTM": {1: dynamic_lstm}}
