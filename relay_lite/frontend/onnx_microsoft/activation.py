"""Gelus with biases, softmax with a bias, and the activations that are fused behind products and convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from ...ir.nodes import Expr
from ..onnx.activation import gelu, hard_sigmoid, leaky_relu, softmax_flat
from ..onnx.emit import add, call, mul
from ..onnx.node import Converters, Node
from ..onnx.select import pick
from .parts import made, other

QUICK = 1.702
"""The factor with which a sigmoid is nearest to the normal distribution function."""


def _with_bias(node: Node, bias: Expr | None) -> Expr:
    x = node.input(0)
    if bias is None:
        return x
    law = "the bias must have one value an index of the last axis"
    node.require(bias.shape == x.shape[-1:], law, data=x.shape, bias=bias.shape)
    return add(x, bias)


def bias_gelu(node: Node) -> Expr:
    """BiasGelu: gelu(A + B), exact."""
    return made(gelu, other(node, _with_bias(node, node.input(1))))


def fast_gelu(node: Node) -> Expr:
    """FastGelu: gelu(X + bias), approximated by tanh; the bias may be absent."""
    return made(gelu, other(node, _with_bias(node, node.optional(1)), approximate="tanh"))


def quick_gelu(node: Node) -> Expr:
    """QuickGelu: x * sigmoid(alpha x)."""
    x = node.input(0)
    return mul(x, call("sigmoid", mul(x, node.number("alpha", QUICK))))


def bias_split_gelu(node: Node) -> Expr:
    """BiasSplitGelu: of X + bias the left half of the last axis times gelu of the right half."""
    x = _with_bias(node, node.input(1))
    half, last = x.shape[-1] // 2, len(x.shape) - 1
    node.require(x.shape[-1] == 2 * half, "the last axis must have two halves", shape=x.shape)
    left, right = (pick(x, {last: range(k * half, (k + 1) * half)}) for k in range(2))
    return mul(left, made(gelu, other(node, right)))


def bias_add(node: Node) -> Expr:
    """BiasAdd: X + bias + skip."""
    return add(_with_bias(node, node.input(1)), node.input(2))


def bias_softmax(node: Node) -> Expr:
    """BiasSoftmax: softmax of data + bias, in which the axes from `axis` on are one."""
    x, bias, axis = node.input(0), node.input(1), node.integer("axis", 1)
    node.require(node.integer("is_inner_broadcast") in (0, 1), "is_inner_broadcast must be 0 or 1")
    rank = len(x.shape)
    fits = len(bias.shape) <= rank and all(d in (1, n) for d, n in zip(bias.shape[::-1], x.shape[::-1], strict=False))
    node.require(fits, "the bias must broadcast to the data", data=x.shape, bias=bias.shape)
    return made(softmax_flat("nn.softmax"), other(node, add(x, bias), axis=node.axis(axis, rank)))


def _clip(node: Node, x: Expr, params: Sequence[float]) -> Expr:
    low, high = params if params else (-inf, inf)
    node.require(not np.isnan([low, high]).any(), "a clip needs two numbers", params=tuple(params))
    return call("clip", x, a_min=low, a_max=high)


def _named(names: Sequence[str], params: Sequence[float]) -> dict[str, Any]:
    """Parameters as attributes; those that are left out have their defaults."""
    return dict(zip(names, params, strict=False))


def _leaky(node: Node, x: Expr, params: Sequence[float]) -> Expr:
    return made(leaky_relu, other(node, x, **_named(("alpha",), params)))


def _hard(node: Node, x: Expr, params: Sequence[float]) -> Expr:
    return made(hard_sigmoid, other(node, x, **_named(("alpha", "beta"), params)))


FUSED: Mapping[str, tuple[int, Callable[[Node, Expr, Sequence[float]], Expr]]] = {
    "Relu": (0, lambda _, x, __: call("nn.relu", x)),
    "Sigmoid": (0, lambda _, x, __: call("sigmoid", x)),
    "Tanh": (0, lambda _, x, __: call("tanh", x)),
    "LeakyRelu": (1, _leaky),
    "HardSigmoid": (2, _hard),
    "Clip": (2, _clip),
}
"""Activations that are fused: how many parameters each may have, and what it is."""


def activated(node: Node, x: Expr, params: Sequence[float]) -> Expr:
    """The activation that the attribute names, with its parameters; none where it is absent."""
    name = node.text("activation", "")
    if not name:
        return x
    node.require(name in FUSED, f"activations are {', '.join(FUSED)}", activation=name)
    count, function = FUSED[name]
    node.require(len(params) in (0, count), f"activation {name} has {count} parameters", got=tuple(params))
    return function(node, x, params)


def group_norm_activation(node: Node, x: Expr) -> Expr:
    """Nothing, or x * sigmoid(x), by the number of the attribute `activation`."""
    kind = node.integer("activation")
    node.require(kind in (0, 1), "activation must be 0 or 1", activation=kind)
    return mul(x, call("sigmoid", x)) if kind else x


CONVERTERS: Converters = {
    "BiasAdd": {1: bias_add},
    "BiasGelu": {1: bias_gelu},
    "BiasSoftmax": {1: bias_softmax},
    "BiasSplitGelu": {1: bias_split_gelu},
    "FastGelu": {1: fast_gelu},
    "Gelu": {1: gelu},
    "QuickGelu": {1: quick_gelu},
}
