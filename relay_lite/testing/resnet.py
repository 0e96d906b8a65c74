"""ResNet 18, 34, 50, 101, 152, 200, 269, and the shallow ones for small images: images in, class probabilities out."""

from __future__ import annotations

from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op import nn
from . import layers
from .init import Workload, create_workload
from .residual import EPSILON, convolution, norm_relu, residual_stages, stage_plan


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 50,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`.

    `image_shape` follows the layout: `(224, 224, 3)` for NHWC.  The stem shrinks images higher than 32 by four.  Raises
    GraphError for a depth that has no plan (`residual.stage_plan`).
    """
    data = layers.image_input(batch_size, image_shape, layout, dtype)
    axis = layout.index("C")
    plan = stage_plan(num_layers, data.shape[layout.index("H")])
    body = layers.batch_norm_infer(data, "bn_data", axis=axis, epsilon=EPSILON, scale=False)
    body = _stem(body, plan.filters[0], layout)
    body = residual_stages(body, plan, layout, axis)
    body = norm_relu(body, "bn1", axis)
    body = nn.batch_flatten(nn.global_avg_pool2d(body, layout=layout))
    body = nn.softmax(layers.dense_add_bias(body, num_classes, "fc1"))
    return Function(free_vars(body), body)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Workload:
    """The network of `get_net` as a module, and its parameters."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, layout, dtype))


def _stem(data: Expr, filters: int, layout: str) -> Expr:
    if data.shape[layout.index("H")] <= 32:
        return convolution(data, "conv0", filters, 3, 1, layout)
    body = convolution(data, "conv0", filters, 7, 2, layout)
    body = norm_relu(body, "bn0", layout.index("C"))
    return nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
