"""DenseNet 121, 161, 169 and 201 in the form that TVM's test suite made a benchmark of.

It is not the network of Huang et al. (2017, arXiv 1608.06993): the layers of a block are a chain, each reads the one
before it alone, and the block gives the concatenation of what its layers gave.  Depth 169 starts with 69 channels.
"""

from __future__ import annotations

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op import nn
from ..op.join import concatenate
from . import layers
from .init import workload_of

_SPECS = {
    121: (64, 32, (6, 12, 24, 16)),
    161: (96, 48, (6, 12, 36, 24)),
    169: (69, 32, (6, 12, 32, 32)),
    201: (64, 32, (6, 12, 48, 32)),
}
_WIDTH = 4


def get_net(
    densenet_size: int = 121,
    classes: int = 1000,
    batch_size: int = 4,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, classes]`, no softmax.

    `image_shape` follows the layout; its sides are at least 29.  The last pool is 7x7, or the whole image when that is
    smaller.  Raises GraphError for another depth than 121, 161, 169 and 201.
    """
    law = f"depths are {', '.join(map(str, _SPECS))}"
    require(densenet_size in _SPECS, GraphError, "densenet", law, densenet_size=densenet_size)
    channels, growth, blocks = _SPECS[densenet_size]
    data = layers.image_input(batch_size, image_shape, layout, dtype, smallest=29)
    body = layers.conv2d(data, "conv1", channels, (7, 7), (2, 2), (3, 3), data_layout=layout)
    body = _norm_relu(body, "batch1", layout)
    body = nn.max_pool2d(body, pool_size=(3, 3), strides=(2, 2), padding=(1, 1), layout=layout)
    for index, count in enumerate(blocks, 1):
        body = _block(body, index, count, growth, layout)
        channels += count * growth
        if index < len(blocks):
            channels //= 2
            body = _transition(body, index, channels, layout)
    body = _norm_relu(body, "batch5", layout)
    size = tuple(min(7, body.shape[layout.index(side)]) for side in "HW")
    body = nn.batch_flatten(nn.avg_pool2d(body, pool_size=size, layout=layout))
    body = layers.dense_add_bias(body, classes, "fc")
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def _block(data: Expr, index: int, count: int, growth: int, layout: str) -> Expr:
    """A chain of layers of `growth` channels, concatenated."""
    made = []
    body = data
    for layer in range(1, count + 1):
        name = f"block{index}_layer{layer}"
        body = _norm_relu(body, f"{name}_batch1", layout)
        body = layers.conv2d(body, f"{name}_conv1", _WIDTH * growth, (1, 1), data_layout=layout)
        body = _norm_relu(body, f"{name}_batch2", layout)
        body = layers.conv2d(body, f"{name}_conv2", growth, (3, 3), padding=(1, 1), data_layout=layout)
        made.append(body)
    return concatenate(made, axis=layout.index("C"))


def _transition(data: Expr, index: int, channels: int, layout: str) -> Expr:
    body = _norm_relu(data, f"transition{index}_batch", layout)
    body = layers.conv2d(body, f"transition{index}_conv", channels, (1, 1), data_layout=layout)
    return nn.avg_pool2d(body, pool_size=(2, 2), strides=(2, 2), layout=layout)


def _norm_relu(data: Expr, name: str, layout: str) -> Expr:
    return nn.relu(layers.batch_norm_infer(data, name, axis=layout.index("C")))
