"""MobileNet v3, large and small: searched stacks of inverted residuals (Howard et al., 2019, 1905.02244)."""

from __future__ import annotations

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Function
from ..ir.visit import free_vars
from ..op import nn
from ..op.elementwise import relu
from . import layers
from .activations import hard_sigmoid, hard_swish
from .init import workload_of
from .inverted_residual import Block, Excite, Style

EPSILON = 1e-3
_LARGE = (
    (3, 16, 16, False, relu, 1), (3, 64, 24, False, relu, 2), (3, 72, 24, False, relu, 1),
    (5, 72, 40, True, relu, 2), (5, 120, 40, True, relu, 1), (5, 120, 40, True, relu, 1),
    (3, 240, 80, False, hard_swish, 2), (3, 200, 80, False, hard_swish, 1), (3, 184, 80, False, hard_swish, 1),
    (3, 184, 80, False, hard_swish, 1), (3, 480, 112, True, hard_swish, 1), (3, 672, 112, True, hard_swish, 1),
    (5, 672, 160, True, hard_swish, 2), (5, 960, 160, True, hard_swish, 1), (5, 960, 160, True, hard_swish, 1),
)  # fmt: skip
"""Of each block: kernel, channels inside, channels of the result, squeeze-and-excite, activation, stride."""
_SMALL = (
    (3, 16, 16, True, relu, 2), (3, 72, 24, False, relu, 2), (3, 88, 24, False, relu, 1),
    (5, 96, 40, True, hard_swish, 2), (5, 240, 40, True, hard_swish, 1), (5, 240, 40, True, hard_swish, 1),
    (5, 120, 48, True, hard_swish, 1), (5, 144, 48, True, hard_swish, 1), (5, 288, 96, True, hard_swish, 2),
    (5, 576, 96, True, hard_swish, 1), (5, 576, 96, True, hard_swish, 1),
)  # fmt: skip
_SIZES = {"large": (_LARGE, 1280), "small": (_SMALL, 1024)}
"""The blocks, and the units of the dense layer in front of the last one."""


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    size: str = "large",
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`, no softmax.

    `image_shape` follows the layout.  Raises GraphError for another size than large and small.
    """
    require(size in _SIZES, GraphError, "mobilenet v3", f"sizes are {', '.join(_SIZES)}", size=size)
    blocks, units = _SIZES[size]
    style = Style(layout, EPSILON)
    body = layers.image_input(batch_size, image_shape, layout, dtype)
    body = hard_swish(style.conv_norm(body, "stem", 16, 3, 2))
    for index, (kernel, wide, out, excites, activation, stride) in enumerate(blocks, 1):
        excite = Excite(_divisible(wide / 4), relu, hard_sigmoid) if excites else None
        block = Block(f"block{index}", kernel, stride, wide, out, activation, excite)
        body = style.inverted_residual(body, block)
    body = hard_swish(style.conv_norm(body, "last", 6 * blocks[-1][2], 1))
    body = hard_swish(layers.dense_add_bias(style.pooled(body), units, "fc1"))
    body = layers.dense_add_bias(nn.dropout(body, rate=0.2), num_classes, "fc2")
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def _divisible(channels: float) -> int:
    """The multiple of 8 that is nearest, 8 at least; the next one where that takes away more than a tenth."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near if near >= 0.9 * channels else near + 8
