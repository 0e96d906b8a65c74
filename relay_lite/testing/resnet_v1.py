"""ResNet 18 and 34 as first published (He et al., 2015, 1512.03385): every convolution is followed by its batch norm.

A unit is `relu(shortcut + norm(conv(relu(norm(conv(x))))))`, so that nothing is left of a norm once its scale is in
the weights and its shift is a bias: the kind of network that runs well on integers.
"""

from __future__ import annotations

import numpy as np

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Array, Expr, Function
from ..ir.visit import free_vars
from ..op import nn
from ..op.binary import add
from . import layers
from .init import Initializer, Workload, create_workload

_UNITS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3)}
_FILTERS = (64, 128, 256, 512)
_SIZES = {"conv0": 0.8, "conv1": 0.8, "conv2": 0.35, "sc": 0.7}
"""The mean scale of a norm by its place: small at the end of a unit, where the shortcut is added."""


def get_net(
    batch_size: int,
    num_classes: int,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
) -> Function:
    """The network as a function of `data` (NCHW) and its parameters; the result is `[batch_size, num_classes]`.

    Raises GraphError for a depth other than 18 and 34.
    """
    require(num_layers in _UNITS, GraphError, "resnet v1", "depths are 18, 34", num_layers=num_layers)
    data = layers.image_input(batch_size, image_shape, "NCHW", dtype, smallest=32)
    body: Expr = nn.relu(_conv_norm(data, "conv0", _FILTERS[0], 7, 2))
    body = nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    for stage, (count, filters) in enumerate(zip(_UNITS[num_layers], _FILTERS, strict=True), 1):
        for index in range(1, count + 1):
            body = _unit(body, f"stage{stage}_unit{index}", filters, 2 if index == 1 and stage > 1 else 1)
    body = nn.batch_flatten(nn.global_avg_pool2d(body))
    body = layers.dense_add_bias(body, num_classes, "fc")
    return Function(free_vars(body), body)


def get_workload(
    batch_size: int = 1,
    num_classes: int = 1000,
    num_layers: int = 18,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    seed: int = 0,
) -> Workload:
    """The network of `get_net` as a module, and random parameters whose activations stay small; see `Lively`."""
    return create_workload(get_net(batch_size, num_classes, num_layers, image_shape, dtype), Lively(), seed)


class Lively(Initializer):
    """Parameters as training leaves them: no norm is trivial, and the signal keeps its size from layer to layer.

    Weights are gaussian with the deviation `sqrt(2 / fan_in)` (He et al., 2015, 1502.01852).
    """

    def __call__(self, name: str, array: Array, rng: np.random.RandomState) -> None:
        """Fill `array` in place.  Raises GraphError when the suffix of the name is unknown."""
        place, part = name.split("_")[-2:]
        match part:
            case "gamma":
                size = _SIZES.get(place, 1.0)
                array[...] = rng.uniform(0.75 * size, 1.25 * size, array.shape)
            case "var":
                array[...] = rng.uniform(0.5, 1.5, array.shape)
            case "beta" | "mean" | "bias":
                array[...] = rng.normal(0.0, 0.1, array.shape)
            case _:
                super().__call__(name, array, rng)

    def weight(self, name: str, array: Array, rng: np.random.RandomState) -> None:
        """Draw a weight [out, in, ...]."""
        array[...] = rng.normal(0.0, np.sqrt(2.0 / array[0].size), array.shape)


def _conv_norm(data: Expr, name: str, filters: int, kernel: int, stride: int) -> Expr:
    """A convolution that keeps the size of the image at stride 1, and its batch norm, both called `name`."""
    size, pad = (kernel, kernel), (kernel // 2, kernel // 2)
    conv = layers.conv2d(data, name, filters, size, (stride, stride), pad)
    return layers.batch_norm_infer(conv, name)


def _unit(data: Expr, name: str, filters: int, stride: int) -> Expr:
    """One unit; where the shape changes, the shortcut is a 1x1 convolution with a norm."""
    body: Expr = nn.relu(_conv_norm(data, f"{name}_conv1", filters, 3, stride))
    body = _conv_norm(body, f"{name}_conv2", filters, 3, 1)
    same = stride == 1 and data.shape[1] == filters
    shortcut = data if same else _conv_norm(data, f"{name}_sc", filters, 1, stride)
    return nn.relu(add(shortcut, body))
