"""Activation functions and softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...ir.nodes import Expr
from ..onnx.activation import less_one, soft_plus
from ..onnx.elementwise import clip_to
from ..onnx.emit import add, binary, call, const, div, minimum, mul, reshape
from .node import Aten, Converter, Converters


def simple(meaning: Callable[[Expr], Expr]) -> Converter:
    """A function of one tensor."""
    return lambda node: meaning(node.tensor("self"))


def elu(node: Aten) -> Expr:
    """elu: scale x where positive, else scale alpha (exp(input_scale x) - 1)."""
    x, alpha, scale = node.tensor("self"), node.number("alpha", 1), node.number("scale", 1)
    below = less_one(mul(minimum(x, 0), node.number("input_scale", 1)))
    return add(mul(call("nn.relu", x), scale), mul(below, alpha * scale))


def gelu(node: Aten) -> Expr:
    """gelu, exact by erf or approximated by tanh."""
    return node.onnx("Gelu", node.tensor("self"), approximate=node.argument("approximate", "none"))[0]


def softplus(node: Aten) -> Expr:
    """softplus: log(1 + exp(beta x)) / beta, and x beyond the threshold, where they are equal in float32."""
    x, beta = node.tensor("self"), node.number("beta", 1)
    node.require(beta != 0, "beta must not be 0", beta=beta)
    scaled = mul(x, beta)
    smooth = div(soft_plus(scaled), const(beta, x.dtype))
    return call("where", binary("greater", scaled, node.number("threshold", 20)), x, smooth)


def prelu(node: Aten) -> Expr:
    """prelu: x where positive, else slope x; one slope a channel."""
    x, slope = node.tensor("self"), node.tensor("weight")
    rank = len(x.shape)
    if len(slope.shape) == 1 and rank > 1:
        slope = reshape(slope, (1, slope.shape[0], *(1,) * (rank - 2)))
    return node.onnx("PRelu", x, slope)[0]


def hard_sigmoid(x: Expr) -> Expr:
    """(x + 3) / 6 within [0, 1]."""
    return call("clip", mul(add(x, 3), 1 / 6), a_min=0.0, a_max=1.0)


def softmax(name: str, safe: bool = False) -> Converter:
    """softmax or its logarithm along `dim`; a safe one gives zeros where every element is minus infinity."""

    def convert(node: Aten) -> Expr:
        x = node.operand("self", node.wide)
        node.argument("dtype"), node.argument("half_to_float")
        axis = node.axis(node.integer("dim"), len(x.shape))
        rows = x if x.shape else reshape(x, (1,))
        out = reshape(call(name, rows, axis=axis), x.shape)
        if not safe:
            return out
        best = call("max", rows, axis=(axis,), keepdims=True)
        return call("where", binary("equal", best, -np.inf), const(0, x.dtype), out)

    return convert


CONVERTERS: Converters = {
    "aten.relu": simple(lambda x: call("nn.relu", x)),
    "aten.relu6": simple(lambda x: clip_to(x, 0, 6)),
    "aten.silu": simple(lambda x: mul(x, call("sigmoid", x))),
    "aten.mish": simple(lambda x: mul(x, call("tanh", soft_plus(x)))),
    "aten.hardsigmoid": simple(hard_sigmoid),
    "aten.hardswish": simple(lambda x: mul(x, hard_sigmoid(x))),
    "aten.hardtanh": lambda node: clip_to(node.tensor("self"), node.number("min_val", -1), node.number("max_val", 1)),
    "aten.leaky_relu": lambda node: call(
        "nn.leaky_relu", node.tensor("self"), alpha=node.number("negative_slope", 0.01)
    ),
    "aten.elu": elu,
    "aten.gelu": gelu,
    "aten.softplus": softplus,
    "aten.prelu": prelu,
    "aten._prelu_kernel": prelu,
    "aten._softmax": softmax("nn.softmax"),
    "aten._log_softmax": softmax("nn.log_softmax"),
    "aten._safe_softmax": softmax("nn.softmax", safe=True),
}
