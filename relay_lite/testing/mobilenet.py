"""MobileNet v1: each block filters every channel by itself, then mixes the channels (Howard et al., 2017, 1704.04861).

The batch norm of the first block works on axis 1, also for NHWC, where that is the height: the task that other tools
extract from this network has this form, and records are found by that form.
"""

from __future__ import annotations

from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op import nn
from . import layers
from .init import workload_of

_BLOCKS = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *((512, 1),) * 5, (1024, 2), (1024, 1))
_SHALLOW = (*_BLOCKS[:6], (1024, 2), (1024, 2))


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    alpha: float = 1.0,
    is_shallow: bool = False,
    layout: str = "NCHW",
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`.

    `image_shape` follows the layout.  `alpha` scales the number of channels; the shallow network has eight blocks in
    place of thirteen.
    """
    data = layers.image_input(batch_size, image_shape, layout, dtype)
    body = _first_block(data, round(32 * alpha), layout)
    for index, (filters, stride) in enumerate(_SHALLOW if is_shallow else _BLOCKS, 1):
        body = _separable_block(body, f"separable_conv_block_{index}", round(filters * alpha), stride, layout)
    body = nn.batch_flatten(nn.global_avg_pool2d(body, layout=layout))
    body = nn.softmax(layers.dense_add_bias(body, num_classes, "fc"))
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def _first_block(data: Expr, filters: int, layout: str) -> Expr:
    name = "conv_block_1"
    body = layers.conv2d(data, f"{name}_conv", filters, (3, 3), (2, 2), (1, 1), data_layout=layout)
    return nn.relu(layers.batch_norm_infer(body, f"{name}_bn"))


def _separable_block(data: Expr, name: str, filters: int, stride: int, layout: str) -> Expr:
    axis = layout.index("C")
    groups = data.shape[axis]
    body = layers.conv2d(data, name, groups, (3, 3), (stride, stride), (1, 1), groups=groups, data_layout=layout)
    body = nn.relu(layers.batch_norm_infer(body, f"{name}_bn1", axis=axis))
    body = layers.conv2d(body, f"{name}_conv2", filters, (1, 1), data_layout=layout)
    return nn.relu(layers.batch_norm_infer(body, f"{name}_bn2", axis=axis))
