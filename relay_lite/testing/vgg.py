"""VGG 11, 13, 16 and 19: five stages of 3x3 convolutions, then three dense layers (Simonyan, Zisserman, 1409.1556)."""

from __future__ import annotations

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op import nn
from . import layers
from .init import Workload, create_workload

_COUNTS = {11: (1, 1, 2, 2, 2), 13: (2, 2, 2, 2, 2), 16: (2, 2, 3, 3, 3), 19: (2, 2, 4, 4, 4)}
_FILTERS = (64, 128, 256, 512, 512)


def get_net(
    batch_size: int,
    image_shape: tuple[int, ...],
    num_classes: int,
    dtype: str,
    num_layers: int = 11,
    batch_norm: bool = False,
    layout: str = "NCHW",
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`.

    `image_shape` follows the layout; its sides are at least 32, and the first dense layer fits what is left of them.
    Raises GraphError for another depth than 11, 13, 16 and 19.
    """
    law = f"depths are {', '.join(map(str, _COUNTS))}"
    require(num_layers in _COUNTS, GraphError, "vgg", law, num_layers=num_layers)
    body = layers.image_input(batch_size, image_shape, layout, dtype, smallest=32)
    for stage, (count, filters) in enumerate(zip(_COUNTS[num_layers], _FILTERS, strict=True), 1):
        for index in range(1, count + 1):
            body = _convolution(body, f"{stage}_{index}", filters, batch_norm, layout)
        body = nn.max_pool2d(body, pool_size=(2, 2), strides=(2, 2), layout=layout)
    body = nn.batch_flatten(body)
    for name in ("fc6", "fc7"):
        body = nn.relu(layers.dense_add_bias(body, 4096, name))
        body = nn.dropout(body, rate=0.5)
    body = nn.softmax(layers.dense_add_bias(body, num_classes, "fc8"))
    return Function(free_vars(body), body)


def get_workload(
    batch_size: int,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    num_layers: int = 11,
    batch_norm: bool = False,
    layout: str = "NCHW",
) -> Workload:
    """The network of `get_net` as a module, and its parameters."""
    return create_workload(get_net(batch_size, image_shape, num_classes, dtype, num_layers, batch_norm, layout))


def _convolution(data: Expr, index: str, filters: int, batch_norm: bool, layout: str) -> Expr:
    axis = layout.index("C")
    body = layers.conv2d(data, f"conv{index}", filters, (3, 3), padding=(1, 1), data_layout=layout)
    body = layers.bias_add(body, f"conv{index}", axis=axis)
    if batch_norm:
        body = layers.batch_norm_infer(body, f"bn{index}", axis=axis)
    return nn.relu(body)
