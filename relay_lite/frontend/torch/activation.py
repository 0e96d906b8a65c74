"""Activation functions and softmax."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.nodes import Expr
from ..onnx.elementwise import clip_to
from ..onnx.emit import add, call, minimum, mul, reshape, sub
from .node import Aten, Converter, Converters


def simple(meaning: Callable[[Expr], Expr]) -> Converter:
    """A function of one tensor."""
    return lambda node: meaning(node.tensor("self"))


def elu(node: Aten) -> Expr:
    """elu: scale x where positive, else scale alpha (exp(input_scale x) - 1)."""
    x, alpha, scale = node.tensor("self"), node.number("alpha", 1), node.number("scale", 1)
    below = sub(call("exp", mul(minimum(x, 0), node.number("input_scale", 1))), 1)
    return add(mul(call("nn.relu", x), scale), mul(below, alpha * scale))


def gelu(node: Aten) -> Expr:
    """gelu, exact by erf or approximated by tanh."""
    return node.onnx("Gelu", node.tensor("self"), approximate=node.argument("approximate", "none"))[0]


def softmax(name: str) -> Converter:
    """softmax or its logarithm along `dim`."""

    def convert(node: Aten) -> Expr:
        x = node.operand("self", node.wide)
        node.argument("dtype"), node.argument("half_to_float")
        axis = node.axis(node.integer("dim"), len(x.shape))
        rows = x if x.shape else reshape(x, (1,))
        return reshape(call(name, rows, axis=axis), x.shape)

    return convert


CONVERTERS: Converters = {
    "aten.relu": simple(lambda x: call("nn.relu", x)),
    "aten.hardtanh": lambda node: clip_to(node.tensor("self"), node.number("min_val", -1), node.number("max_val", 1)),
    "aten.leaky_relu": lambda node: call(
        "nn.leaky_relu", node.tensor("self"), alpha=node.number("negative_slope", 0.01)
    ),
    "aten.elu": elu,
    "aten.gelu": gelu,
    "aten._softmax": softmax("nn.softmax"),
    "aten._log_softmax": softmax("nn.log_softmax"),
}
