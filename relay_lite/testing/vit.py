"""Vision transformers: patches of an image as tokens, a class token in front (2010.11929; DeiT: 2012.12877)."""

from __future__ import annotations

from functools import partial

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import var
from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op.binary import add
from ..op.join import concatenate
from ..op.pick import strided_slice
from ..op.shape import broadcast_to, reshape, transpose
from . import layers
from .init import workload_of
from .transformer import HiddenShape, pre_norm_layer, self_attention

EPSILON = 1e-6


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
    patch: int = 16,
    num_layers: int = 12,
    hidden: int = 768,
    num_heads: int = 12,
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`, no softmax.

    `image_shape` follows the layout.  The feed-forward nets are four times as wide as the hidden states.  Raises
    GraphError unless `patch` divides both sides of the image, and `num_heads` the hidden size.
    """
    data = layers.image_input(batch_size, image_shape, layout, dtype)
    sides = [data.shape[layout.index(letter)] for letter in "HW"]
    whole = all(n % patch == 0 for n in sides)
    require(whole, GraphError, "vit", f"the sides of an image must be multiples of {patch}", image_shape=image_shape)
    body = _with_class_token(patches(data, patch, hidden, layout))
    seq = body.shape[1]
    body = add(body, var("position_weight", shape=(seq, hidden), dtype=dtype))
    body = reshape(body, newshape=(batch_size * seq, hidden))
    shape = HiddenShape(batch_size, seq, hidden, num_heads)
    for name in [f"layer{index}" for index in range(num_layers)]:
        body = pre_norm_layer(body, name, partial(self_attention, name=name, shape=shape), 4 * hidden, EPSILON)
    body = reshape(layers.layer_norm(body, "norm", EPSILON), newshape=(batch_size, seq, hidden))
    first = strided_slice(body, (0,), (1,), axes=(1,))
    body = layers.dense_add_bias(reshape(first, newshape=(batch_size, hidden)), num_classes, "head")
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def patches(data: Expr, patch: int, hidden: int, layout: str) -> Expr:
    """The patches of an image as tokens, row by row: `[batch, tokens, hidden]`; makes `patch_weight` and `_bias`."""
    body = layers.conv2d_add_bias(data, "patch", hidden, patch, layout, stride=patch)
    if layout == "NCHW":
        body = transpose(body, axes=(0, 2, 3, 1))
    return reshape(body, newshape=(data.shape[0], -1, hidden))


def _with_class_token(tokens: Expr) -> Expr:
    """A token in front that belongs to no patch, the same for every image; makes `class_weight`."""
    batch, _, hidden = tokens.shape
    token = var("class_weight", shape=(1, hidden), dtype=tokens.dtype)
    return concatenate((broadcast_to(token, (batch, 1, hidden)), tokens), axis=1)
