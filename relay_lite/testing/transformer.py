"""What transformers have in common: heads, attention, feed-forward nets (Vaswani et al., 2017, 1706.03762).

The activations stay a matrix `[batch * seq, hidden]` from end to end; attention alone views them by head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Expr, const
from ..op import nn
from ..op.binary import add, multiply
from ..op.pick import strided_slice
from ..op.shape import reshape, transpose
from . import layers
from .activations import gelu

Unary = Callable[[Expr], Expr]
UNSEEN = -3e4
"""A number of every dtype of floats whose exponential is 0 in all of them."""


@dataclass(frozen=True)
class HiddenShape:
    """The extents of the hidden states, and the number of heads that share them.

    Raises GraphError unless `heads` divides `hidden`.
    """

    batch: int
    seq: int
    hidden: int
    heads: int

    def __post_init__(self) -> None:
        law = "the number of heads divides the hidden size"
        require(self.hidden % self.heads == 0, GraphError, "attention", law, heads=self.heads, hidden=self.hidden)

    @property
    def width(self) -> int:
        """Of one head."""
        return self.hidden // self.heads

    def by_head(self, data: Expr, *, transposed: bool = False) -> Expr:
        """`[batch * seq, hidden]` as `[batch * heads, seq, width]`, or its last two axes the other way round."""
        body = reshape(data, newshape=(self.batch, self.seq, self.heads, self.width))
        body = transpose(body, axes=(0, 2, 3, 1) if transposed else (0, 2, 1, 3))
        last = (self.width, self.seq) if transposed else (self.seq, self.width)
        return reshape(body, newshape=(self.batch * self.heads, *last))

    def side_by_side(self, data: Expr) -> Expr:
        """`[batch * heads, seq, width]` as `[batch * seq, hidden]`."""
        body = reshape(data, newshape=(self.batch, self.heads, self.seq, self.width))
        body = transpose(body, axes=(0, 2, 1, 3))
        return reshape(body, newshape=(self.batch * self.seq, self.hidden))


def attention(query: Expr, key: Expr, value: Expr, shape: HiddenShape, bias: Expr | None = None) -> Expr:
    """`softmax(q k' / sqrt(width) + bias) v` of every head; all are `[batch * seq, hidden]`.

    `bias` is `[1 or batch, 1, seq or 1, seq]`.
    """
    return mixed(shape.by_head(query), shape.by_head(key), shape.by_head(value, transposed=True), shape, bias)


def mixed(query: Expr, key: Expr, value: Expr, shape: HiddenShape, bias: Expr | None = None) -> Expr:
    """`attention` of what is by head already: `query` and `key` `[batch * heads, seq, width]`, `value` transposed."""
    scores: Expr = nn.batch_matmul(query, key)
    scores = multiply(scores, const(1.0 / sqrt(shape.width), scores.dtype))
    if bias is not None:
        scores = _biased(scores, shape, bias)
    return shape.side_by_side(nn.batch_matmul(nn.softmax(scores, axis=-1), value))


def _biased(scores: Expr, shape: HiddenShape, bias: Expr) -> Expr:
    """The scores `[batch * heads, seq, seq]` plus a bias, which is added in their own shape where it fits that."""
    sequences, _, *last = bias.shape
    if sequences in (1, scores.shape[0]):
        return add(scores, reshape(bias, newshape=(sequences, *last)))
    apart = reshape(scores, newshape=(shape.batch, shape.heads, shape.seq, shape.seq))
    return reshape(add(apart, bias), newshape=scores.shape)


def causal_mask(seq: int, dtype: str) -> Expr:
    """What is added to scores so that no token sees a later one: `[1, 1, seq, seq]`, 0 or `UNSEEN`."""
    return const(np.triu(np.full((1, 1, seq, seq), UNSEEN), 1), dtype)


def self_attention(data: Expr, name: str, shape: HiddenShape, bias: Expr | None = None) -> Expr:
    """Attention of a matrix to itself: one product makes queries, keys and values, another one the result."""
    packed = layers.dense_add_bias(data, 3 * shape.hidden, f"{name}_qkv")
    query, key, value = [
        strided_slice(packed, (k * shape.hidden,), ((k + 1) * shape.hidden,), axes=(1,)) for k in range(3)
    ]
    return layers.dense_add_bias(attention(query, key, value, shape, bias), shape.hidden, f"{name}_output")


def feed_forward(data: Expr, name: str, width: int, activation: Unary = gelu) -> Expr:
    """Two dense layers with an activation between them, `width` units wide."""
    wide = activation(layers.dense_add_bias(data, width, f"{name}_ffn_in"))
    return layers.dense_add_bias(wide, data.shape[-1], f"{name}_ffn_out")


def pre_norm_layer(
    data: Expr, name: str, attend: Unary, width: int, epsilon: float = 1e-5, activation: Unary = gelu
) -> Expr:
    """`x + attend(norm(x))`, then the same with a feed-forward net; `[rows, hidden]` in and out."""
    data = add(data, attend(layers.layer_norm(data, f"{name}_attention_norm", epsilon)))
    normed = layers.layer_norm(data, f"{name}_ffn_norm", epsilon)
    return add(data, feed_forward(normed, name, width, activation))
