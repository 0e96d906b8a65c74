"""MobileNet v2: inverted residuals with relu6, whose narrow ends stay linear (Sandler et al., 2018, 1801.04381).

An inverted residual widens by a 1x1 convolution, filters each channel, and narrows.
"""

from __future__ import annotations

from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op import nn
from ..op.binary import add
from . import layers
from .activations import relu6
from .init import workload_of

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
    body = layers.image_input(batch_size, image_shape, layout, dtype)
    body = relu6(_conv_norm(body, "stem", 32, layout, 3, 2))
    count = 0
    for times, channels, blocks, stride in _STAGES:
        for index in range(blocks):
            count += 1
            body = _block(body, f"block{count}", times, channels, layout, stride if index == 0 else 1)
    body = relu6(_conv_norm(body, "last", 1280, layout))
    pooled = nn.batch_flatten(nn.global_avg_pool2d(body, layout=layout))
    body = layers.dense_add_bias(nn.dropout(pooled, rate=0.2), num_classes, "fc")
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def _conv_norm(
    data: Expr, name: str, channels: int, layout: str, kernel: int = 1, stride: int = 1, groups: int = 1
) -> Expr:
    """A convolution that keeps the size of the image at stride 1, then a batch norm."""
    sides = (kernel, kernel), (stride, stride), (kernel // 2, kernel // 2)
    body = layers.conv2d(data, name, channels, *sides, groups=groups, data_layout=layout)
    return layers.batch_norm_infer(body, f"{name}_bn", axis=layout.index("C"))


def _block(data: Expr, name: str, times: int, channels: int, layout: str, stride: int) -> Expr:
    """An inverted residual; it adds its input where that has the shape of the result."""
    given = data.shape[layout.index("C")]
    wide, body = given * times, data
    if times > 1:
        body = relu6(_conv_norm(body, f"{name}_expand", wide, layout))
    body = relu6(_conv_norm(body, f"{name}_depthwise", wide, layout, 3, stride, wide))
    body = _conv_norm(body, f"{name}_project", channels, layout)
    return add(body, data) if stride == 1 and channels == given else body
