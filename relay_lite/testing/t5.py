"""The encoder of T5: no biases, RMS norms, a learnt bias of scores by distance (Raffel et al., 2019, 1910.10683)."""

from __future__ import annotations

import numpy as np

from ..ir.make import var
from ..ir.nodes import Array, Expr, Function, const
from ..ir.visit import free_vars
from ..op.binary import add
from ..op.elementwise import relu
from ..op.shape import reshape, transpose
from . import layers
from .init import workload_of
from .transformer import Shape, attention

BUCKETS, FARTHEST = 32, 128
"""Rows of the table of biases, and the distance from which on all share the last one."""


def get_net(
    batch_size: int = 1,
    seq_len: int = 128,
    num_layers: int = 6,
    hidden: int = 512,
    num_heads: int = 8,
    ffn: int = 2048,
    vocab_size: int = 32128,
    dtype: str = "float32",
) -> Function:
    """The encoder as a function of `data`, int32 token ids `[batch_size, seq_len]`, and its parameters.

    The sizes are those of T5 small.  The result is `[batch_size, seq_len, hidden]`.  Raises GraphError unless
    `num_heads` divides `hidden`.
    """
    shape = Shape(batch_size, seq_len, hidden, num_heads)
    ids = var("data", shape=(batch_size, seq_len), dtype="int32")
    body = reshape(layers.embedding(ids, "token", vocab_size, hidden, dtype), newshape=(-1, hidden))
    distances = layers.embedding(const(buckets(seq_len).reshape(-1), "int32"), "distance", BUCKETS, num_heads, dtype)
    bias = transpose(reshape(distances, newshape=(1, seq_len, seq_len, num_heads)), axes=(0, 3, 1, 2))
    for name in [f"layer{index}" for index in range(num_layers)]:
        body = add(body, _attention(layers.rms_norm(body, f"{name}_attention_norm"), name, shape, bias))
        wide = relu(layers.dense(layers.rms_norm(body, f"{name}_ffn_norm"), ffn, f"{name}_ffn_in"))
        body = add(body, layers.dense(wide, hidden, f"{name}_ffn_out"))
    body = reshape(layers.rms_norm(body, "norm"), newshape=(batch_size, seq_len, hidden))
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def buckets(seq: int) -> Array:
    """The row of the table for a query (first axis) and a key: int `[seq, seq]`.

    Keys behind the query have the second half of the rows.  Half of each half is for exact distances, the rest for
    ranges that grow by a factor.
    """
    place = np.arange(seq)
    ahead = place[None, :] - place[:, None]
    side, exact = BUCKETS // 2, BUCKETS // 4
    distance = np.abs(ahead)
    steps = np.log(np.maximum(distance, 1) / exact) / np.log(FARTHEST / exact) * (side - exact)
    far = np.minimum(exact + steps.astype(int), side - 1)
    return np.asarray(np.where(distance < exact, distance, far) + np.where(ahead > 0, side, 0))


def _attention(data: Expr, name: str, shape: Shape, bias: Expr) -> Expr:
    """Attention without biases of its products, whose scores are not divided."""
    query, key, value = (layers.dense(data, shape.hidden, f"{name}_{part}") for part in ("query", "key", "value"))
    return layers.dense(attention(query, key, value, shape, bias, scaled=False), shape.hidden, f"{name}_output")
