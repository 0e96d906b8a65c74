"""A perceptron with two hidden layers, of 128 and 64 units."""

from __future__ import annotations

from ..ir.make import var
from ..ir.nodes import Function
from ..ir.visit import free_vars
from ..op import nn
from . import layers
from .init import workload_of


def get_net(
    batch_size: int, num_classes: int = 10, image_shape: tuple[int, ...] = (1, 28, 28), dtype: str = "float32"
) -> Function:
    """The network as a function of `data` `[batch_size, *image_shape]` and its parameters.

    The result is `[batch_size, num_classes]`; the image is flattened at once, so any shape will do.
    """
    data = var("data", shape=(batch_size, *image_shape), dtype=dtype)
    body = nn.batch_flatten(data)
    body = nn.relu(layers.dense_add_bias(body, 128, "fc1"))
    body = nn.relu(layers.dense_add_bias(body, 64, "fc2"))
    body = nn.softmax(layers.dense_add_bias(body, num_classes, "fc3"))
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)
