"""BERT: a stack of encoder layers, each attention then a feed-forward net, normalised after each sum (1810.04805).

By default the network starts at hidden states; with a vocabulary it starts at token ids and owns the embeddings.
"""

from __future__ import annotations

import numpy as np

from ..ir.make import var
from ..ir.nodes import Expr, Function, const
from ..ir.visit import free_vars
from ..op.binary import add
from ..op.shape import reshape
from . import layers
from .init import workload_of
from .transformer import HiddenShape, attention, feed_forward

EPSILON = 1e-12
INPUTS = ("data", "segments", "mask")


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
    shape = HiddenShape(batch_size, seq_len, hidden, num_heads)
    body: Expr
    mask: Expr | None = None
    if vocab_size is None:
        data = var("data", shape=(batch_size, seq_len, hidden), dtype=dtype)
        body = reshape(data, newshape=(batch_size * seq_len, hidden))
    else:
        body = _embeddings(shape, vocab_size, dtype)
        given = var("mask", shape=(batch_size, seq_len), dtype=dtype)
        mask = reshape(given, newshape=(batch_size, 1, 1, seq_len))
    for index in range(num_layers):
        body = encoder_layer(body, f"layer{index}", shape, ffn, mask)
    body = reshape(body, newshape=(batch_size, seq_len, hidden))
    return Function(free_vars(body), body)


get_workload = workload_of(get_net, inputs=INPUTS)


def encoder_layer(data: Expr, name: str, shape: HiddenShape, ffn: int, mask: Expr | None) -> Expr:
    """One layer: `[batch * seq, hidden]` in and out; `mask` is `[batch, 1, 1, seq]`."""
    query, key, value = (
        layers.dense_add_bias(data, shape.hidden, f"{name}_{part}") for part in ("query", "key", "value")
    )
    attended = layers.dense_add_bias(attention(query, key, value, shape, mask), shape.hidden, f"{name}_output")
    data = layers.layer_norm(add(data, attended), f"{name}_attention_norm", EPSILON)
    return layers.layer_norm(add(data, feed_forward(data, name, ffn)), f"{name}_ffn_norm", EPSILON)


def _embeddings(shape: HiddenShape, vocab_size: int, dtype: str) -> Expr:
    """Token, position and segment embeddings, added and normalised: `[batch * seq, hidden]`."""
    ids, segments = (var(name, shape=(shape.batch, shape.seq), dtype="int32") for name in ("data", "segments"))
    flat = (shape.batch * shape.seq,)
    positions = const(np.tile(np.arange(shape.seq), shape.batch), "int32")
    body = layers.embedding(reshape(ids, newshape=flat), "token", vocab_size, shape.hidden, dtype)
    body = add(body, layers.embedding(positions, "position", shape.seq, shape.hidden, dtype))
    segment = layers.embedding(reshape(segments, newshape=flat), "segment", 2, shape.hidden, dtype)
    return layers.layer_norm(add(body, segment), "embedding_norm", EPSILON)
