"""Inverted residuals: widen by a 1x1 convolution, filter each channel, narrow (Sandler et al., 2018, 1801.04381).

Between filter and narrowing a squeeze-and-excite may weigh the channels (Hu et al., 2017, 1709.01507).  MobileNet v2
and v3 and EfficientNet are stacks of these.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ir.nodes import Expr
from ..op import nn
from ..op.binary import add, multiply
from . import layers

Activation = Callable[[Expr], Expr]


@dataclass(frozen=True)
class Excite:
    """A squeeze-and-excite: how many channels it has inside, what activates them, and what makes a weight of them."""

    channels: int
    activation: Activation
    gate: Activation


@dataclass(frozen=True)
class Block:
    """One inverted residual: its depthwise kernel and stride, the channels inside and those of the result."""

    name: str
    kernel: int
    stride: int
    wide: int
    out: int
    activation: Activation
    excite: Excite | None = None


@dataclass(frozen=True)
class Style:
    """What all convolutions of a network share: the layout, and the epsilon of their batch norms."""

    layout: str
    epsilon: float = 1e-5

    @property
    def axis(self) -> int:
        """Of the channels."""
        return self.layout.index("C")

    def conv_norm(self, data: Expr, name: str, channels: int, kernel: int, stride: int = 1, groups: int = 1) -> Expr:
        """A convolution that keeps the size of the image at stride 1, then a batch norm."""
        pad = kernel // 2
        sides = (kernel, kernel), (stride, stride), (pad, pad)
        body = layers.conv2d(data, name, channels, *sides, groups=groups, data_layout=self.layout)
        return layers.batch_norm_infer(body, f"{name}_bn", axis=self.axis, epsilon=self.epsilon)

    def inverted_residual(self, data: Expr, block: Block) -> Expr:
        """The block; it adds its input where that has the shape of the result."""
        given = data.shape[self.axis]
        body = data
        if block.wide != given:
            body = block.activation(self.conv_norm(body, f"{block.name}_expand", block.wide, 1))
        name = f"{block.name}_depthwise"
        body = block.activation(self.conv_norm(body, name, block.wide, block.kernel, block.stride, block.wide))
        if block.excite is not None:
            body = self.squeeze_excite(body, block.name, block.excite)
        body = self.conv_norm(body, f"{block.name}_project", block.out, 1)
        return add(body, data) if block.stride == 1 and block.out == given else body

    def squeeze_excite(self, data: Expr, name: str, excite: Excite) -> Expr:
        """The data times a weight for each channel, which follows from the means of all channels."""
        body: Expr = nn.global_avg_pool2d(data, layout=self.layout)
        body = layers.conv2d_add_bias(body, f"{name}_squeeze", excite.channels, 1, self.layout)
        body = layers.conv2d_add_bias(excite.activation(body), f"{name}_excite", data.shape[self.axis], 1, self.layout)
        return multiply(data, excite.gate(body))

    def pooled(self, data: Expr) -> Expr:
        """The means of all channels, `[batch, channels]`."""
        return nn.batch_flatten(nn.global_avg_pool2d(data, layout=self.layout))
