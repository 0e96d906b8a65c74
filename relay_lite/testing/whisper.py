"""The encoder of Whisper: two convolutions along time, sinusoidal positions (Radford et al., 2022, 2212.04356)."""

from __future__ import annotations

from functools import partial

import numpy as np

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import var
from ..ir.nodes import Array, Expr, Function, const
from ..ir.visit import free_vars
from ..op.binary import add
from ..op.shape import reshape, transpose
from . import layers
from .activations import gelu
from .init import workload_of
from .transformer import Shape, attention, pre_norm_layer

LONGEST = 10000.0


def get_net(
    batch_size: int = 1,
    frames: int = 3000,
    mels: int = 80,
    num_layers: int = 4,
    hidden: int = 384,
    num_heads: int = 6,
    dtype: str = "float32",
) -> Function:
    """The encoder as a function of `data`, a spectrogram `[batch_size, mels, frames]`, and its parameters.

    The sizes are those of Whisper tiny.  The result is `[batch_size, ceil(frames / 2), hidden]`.  Raises GraphError
    unless `num_heads` divides `hidden`, which is even.
    """
    require(hidden % 2 == 0 and hidden > 2, GraphError, "whisper", "the hidden size is even, above 2", hidden=hidden)
    data = var("data", shape=(batch_size, mels, frames), dtype=dtype)
    body = gelu(layers.conv1d_add_bias(data, "conv1", hidden, 3, padding=1))
    body = gelu(layers.conv1d_add_bias(body, "conv2", hidden, 3, stride=2, padding=1))
    seq = body.shape[2]
    body = add(transpose(body, axes=(0, 2, 1)), const(sinusoids(seq, hidden), dtype))
    body = reshape(body, newshape=(batch_size * seq, hidden))
    shape = Shape(batch_size, seq, hidden, num_heads)
    for name in [f"layer{index}" for index in range(num_layers)]:
        body = pre_norm_layer(body, name, partial(_attention, name=name, shape=shape), 4 * hidden)
    body = reshape(layers.layer_norm(body, "norm"), newshape=(batch_size, seq, hidden))
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def sinusoids(seq: int, hidden: int) -> Array:
    """Sines, then cosines, of wave lengths from 2 pi to `LONGEST` times that, at each position: `[seq, hidden]`."""
    half = hidden // 2
    angles = np.outer(np.arange(seq), LONGEST ** -(np.arange(half) / (half - 1)))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _attention(data: Expr, name: str, shape: Shape) -> Expr:
    """Attention whose keys have no bias."""
    query = layers.dense_add_bias(data, shape.hidden, f"{name}_query")
    key = layers.dense(data, shape.hidden, f"{name}_key")
    value = layers.dense_add_bias(data, shape.hidden, f"{name}_value")
    return layers.dense_add_bias(attention(query, key, value, shape), shape.hidden, f"{name}_output")
