"""Llama: rotary positions, RMS norms, gated feed-forward nets, keys shared by heads (2302.13971, 2305.13245)."""

from __future__ import annotations

import numpy as np

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import var
from ..ir.nodes import Expr, Function, const
from ..ir.visit import free_vars
from ..op.binary import add, multiply
from ..op.elementwise import negative
from ..op.join import concatenate, repeat
from ..op.pick import strided_slice
from ..op.shape import reshape
from . import layers
from .activations import silu
from .init import workload_of
from .transformer import HiddenShape, causal_mask, mixed

EPSILON = 1e-5
BASE = 10000.0


def get_net(
    batch_size: int = 1,
    seq_len: int = 128,
    num_layers: int = 30,
    hidden: int = 576,
    num_heads: int = 9,
    num_key_heads: int = 3,
    ffn: int = 1536,
    vocab_size: int = 49152,
    dtype: str = "float32",
) -> Function:
    """The network as a function of `data`, int32 token ids `[batch_size, seq_len]`, and its parameters.

    The sizes are those of SmolLM-135M.  The result is `[batch_size, seq_len, hidden]`, what the published model
    multiplies by its token embeddings to get scores of words.  Raises GraphError unless `num_heads` divides `hidden`,
    `num_key_heads` divides `num_heads`, and a head is of even width.
    """
    law = "the number of key heads divides that of heads"
    require(num_heads % num_key_heads == 0, GraphError, "llama", law, heads=num_heads, key_heads=num_key_heads)
    shape = HiddenShape(batch_size, seq_len, hidden, num_heads)
    require(shape.width % 2 == 0, GraphError, "llama", "rotary positions need heads of even width", width=shape.width)
    ids = var("data", shape=(batch_size, seq_len), dtype="int32")
    body = reshape(layers.embedding(ids, "token", vocab_size, hidden, dtype), newshape=(-1, hidden))
    mask = causal_mask(seq_len, dtype)
    for name in [f"layer{index}" for index in range(num_layers)]:
        normed = layers.rms_norm(body, f"{name}_attention_norm", EPSILON)
        body = add(body, _attention(normed, name, shape, num_key_heads, mask))
        body = add(body, _gated(layers.rms_norm(body, f"{name}_ffn_norm", EPSILON), name, ffn))
    body = reshape(layers.rms_norm(body, "norm", EPSILON), newshape=(batch_size, seq_len, hidden))
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def _attention(data: Expr, name: str, shape: HiddenShape, key_heads: int, mask: Expr) -> Expr:
    """Attention whose queries and keys are turned by their positions; neighbouring heads share keys and values."""
    few = HiddenShape(shape.batch, shape.seq, shape.width * key_heads, key_heads)
    query, key, value = [
        layers.dense(data, units, f"{name}_{part}")
        for part, units in (("query", shape.hidden), ("key", few.hidden), ("value", few.hidden))
    ]
    keys, values = [
        repeat(x, shape.heads // key_heads, axis=0)
        for x in (rotated(few.by_head(key)), few.by_head(value, transposed=True))
    ]
    return layers.dense(mixed(rotated(shape.by_head(query)), keys, values, shape, mask), shape.hidden, f"{name}_output")


def rotated(data: Expr) -> Expr:
    """Each vector of `[rows, seq, width]` turned by angles of its position, the two halves being the coordinates.

    `x * cos + (-second half, first half) * sin`; pair `i` of position `p` turns by `p / BASE^(2 i / width)`.
    """
    seq, width = data.shape[1:]
    half = width // 2
    angles = np.tile(np.outer(np.arange(seq), BASE ** -(2 * np.arange(half) / width)), 2)
    first, second = (strided_slice(data, (k * half,), ((k + 1) * half,), axes=(2,)) for k in (0, 1))
    turned = concatenate((negative(second), first), axis=2)
    return add(multiply(data, const(np.cos(angles), data.dtype)), multiply(turned, const(np.sin(angles), data.dtype)))


def _gated(data: Expr, name: str, ffn: int) -> Expr:
    """`down(silu(gate(x)) * up(x))` (Shazeer, 2020, 2002.05202)."""
    gate, up = (layers.dense(data, ffn, f"{name}_{part}") for part in ("gate", "up"))
    return layers.dense(multiply(silu(gate), up), data.shape[-1], f"{name}_down")
