"""Losses as networks in training are exported with them."""

from __future__ import annotations

from ...ir.nodes import Expr
from .emit import binary, call, cast, const, div, mul
from .node import Converters, Node
from .select import narrow

REDUCTIONS = ("none", "mean", "sum")


def negative_log_likelihood(node: Node) -> Expr:
    """NegativeLogLikelihoodLoss: minus the log probability of the target class, weighted by class."""
    return _loss(node, node.input(0))


def softmax_cross_entropy(node: Node) -> list[Expr]:
    """SoftmaxCrossEntropyLoss: the same of the softmax of scores; the second output is its logarithm."""
    logarithm = call("nn.log_softmax", node.input(0), axis=1)
    return [_loss(node, logarithm), logarithm]


def _loss(node: Node, x: Expr) -> Expr:
    """The loss of log probabilities (N, C, ...) for targets (N, ...); a target that is ignored weighs nothing."""
    target, weight = narrow(node.input(1)), node.optional(2)
    law = "a target class for every vector of log probabilities is needed"
    node.require(len(x.shape) >= 2 and target.shape == x.shape[:1] + x.shape[2:], law, x=x.shape, target=target.shape)
    reduction = node.text("reduction", "mean")
    node.require(reduction in REDUCTIONS, f"reduction must be one of {', '.join(REDUCTIONS)}", reduction=reduction)
    weights, target = _weights(node, weight, target, x.dtype)
    picked = call("squeeze", call("gather", x, call("expand_dims", target, axis=1), axis=1), axis=(1,))
    loss = mul(call("negative", picked), weights)
    if reduction == "none":
        return loss
    axes = tuple(range(len(loss.shape)))
    total = call("sum", loss, axis=axes, keepdims=False)
    return total if reduction == "sum" else div(total, call("sum", weights, axis=axes, keepdims=False))


def _weights(node: Node, weight: Expr | None, target: Expr, dtype: str) -> tuple[Expr, Expr]:
    """What every target weighs, and the targets with a class in place of the one that is ignored."""
    kept = None
    if node.has("ignore_index"):
        kept = binary("not_equal", target, node.integer("ignore_index"))
        target = call("where", kept, target, const(0, "int32"))
    if weight is not None:
        weights = call("take", weight, target, axis=0)
        return (weights if kept is None else mul(weights, cast(kept, dtype))), target
    every = cast(binary("equal", target, target) if kept is None else kept, dtype)
    return every, target


CONVERTERS: Converters = {
    "NegativeLogLikelihoodLoss": {12: negative_log_likelihood},
    "SoftmaxCrossEntropyLoss": {12: softmax_cross_entropy},
}
