"""ConvNeXt: 7x7 depthwise convolutions, layer norms and wide 1x1 convolutions (Liu et al., 2022, 2201.03545)."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.make import var
from ..ir.nodes import Expr, Function
from ..ir.visit import expand_to, free_vars
from ..op import nn
from ..op.binary import add, multiply
from . import layers
from .activations import gelu
from .init import workload_of

EPSILON = 1e-6
TINY_DEPTHS, TINY_WIDTHS = (3, 3, 9, 3), (96, 192, 384, 768)


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
    depths: Sequence[int] = TINY_DEPTHS,
    widths: Sequence[int] = TINY_WIDTHS,
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`, no softmax.

    `image_shape` follows the layout; its sides are at least 4, doubled for every stage after the first.  `depths` are
    the blocks of each stage, `widths` its channels.
    """
    axis = layout.index("C")
    body = layers.image_input(batch_size, image_shape, layout, dtype, smallest=4 << (len(depths) - 1))
    for stage, (count, width) in enumerate(zip(depths, widths, strict=True), 1):
        if stage == 1:
            body = layers.conv2d_add_bias(body, "stem", width, 4, layout, stride=4)
            body = layers.layer_norm(body, "stem_norm", EPSILON, axis)
        else:
            body = layers.layer_norm(body, f"down{stage}_norm", EPSILON, axis)
            body = layers.conv2d_add_bias(body, f"down{stage}", width, 2, layout, stride=2)
        for index in range(1, count + 1):
            body = _block(body, f"stage{stage}_block{index}", width, layout)
    body = layers.layer_norm(nn.global_avg_pool2d(body, layout=layout), "norm", EPSILON, axis)
    body = layers.dense_add_bias(nn.batch_flatten(body), num_classes, "fc")
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def _block(data: Expr, name: str, width: int, layout: str) -> Expr:
    """`x + gamma * narrow(gelu(widen(norm(filter(x)))))`; gamma has one number for each channel."""
    axis = layout.index("C")
    body = layers.conv2d_add_bias(data, f"{name}_depthwise", width, 7, layout, padding=3, groups=width)
    body = layers.layer_norm(body, f"{name}_norm", EPSILON, axis)
    body = gelu(layers.conv2d_add_bias(body, f"{name}_widen", 4 * width, 1, layout))
    body = layers.conv2d_add_bias(body, f"{name}_narrow", width, 1, layout)
    scale = expand_to(var(f"{name}_gamma", shape=(width,), dtype=data.dtype), len(layout), axis)
    return add(data, multiply(body, scale))
