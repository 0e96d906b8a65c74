"""SqueezeNet 1.0, 1.1: fire modules squeeze the channels, then expand them twice (Iandola et al., 2016, 1602.07360)."""

from __future__ import annotations

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op import nn
from ..op.join import concatenate
from . import layers
from .init import Workload, create_workload

_FIRES = ((16, 64, 64), (32, 128, 128), (48, 192, 192), (64, 256, 256))
_POOLED = {"1.0": (0, 3, 7), "1.1": (0, 2, 4)}


def get_net(
    batch_size: int,
    image_shape: tuple[int, ...],
    num_classes: int,
    version: str,
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`.

    `image_shape` follows the layout; its sides are at least 29.  Versions are 1.0 and 1.1.
    """
    require(version in _POOLED, GraphError, "squeezenet", f"versions are {', '.join(_POOLED)}", version=version)
    data = layers.image_input(batch_size, image_shape, layout, dtype, smallest=29)
    if version == "1.0":
        body = _conv_relu(data, "conv1", 96, 7, layout, stride=2)
    else:
        body = _conv_relu(data, "conv1", 64, 3, layout, stride=2)
    for index in range(9):
        if index:
            body = _fire(body, f"fire{index}", _FIRES[(index - 1) // 2], layout)
        if index in _POOLED[version]:
            body = nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2), layout=layout)
    body = nn.dropout(body, rate=0.5)
    body = _conv_relu(body, "conv_final", num_classes, 1, layout)
    body = nn.batch_flatten(nn.global_avg_pool2d(body, layout=layout))
    body = nn.softmax(body)
    return Function(free_vars(body), body)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    version: str = "1.0",
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Workload:
    """The network of `get_net` as a module, and its parameters."""
    return create_workload(get_net(batch_size, image_shape, num_classes, version, dtype, layout))


def _fire(data: Expr, name: str, channels: tuple[int, int, int], layout: str) -> Expr:
    squeeze, expand1x1, expand3x3 = channels
    body = _conv_relu(data, f"{name}_input_conv", squeeze, 1, layout)
    left = _conv_relu(body, f"{name}_left_conv", expand1x1, 1, layout)
    right = _conv_relu(body, f"{name}_right_conv", expand3x3, 3, layout)
    return concatenate((left, right), axis=layout.index("C"))


def _conv_relu(data: Expr, name: str, channels: int, kernel: int, layout: str, stride: int = 1) -> Expr:
    pad = kernel // 2
    body = layers.conv2d(data, name, channels, (kernel, kernel), (stride, stride), (pad, pad), data_layout=layout)
    return nn.relu(layers.bias_add(body, name, axis=layout.index("C")))
