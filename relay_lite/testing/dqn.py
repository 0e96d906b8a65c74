"""The network that learned to play Atari games: four frames in, the value of every action out (Mnih et al., 2015)."""

from __future__ import annotations

from ..ir.nodes import Function
from ..ir.visit import free_vars
from ..op import nn
from . import layers
from .init import workload_of

_CONVOLUTIONS = (("conv1", 32, 8, 4), ("conv2", 64, 4, 2), ("conv3", 64, 3, 1))


def get_net(
    batch_size: int,
    num_actions: int = 18,
    image_shape: tuple[int, ...] = (4, 84, 84),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_actions]`.

    `image_shape` follows the layout; its sides are at least 36.
    """
    body = layers.image_input(batch_size, image_shape, layout, dtype, smallest=36)
    for name, channels, kernel, stride in _CONVOLUTIONS:
        body = layers.conv2d(body, name, channels, (kernel, kernel), (stride, stride), data_layout=layout)
        body = nn.relu(layers.bias_add(body, name, axis=layout.index("C")))
    body = nn.batch_flatten(body)
    body = nn.relu(layers.dense_add_bias(body, 512, "dense1"))
    body = layers.dense_add_bias(body, num_actions, "dense2")
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)
