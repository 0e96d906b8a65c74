"""MobileNet v2: inverted residuals with relu6, whose narrow ends stay linear (Sandler et al., 2018, 1801.04381)."""

from __future__ import annotations

from ..ir.nodes import Function
from ..ir.visit import free_vars
from ..op import nn
from . import layers
from .activations import relu6
from .init import workload_of
from .inverted_residual import Block, Style

_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Of each stage: how many times wider its blocks are inside, its channels, its blocks, the stride of the first."""


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`, no softmax.

    `image_shape` follows the layout.
    """
    style = Style(layout)
    body = layers.image_input(batch_size, image_shape, layout, dtype)
    body = relu6(style.conv_norm(body, "stem", 32, 3, 2))
    for block in _blocks(32):
        body = style.inverted_residual(body, block)
    body = relu6(style.conv_norm(body, "last", 1280, 1))
    body = layers.dense_add_bias(nn.dropout(style.pooled(body), rate=0.2), num_classes, "fc")
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def _blocks(channels: int) -> list[Block]:
    out: list[Block] = []
    for times, filters, count, stride in _STAGES:
        for index in range(count):
            step = stride if index == 0 else 1
            out.append(Block(f"block{len(out) + 1}", 3, step, channels * times, filters, relu6))
            channels = filters
    return out
