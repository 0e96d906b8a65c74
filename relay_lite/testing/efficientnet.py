"""EfficientNet-B0: inverted residuals with squeeze-and-excite everywhere (Tan and Le, 2019, 1905.11946)."""

from __future__ import annotations

from ..ir.nodes import Function
from ..ir.visit import free_vars
from ..op import nn
from ..op.elementwise import sigmoid
from . import layers
from .activations import silu
from .init import workload_of
from .inverted_residual import Block, Excite, Style

_STAGES = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)  # fmt: skip
"""Of each stage: how many times wider its blocks are inside, kernel, stride of the first block, channels, blocks."""


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
    body = silu(style.conv_norm(body, "stem", 32, 3, 2))
    for block in _blocks(32):
        body = style.inverted_residual(body, block)
    body = silu(style.conv_norm(body, "last", 1280, 1))
    body = layers.dense_add_bias(nn.dropout(style.pooled(body), rate=0.2), num_classes, "fc")
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def _blocks(channels: int) -> list[Block]:
    out: list[Block] = []
    for times, kernel, stride, filters, count in _STAGES:
        for index in range(count):
            excite = Excite(channels // 4, silu, sigmoid)
            step = stride if index == 0 else 1
            out.append(Block(f"block{len(out) + 1}", kernel, step, channels * times, filters, silu, excite))
            channels = filters
    return out
