"""Inception v3: blocks of parallel towers, concatenated (Szegedy et al., 2015, arXiv 1512.00567).

A tower is a chain of steps; a step is (suffix of its name, filters, kernel, stride, padding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op import nn
from ..op.join import concatenate
from . import layers
from .init import workload_of

Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Step:
    """A convolution without bias, a batch norm and a relu."""

    suffix: str
    filters: int
    kernel: Pair = (1, 1)
    stride: int = 1
    padding: Pair = (0, 0)


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 299, 299),
    dtype: str = "float32",
    layout: str = "NCHW",
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`.

    `image_shape` follows the layout; its sides are at least 75.  The last pool is 8x8, or the whole image when that is
    smaller.
    """
    data = layers.image_input(batch_size, image_shape, layout, dtype, smallest=75)
    net = _Towers(layout)
    body = _stem(net, data)
    for name, pooled in (("mixed", 32), ("mixed_1", 64), ("mixed_2", 64)):
        body = _block_a(net, body, name, pooled)
    body = _block_b(net, body, "mixed_3")
    for name, middle in (("mixed_4", 128), ("mixed_5", 160), ("mixed_6", 160), ("mixed_7", 192)):
        body = _block_c(net, body, name, middle)
    body = _block_d(net, body, "mixed_8")
    body = _block_e(net, body, "mixed_9", net.average(body))
    body = _block_e(net, body, "mixed_10", net.largest(body, stride=1, pad=1))
    size = tuple(min(8, body.shape[layout.index(side)]) for side in "HW")
    body = nn.avg_pool2d(body, pool_size=size, layout=layout, count_include_pad=True)
    body = layers.dense(nn.batch_flatten(body), num_classes, "fc1")
    body = nn.softmax(layers.bias_add(body, "fc2"))
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


@dataclass(frozen=True)
class _Towers:
    """Makes towers and pools of one layout."""

    layout: str

    def chain(self, data: Expr, name: str, steps: Sequence[Step]) -> Expr:
        """One step after the other."""
        axis = self.layout.index("C")
        for step in steps:
            full = name + step.suffix
            body = layers.conv2d(
                data,
                f"{full}_conv1",
                step.filters,
                step.kernel,
                (step.stride, step.stride),
                step.padding,
                data_layout=self.layout,
            )
            data = nn.relu(layers.batch_norm_infer(body, f"{full}_bn", axis=axis, epsilon=2e-5, scale=False))
        return data

    def largest(self, data: Expr, stride: int = 2, pad: int = 0) -> Expr:
        """The largest of each 3x3 window."""
        return nn.max_pool2d(data, pool_size=(3, 3), strides=(stride, stride), padding=(pad, pad), layout=self.layout)

    def average(self, data: Expr) -> Expr:
        """The mean of each 3x3 window, of the zeros at the border too."""
        return nn.avg_pool2d(
            data, pool_size=(3, 3), strides=(1, 1), padding=(1, 1), layout=self.layout, count_include_pad=True
        )

    def join(self, *towers: Expr) -> Expr:
        """The channels of all towers."""
        return concatenate(towers, axis=self.layout.index("C"))


def _stem(net: _Towers, data: Expr) -> Expr:
    body = net.chain(data, "", [Step("conv", 32, (3, 3), 2), Step("conv_1", 32, (3, 3))])
    body = net.largest(net.chain(body, "", [Step("conv_2", 64, (3, 3), 1, (1, 1))]))
    return net.largest(net.chain(body, "", [Step("conv_3", 80), Step("conv_4", 192, (3, 3))]))


def _block_a(net: _Towers, data: Expr, name: str, pooled: int) -> Expr:
    double = [Step("_conv", 64), Step("_conv_1", 96, (3, 3), 1, (1, 1)), Step("_conv_2", 96, (3, 3), 1, (1, 1))]
    return net.join(
        net.chain(data, name, [Step("_conv", 64)]),
        net.chain(data, f"{name}_tower", [Step("_conv", 48), Step("_conv_1", 64, (5, 5), 1, (2, 2))]),
        net.chain(data, f"{name}_tower_1", double),
        net.chain(net.average(data), f"{name}_tower_2", [Step("_conv", pooled)]),
    )


def _block_b(net: _Towers, data: Expr, name: str) -> Expr:
    tower = [Step("_conv", 64), Step("_conv_1", 96, (3, 3), 1, (1, 1)), Step("_conv_2", 96, (3, 3), 2)]
    return net.join(
        net.chain(data, name, [Step("_conv", 384, (3, 3), 2)]),
        net.chain(data, f"{name}_tower", tower),
        net.largest(data),
    )


def _block_c(net: _Towers, data: Expr, name: str, middle: int) -> Expr:
    def row(suffix: str, filters: int) -> Step:
        return Step(suffix, filters, (1, 7), 1, (0, 3))

    def column(suffix: str, filters: int) -> Step:
        return Step(suffix, filters, (7, 1), 1, (3, 0))

    once = [Step("_conv", middle), row("_conv_1", middle), column("_conv_2", 192)]
    twice = [
        Step("_conv", middle),
        column("_conv_1", middle),
        row("_conv_2", middle),
        column("_conv_3", middle),
        row("_conv_4", 192),
    ]
    return net.join(
        net.chain(data, name, [Step("_conv", 192)]),
        net.chain(data, f"{name}_tower", once),
        net.chain(data, f"{name}_tower_1", twice),
        net.chain(net.average(data), f"{name}_tower_2", [Step("_conv", 192)]),
    )


def _block_d(net: _Towers, data: Expr, name: str) -> Expr:
    long = [
        Step("_conv", 192),
        Step("_conv_1", 192, (1, 7), 1, (0, 3)),
        Step("_conv_2", 192, (7, 1), 1, (3, 0)),
        Step("_conv_3", 192, (3, 3), 2),
    ]
    return net.join(
        net.chain(data, f"{name}_tower", [Step("_conv", 192), Step("_conv_1", 320, (3, 3), 2)]),
        net.chain(data, f"{name}_tower_1", long),
        net.largest(data),
    )


def _block_e(net: _Towers, data: Expr, name: str, pooled: Expr) -> Expr:
    row = Step("_mixed_conv", 384, (1, 3), 1, (0, 1))
    column = Step("_mixed_conv_1", 384, (3, 1), 1, (1, 0))
    short = net.chain(data, f"{name}_tower", [Step("_conv", 384)])
    long = net.chain(data, f"{name}_tower_1", [Step("_conv", 448), Step("_conv_1", 384, (3, 3), 1, (1, 1))])
    return net.join(
        net.chain(data, name, [Step("_conv", 320)]),
        net.chain(short, f"{name}_tower", [row]),
        net.chain(short, f"{name}_tower", [column]),
        net.chain(long, f"{name}_tower_1", [row]),
        net.chain(long, f"{name}_tower_1", [column]),
        net.chain(pooled, f"{name}_tower_2", [Step("_conv", 192)]),
    )
