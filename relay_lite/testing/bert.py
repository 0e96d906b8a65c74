"""BERT: a stack of encoder layers, each attention then a feed-forward net, normalised after each sum (1810.04805).

The activations stay a matrix `[batch * sequence, hidden]` from end to end; attention alone views them by head.  By
default the network starts at hidden states; with a vocabulary it starts at token ids and owns the embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import var
from ..ir.nodes import Expr, Function, const
from ..ir.visit import free_vars
from ..op import nn
from ..op.binary import add, multiply
from ..op.elementwise import erf
from ..op.pick import take
from ..op.shape import reshape, transpose
from . import layers
from .init import Workload, create_workload

EPSILON = 1e-12
INPUTS = ("data", "segments", "mask")


@dataclass(frozen=True)
class Shape:
    """The extents of the hidden states, and the number of heads that share them."""

    batch: int
    seq: int
    hidden: int
    heads: int

    def by_head(self, data: Expr, *, transposed: bool = False) -> Expr:
        """`[batch * seq, hidden]` as `[batch * heads, seq, width]`, or its last two axes the other way round."""
        width = self.hidden // self.heads
        body = reshape(data, newshape=(self.batch, self.seq, self.heads, width))
        body = transpose(body, axes=(0, 2, 3, 1) if transposed else (0, 2, 1, 3))
        last = (width, self.seq) if transposed else (self.seq, width)
        return reshape(body, newshape=(self.batch * self.heads, *last))


def get_net(
    batch_size: int = 1,
    seq_len: int = 128,
    num_layers: int = 12,
    hidden: int = 768,
    num_heads: int = 12,
    ffn: int = 3072,
    vocab_size: int | None = None,
    dtype: str = "float32",
) -> Function:
    """The encoder as a function of its inputs and parameters; the result is `[batch_size, seq_len, hidden]`.

    Without `vocab_size` the one input is `data`, the hidden states `[batch_size, seq_len, hidden]`.  With it (30522 in
    the published model) the inputs are `data`, token ids, `segments`, 0 or 1, both int32 `[batch_size, seq_len]`, and
    `mask` `[batch_size, seq_len]` of `dtype`, which is added to the scores: 0 for a token, a large negative number for
    padding.  Raises GraphError unless `num_heads` divides `hidden`.
    """
    law = "the number of heads divides the hidden size"
    require(hidden % num_heads == 0, GraphError, "bert", law, num_heads=num_heads, hidden=hidden)
    shape = Shape(batch_size, seq_len, hidden, num_heads)
    body: Expr
    mask = None
    if vocab_size is None:
        data = var("data", shape=(batch_size, seq_len, hidden), dtype=dtype)
        body = reshape(data, newshape=(batch_size * seq_len, hidden))
    else:
        body = _embeddings(shape, vocab_size, dtype)
        mask = var("mask", shape=(batch_size, seq_len), dtype=dtype)
    for index in range(num_layers):
        body = encoder_layer(body, f"layer{index}", shape, ffn, mask)
    body = reshape(body, newshape=(batch_size, seq_len, hidden))
    return Function(free_vars(body), body)


def get_workload(
    batch_size: int = 1,
    seq_len: int = 128,
    num_layers: int = 12,
    hidden: int = 768,
    num_heads: int = 12,
    ffn: int = 3072,
    vocab_size: int | None = None,
    dtype: str = "float32",
) -> Workload:
    """The network of `get_net` as a module, and its parameters."""
    net = get_net(batch_size, seq_len, num_layers, hidden, num_heads, ffn, vocab_size, dtype)
    return create_workload(net, inputs=INPUTS)


def encoder_layer(data: Expr, name: str, shape: Shape, ffn: int, mask: Expr | None) -> Expr:
    """One layer: `[batch * seq, hidden]` in and out."""
    attended = layers.dense_add_bias(_attention(data, name, shape, mask), shape.hidden, f"{name}_output")
    data = layers.layer_norm(add(data, attended), f"{name}_attention_norm", EPSILON)
    wide = gelu(layers.dense_add_bias(data, ffn, f"{name}_ffn_in"))
    narrow = layers.dense_add_bias(wide, shape.hidden, f"{name}_ffn_out")
    return layers.layer_norm(add(data, narrow), f"{name}_ffn_norm", EPSILON)


def gelu(data: Expr) -> Expr:
    """`x * (1 + erf(x / sqrt(2))) / 2`."""
    dtype = data.dtype
    inner = erf(multiply(data, const(sqrt(0.5), dtype)))
    half = multiply(data, const(0.5, dtype))
    return multiply(half, add(inner, const(1.0, dtype)))


def _attention(data: Expr, name: str, shape: Shape, mask: Expr | None) -> Expr:
    """`softmax(q k' / sqrt(width) + mask) v` of every head, side by side: `[batch * seq, hidden]`."""
    query, key, value = (
        layers.dense_add_bias(data, shape.hidden, f"{name}_{part}") for part in ("query", "key", "value")
    )
    width = shape.hidden // shape.heads
    scores: Expr = nn.batch_matmul(shape.by_head(query), shape.by_head(key))
    scores = multiply(scores, const(1.0 / sqrt(width), data.dtype))
    if mask is not None:
        scores = _masked(scores, shape, mask)
    weights = nn.softmax(scores, axis=-1)
    mixed = nn.batch_matmul(weights, shape.by_head(value, transposed=True))
    mixed = reshape(mixed, newshape=(shape.batch, shape.heads, shape.seq, width))
    mixed = transpose(mixed, axes=(0, 2, 1, 3))
    return reshape(mixed, newshape=(shape.batch * shape.seq, shape.hidden))


def _masked(scores: Expr, shape: Shape, mask: Expr) -> Expr:
    """The scores `[batch * heads, seq, seq]` plus the mask of the sequence they belong to, over the keys."""
    by_batch = reshape(scores, newshape=(shape.batch, shape.heads, shape.seq, shape.seq))
    total = add(by_batch, reshape(mask, newshape=(shape.batch, 1, 1, shape.seq)))
    return reshape(total, newshape=(shape.batch * shape.heads, shape.seq, shape.seq))


def _embeddings(shape: Shape, vocab_size: int, dtype: str) -> Expr:
    """Token, position and segment embeddings, added and normalised: `[batch * seq, hidden]`."""
    ids, segments = (var(name, shape=(shape.batch, shape.seq), dtype="int32") for name in ("data", "segments"))
    flat = (shape.batch * shape.seq,)
    positions = const(np.tile(np.arange(shape.seq), shape.batch), "int32")
    body = _looked_up("token", vocab_size, shape.hidden, reshape(ids, newshape=flat), dtype)
    body = add(body, _looked_up("position", shape.seq, shape.hidden, positions, dtype))
    body = add(body, _looked_up("segment", 2, shape.hidden, reshape(segments, newshape=flat), dtype))
    return layers.layer_norm(body, "embedding_norm", EPSILON)


def _looked_up(name: str, rows: int, hidden: int, indices: Expr, dtype: str) -> Expr:
    table = var(f"{name}_weight", shape=(rows, hidden), dtype=dtype)
    return take(table, indices, axis=0)
