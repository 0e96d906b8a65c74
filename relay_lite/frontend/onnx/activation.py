"""Activation functions, and softmax in its two meanings."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from ...ir.nodes import Expr
from .elementwise import unary
from .emit import add, binary, call, const, div, minimum, mul, reshape, sub
from .node import Converter, Converters, Node


def leaky_relu(node: Node) -> Expr:
    """LeakyRelu: x where positive, else alpha x."""
    return call("nn.leaky_relu", node.input(0), alpha=node.number("alpha", 0.01))


def prelu(node: Node) -> Expr:
    """PRelu: x where it is not negative, else slope x; the slope broadcasts to x, and may be infinite."""
    x, slope, known = node.input(0), node.input(1), node.known(1)
    rank = len(x.shape)
    padded = (1,) * (rank - len(slope.shape)) + slope.shape
    finite = known is not None and np.isfinite(known).all()
    if finite and rank >= 2 and prod(padded) == padded[1] == x.shape[1]:
        return call("nn.prelu", x, reshape(slope, (padded[1],)), axis=1)
    return call("where", binary("less", x, 0), mul(slope, x), x)


def elu(node: Node) -> Expr:
    """Elu: x where positive, else alpha (exp(x) - 1)."""
    return scaled_elu(node.input(0), node.number("alpha", 1.0))


def selu(node: Node) -> Expr:
    """Selu: gamma times elu."""
    alpha = node.number("alpha", 1.6732632423543772)
    return mul(scaled_elu(node.input(0), alpha), node.number("gamma", 1.0507009873554805))


def celu(node: Node) -> Expr:
    """Celu: x where positive, else alpha (exp(x / alpha) - 1)."""
    x, alpha = node.input(0), node.number("alpha", 1.0)
    node.require(alpha > 0, "alpha must be positive", alpha=alpha)
    return _elu_of(x, div(minimum(x, 0), const(alpha, x.dtype)), alpha)


def scaled_elu(x: Expr, alpha: float) -> Expr:
    """x where positive, else alpha (exp(x) - 1)."""
    return _elu_of(x, minimum(x, 0), alpha)


def _elu_of(x: Expr, low: Expr, alpha: float) -> Expr:
    return add(call("nn.relu", x), mul(less_one(low), alpha))


def less_one(x: Expr) -> Expr:
    """exp(x) - 1 of what is not positive, as 2 t / (1 - t) of t = tanh(x / 2): near 0 nothing cancels."""
    t = call("tanh", mul(x, 0.5))
    return div(mul(t, 2), sub(1, t))


def hard_sigmoid(node: Node) -> Expr:
    """HardSigmoid: alpha x + beta, moved into [0, 1]."""
    return _hard_line(node.input(0), node.number("alpha", 0.2), node.number("beta", 0.5))


def hard_swish(node: Node) -> Expr:
    """HardSwish: x times x / 6 + 1 / 2 moved into [0, 1], with all digits of 1 / 6 (ONNX's body has float32's)."""
    return mul(node.input(0), _hard_line(node.input(0), 1 / 6, 0.5))


def _hard_line(x: Expr, alpha: float, beta: float) -> Expr:
    return call("clip", add(mul(x, alpha), beta), a_min=0.0, a_max=1.0)


def softplus(node: Node) -> Expr:
    """Softplus: log(1 + exp(x))."""
    return soft_plus(node.input(0))


def soft_plus(x: Expr) -> Expr:
    """log(1 + exp(x)); no exponential of a positive number is taken, so nothing overflows."""
    return add(call("nn.relu", x), log_of_more(call("exp", call("negative", call("abs", x)))))


def log_of_more(x: Expr) -> Expr:
    """log(1 + x) of what is from 0 to 1: what rounding took from 1 + x is put back by a quotient."""
    more = add(x, 1)
    left = sub(more, 1)
    small = binary("equal", left, 0)
    kept = call("where", small, const(1, x.dtype), left)
    return call("where", small, x, mul(call("log", more), binary("divide", x, kept)))


def soft_sign(x: Expr) -> Expr:
    """x / (1 + |x|)."""
    return div(x, add(call("abs", x), 1))


def gelu(node: Node) -> Expr:
    """Gelu: x times the normal distribution function, exact by erf or approximated by tanh."""
    x, form = node.input(0), node.text("approximate", "none")
    node.require(form in ("none", "tanh"), "approximate must be none or tanh", approximate=form)
    if form == "none":
        inside = call("erf", mul(x, 1 / sqrt(2)))
    else:
        cubic = add(x, mul(mul(mul(x, x), x), 0.044715))
        inside = call("tanh", mul(cubic, sqrt(0.6366197723675814)))
    return mul(mul(x, 0.5), add(inside, 1))


def softmax_flat(name: str) -> Converter:
    """Before opset 13 the axes from `axis` on are one, and the default axis is 1."""

    def convert(node: Node) -> Expr:
        x = node.input(0)
        rank = len(x.shape)
        axis = rank if node.integer("axis", 1) == rank else node.axis(node.integer("axis", 1), rank)
        columns = prod(x.shape[axis:])
        if axis < rank and columns == x.shape[axis]:
            return call(name, x, axis=axis)
        return reshape(call(name, reshape(x, (prod(x.shape[:axis]), columns)), axis=1), x.shape)

    return convert


def softmax(name: str) -> Converter:
    """From opset 13 on over one axis, by default the last."""

    def convert(node: Node) -> Expr:
        x = node.input(0)
        return call(name, x, axis=node.axis(node.integer("axis", -1), len(x.shape)))

    return convert


CONVERTERS: Converters = {
    "Relu": {6: unary("nn.relu")},
    "LeakyRelu": {6: leaky_relu},
    "PRelu": {7: prelu},
    "Elu": {6: elu},
    "Selu": {6: selu},
    "Celu": {12: celu},
    "Sigmoid": {6: unary("sigmoid")},
    "HardSigmoid": {6: hard_sigmoid},
    "HardSwish": {14: hard_swish},
    "Tanh": {6: unary("tanh")},
    "Softplus": {1: softplus},
    "Gelu": {20: gelu},
    "Softmax": {1: softmax_flat("nn.softmax"), 13: softmax("nn.softmax")},
    "LogSoftmax": {1: softmax_flat("nn.log_softmax"), 13: softmax("nn.log_softmax")},
}
