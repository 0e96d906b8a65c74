"""Normalisations fused with sums: residuals in front of them, embeddings, and those without a mean."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ...ir.nodes import Expr
from ..onnx.emit import add, binary, call, cast, const, mul, reshape, transpose
from ..onnx.node import Converters, Node
from ..onnx.norm import group_norm, layer_norm
from ..onnx.select import gather, narrow
from .activation import group_norm_activation
from .parts import made, other

EPSILON = 1e-12
"""What onnxruntime takes where a fused node does not say it."""


def _residual(node: Node, bias: int) -> Expr:
    """The sum of data, residual and bias; the residual may be one for the whole batch."""
    x, skip, shift = node.input(0), node.input(1), node.optional(bias)
    node.require(skip.shape in (x.shape, (1, *x.shape[1:]), x.shape[1:]), "skip must have the shape of the input",
                 input=x.shape, skip=skip.shape)  # fmt: skip
    total = add(x, skip)
    if shift is None:
        return total
    node.require(shift.shape == x.shape[-1:], "the bias must be a vector", input=x.shape, bias=shift.shape)
    return add(total, shift)


def _with_moments(node: Node, x: Expr, scale: Expr, shift: Expr | None) -> list[Expr]:
    """The result of LayerNormalization over the last axis, then mean and 1 / deviation where they are named."""
    outputs = 3 if any(node.outputs[1:3]) else 1
    epsilon = node.number("epsilon", EPSILON)
    found = layer_norm(other(node, x, scale, shift, outputs=outputs, axis=-1, epsilon=epsilon))
    return [*found, x, x][:3]


def skip_layer_norm(node: Node) -> list[Expr]:
    """SkipLayerNormalization: normalised input + skip + bias; mean, 1 / deviation, and the sum."""
    total = _residual(node, 4)
    return [*_with_moments(node, total, node.input(2), node.optional(3)), total]


def skip_simplified(node: Node) -> list[Expr]:
    """SkipSimplifiedLayerNormalization: as the one before, without mean and shift."""
    total = _residual(node, 3)
    out, inverse = _simplified(node, total, node.input(2), (len(total.shape) - 1,), node.number("epsilon", EPSILON))
    return [out, total, inverse, total]


def simplified(node: Node) -> list[Expr]:
    """SimplifiedLayerNormalization: x / sqrt(mean of squares + epsilon) * scale over the axes from `axis` on."""
    x, scale = node.input(0), node.input(1)
    axis = node.axis(node.integer("axis", -1), len(x.shape))
    stash = node.integer("stash_type", 1)
    node.require(stash == 1, "stash_type must be 1, float32", stash_type=stash)
    return list(_simplified(node, x, scale, tuple(range(axis, len(x.shape))), node.number("epsilon", 1e-5)))


def _simplified(node: Node, x: Expr, scale: Expr, axes: tuple[int, ...], epsilon: float) -> tuple[Expr, Expr]:
    """The result, and what it was multiplied with."""
    node.require(scale.shape == x.shape[axes[0] :], "the scale must have the shape of what is normalised",
                 shape=x.shape, scale=scale.shape)  # fmt: skip
    mean = call("mean", mul(x, x), axis=axes, keepdims=True)
    inverse = call("rsqrt", add(mean, epsilon))
    return mul(mul(x, inverse), cast(scale, x.dtype)), inverse


def embed_layer_norm(node: Node) -> list[Expr]:
    """EmbedLayerNormalization: words, positions and segments summed up and normalised; lengths by the mask; the sum."""
    ids, segments, places = node.input(0), node.optional(1), node.optional(8)
    node.require(len(ids.shape) == 2, "input_ids must be (batch, sequence)", shape=ids.shape)
    node.has("mask_index_type")
    total = _looked_up(node, node.input(2), ids)
    if places is None:
        places = const(np.arange(ids.shape[1])[None], "int32")
    total = add(total, _looked_up(node, node.input(3), places))
    if segments is not None:
        total = add(total, _looked_up(node, node.input(4), segments))
    mask = node.optional(7)
    if mask is None:
        lengths: Expr = const(np.zeros(ids.shape[0]), "int32")
    else:
        seen = cast(binary("not_equal", narrow(mask), 0), "int32")
        lengths = call("sum", seen, axis=(1,), keepdims=False)
    return [_with_moments(node, total, node.input(5), node.input(6))[0], lengths, total]


def _looked_up(node: Node, table: Expr, ids: Expr) -> Expr:
    return made(gather, other(node, table, ids, axis=0))


def channel_norm(node: Node) -> Expr:
    """GroupNorm: with the channels last or first, then x * sigmoid(x) where that is asked for."""
    x, last = node.input(0), node.integer("channels_last", 1)
    rank = len(x.shape)
    inside = transpose(x, (0, rank - 1, *range(1, rank - 1))) if last else x
    given = [cast(node.input(k), x.dtype) for k in (1, 2)]
    attrs: dict[str, Any] = {"num_groups": node.integer("groups"), "epsilon": node.number("epsilon", 1e-5)}
    scale, shift = (reshape(v, (prod(v.shape),)) for v in given)
    new = other(node, inside, scale, shift, **attrs)
    out = group_norm_activation(node, group_norm(_at_opset(new, 21)))
    return transpose(out, (0, *range(2, rank), 1)) if last else out


def _at_opset(node: Node, opset: int) -> Node:
    """The node as of another version of the default domain."""
    return Node(node.op, node.name, opset, node.inputs, node.outputs, node.attrs, node.parameters, node.asked)


CONVERTERS: Converters = {
    "EmbedLayerNormalization": {1: embed_layer_norm},
    "GroupNorm": {1: channel_norm},
    "LayerNormalization": {1: layer_norm},
    "SimplifiedLayerNormalization": {1: simplified},
    "SkipLayerNormalization": {1: skip_layer_norm},
    "SkipSimplifiedLayerNormalization": {1: skip_simplified},
}
