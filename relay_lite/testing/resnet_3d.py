"""ResNet over clips: the units of `residual` with cubic convolutions; there is no pool after the stem.

Every batch norm works on axis 1, also for NDHWC, where that is the depth and not the channels: the tasks that other
tools extract from this network have this form, and records are found by that form.
"""

from __future__ import annotations

from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op import nn
from . import layers
from .init import Workload, create_workload
from .residual import EPSILON, convolution, norm_relu, residual_stages, stage_plan

_AXIS = 1


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: tuple[int, ...] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`.

    `image_shape` follows the layout: `(16, 112, 112, 3)` for NDHWC.  Raises GraphError for a depth that has no plan.
    """
    data = layers.image_input(batch_size, image_shape, layout, dtype)
    plan = stage_plan(num_layers, data.shape[layout.index("H")])
    body = layers.batch_norm_infer(data, "bn_data", axis=_AXIS, epsilon=EPSILON, scale=False)
    body = _stem(body, plan.filters[0], layout)
    body = residual_stages(body, plan, layout, _AXIS)
    body = norm_relu(body, "bn1", _AXIS)
    body = nn.batch_flatten(nn.global_avg_pool3d(body, layout=layout))
    body = nn.softmax(layers.dense_add_bias(body, num_classes, "fc1"))
    return Function(free_vars(body), body)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 16, 112, 112),
    layout: str = "NCDHW",
    dtype: str = "float32",
) -> Workload:
    """The network of `get_net` as a module, and its parameters."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype))


def _stem(data: Expr, filters: int, layout: str) -> Expr:
    if data.shape[layout.index("H")] <= 32:
        return convolution(data, "conv0", filters, 3, 1, layout)
    body = layers.conv3d(data, "conv0", filters, (3, 7, 7), (1, 2, 2), (1, 3, 3), data_layout=layout)
    return norm_relu(body, "bn0", _AXIS)
