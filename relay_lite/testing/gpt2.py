"""GPT-2: token and position embeddings, layers that see no later token (Radford et al., 2019)."""

from __future__ import annotations

from functools import partial

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import var
from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op.binary import add
from ..op.pick import strided_slice
from ..op.shape import reshape
from . import layers
from .activations import gelu_tanh
from .init import workload_of
from .transformer import HiddenShape, causal_mask, pre_norm_layer, self_attention


def get_net(
    batch_size: int = 1,
    seq_len: int = 128,
    num_layers: int = 12,
    hidden: int = 768,
    num_heads: int = 12,
    vocab_size: int = 50257,
    max_positions: int = 1024,
    dtype: str = "float32",
) -> Function:
    """The network as a function of `data`, int32 token ids `[batch_size, seq_len]`, and its parameters.

    The result is `[batch_size, seq_len, hidden]`, what the published model multiplies by its token embeddings to get
    scores of words.  Raises GraphError for more tokens than positions, and unless `num_heads` divides `hidden`.
    """
    law = f"a sequence has at most {max_positions} tokens"
    require(seq_len <= max_positions, GraphError, "gpt2", law, seq_len=seq_len)
    shape = HiddenShape(batch_size, seq_len, hidden, num_heads)
    ids = var("data", shape=(batch_size, seq_len), dtype="int32")
    positions = var("position_weight", shape=(max_positions, hidden), dtype=dtype)
    tokens = layers.embedding(ids, "token", vocab_size, hidden, dtype)
    body: Expr = reshape(add(tokens, strided_slice(positions, (0,), (seq_len,))), newshape=(-1, hidden))
    mask = causal_mask(seq_len, dtype)
    for name in [f"layer{index}" for index in range(num_layers)]:
        attend = partial(self_attention, name=name, shape=shape, bias=mask)
        body = pre_norm_layer(body, name, attend, 4 * hidden, activation=gelu_tanh)
    body = reshape(layers.layer_norm(body, "norm"), newshape=(batch_size, seq_len, hidden))
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)
