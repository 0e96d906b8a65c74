"""Operators together with their parameters: what the networks are made of.

`conv2d(x, name="conv1", channels=64, kernel_size=(3, 3))` makes the parameter `conv1_weight` of the right shape.  The
layout of a weight follows from the layout of the data unless it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import var
from ..ir.nodes import Expr, TupleGetItem, const
from ..op import nn
from ..op.binary import add, multiply
from ..op.elementwise import rsqrt
from ..op.pick import take
from ..op.reduce import mean

_KERNEL = {"NCHW": "OIHW", "NHWC": "HWIO", "NCDHW": "OIDHW", "NDHWC": "DHWIO"}
_DEPTHWISE = {"NCHW": "OIHW", "NHWC": "HWOI"}
_TRANSPOSED = {"NCHW": "IOHW", "NHWC": "HWOI"}


def image_input(batch_size: int, image_shape: Sequence[int], layout: str, dtype: str, smallest: int = 1) -> Expr:
    """The input `data` of a network: `[batch_size, *image_shape]`, where `image_shape` has the letters of `layout[1:]`.

    Raises GraphError for an unknown layout, a wrong rank, or an image with an extent below `smallest`.
    """
    require(layout in _KERNEL, GraphError, "network", f"layouts are {', '.join(_KERNEL)}", layout=layout)
    law = f"an image has the axes {layout[1:]}"
    require(len(image_shape) == len(layout) - 1, GraphError, "network", law, image_shape=tuple(image_shape))
    sides = [extent for letter, extent in zip(layout[1:], image_shape, strict=True) if letter in "HW"]
    law = f"the sides of an image {layout[1:]} must be at least {smallest}"
    require(min(sides) >= smallest, GraphError, "network", law, image_shape=tuple(image_shape))
    return var("data", shape=(batch_size, *image_shape), dtype=dtype)


def conv_kernel_layout(data_layout: str, is_depthwise: bool = False) -> str:
    """The layout of a weight for a layout of data.  Raises GraphError for an unknown one."""
    known = _DEPTHWISE if is_depthwise else _KERNEL
    require(data_layout in known, GraphError, "convolution", f"layouts are {', '.join(known)}", data_layout=data_layout)
    return known[data_layout]


def conv2d(
    data: Expr,
    name: str,
    channels: int,
    kernel_size: Sequence[int],
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
) -> Expr:
    """A convolution without bias; makes `{name}_weight`."""
    depthwise = 1 < groups == channels
    layout = kernel_layout or conv_kernel_layout(data_layout, depthwise)
    weight = _weight(data, name, channels, kernel_size, groups, data_layout, layout)
    return nn.conv2d(
        data,
        weight,
        strides=tuple(strides),
        padding=tuple(padding),
        dilation=tuple(dilation),
        groups=groups,
        channels=channels,
        kernel_size=tuple(kernel_size),
        data_layout=data_layout,
        kernel_layout=layout,
    )


def conv2d_add_bias(
    data: Expr,
    name: str,
    channels: int,
    kernel: int,
    data_layout: str,
    stride: int = 1,
    padding: int = 0,
    groups: int = 1,
) -> Expr:
    """A square convolution; makes `{name}_weight` and `{name}_bias`."""
    sides = (kernel, kernel), (stride, stride), (padding, padding)
    body = conv2d(data, name, channels, *sides, groups=groups, data_layout=data_layout)
    return bias_add(body, name, axis=data_layout.index("C"))


def conv3d(
    data: Expr,
    name: str,
    channels: int,
    kernel_size: Sequence[int],
    strides: Sequence[int] = (1, 1, 1),
    padding: Sequence[int] = (0, 0, 0),
    data_layout: str = "NCDHW",
    kernel_layout: str = "",
) -> Expr:
    """A convolution over depth, height and width without bias; makes `{name}_weight`."""
    layout = kernel_layout or conv_kernel_layout(data_layout)
    weight = _weight(data, name, channels, kernel_size, 1, data_layout, layout)
    return nn.conv3d(
        data,
        weight,
        strides=tuple(strides),
        padding=tuple(padding),
        channels=channels,
        kernel_size=tuple(kernel_size),
        data_layout=data_layout,
        kernel_layout=layout,
    )


def conv(data: Expr, layout: str, **attrs: Any) -> Expr:
    """`conv2d` or `conv3d`, as the layout of the data says."""
    return (conv3d if "D" in layout else conv2d)(data, data_layout=layout, **attrs)


def conv2d_transpose(
    data: Expr,
    name: str,
    channels: int,
    kernel_size: Sequence[int],
    strides: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    output_padding: Sequence[int] = (0, 0),
    data_layout: str = "NCHW",
) -> Expr:
    """A transposed convolution without bias; makes `{name}_weight`, IOHW or HWOI."""
    layout = _TRANSPOSED[data_layout]
    weight = _weight(data, name, channels, kernel_size, 1, data_layout, layout)
    return nn.conv2d_transpose(
        data,
        weight,
        strides=tuple(strides),
        padding=tuple(padding),
        output_padding=tuple(output_padding),
        channels=channels,
        kernel_size=tuple(kernel_size),
        data_layout=data_layout,
        kernel_layout=layout,
    )


def bias_add(data: Expr, name: str, axis: int = 1) -> Expr:
    """Adds `{name}_bias` along an axis."""
    return nn.bias_add(data, _vector(data, f"{name}_bias", axis), axis=axis)


def batch_norm_infer(
    data: Expr, name: str, axis: int = 1, epsilon: float = 1e-5, center: bool = True, scale: bool = True
) -> Expr:
    """A batch norm with known statistics; makes `{name}_gamma`, `_beta`, `_moving_mean` and `_moving_var`.

    All four exist even when `center` or `scale` says that one is not used.
    """
    names = ("gamma", "beta", "moving_mean", "moving_var")
    gamma, beta, mean, variance = (_vector(data, f"{name}_{part}", axis) for part in names)
    return TupleGetItem(nn.batch_norm(data, gamma, beta, mean, variance, axis, epsilon, center, scale), 0)


def layer_norm(data: Expr, name: str, epsilon: float = 1e-5, axis: int = -1) -> Expr:
    """A layer norm over one axis; makes `{name}_gamma` and `{name}_beta`."""
    gamma, beta = _vector(data, f"{name}_gamma", axis), _vector(data, f"{name}_beta", axis)
    return nn.layer_norm(data, gamma, beta, axis=axis, epsilon=epsilon)


def rms_norm(data: Expr, name: str, epsilon: float = 1e-6) -> Expr:
    """`x / sqrt(mean(x^2) + epsilon) * gamma` over the last axis; makes `{name}_gamma` (1910.07467)."""
    squares = mean(multiply(data, data), axis=-1, keepdims=True)
    spread = rsqrt(add(squares, const(epsilon, data.dtype)))
    return multiply(multiply(data, spread), _vector(data, f"{name}_gamma", -1))


def embedding(indices: Expr, name: str, rows: int, units: int, dtype: str) -> Expr:
    """A row of a table for each index; makes `{name}_weight` `[rows, units]`."""
    return take(var(f"{name}_weight", shape=(rows, units), dtype=dtype), indices, axis=0)


def dense(data: Expr, units: int, name: str) -> Expr:
    """`[batch, in] -> [batch, units]` without bias; makes `{name}_weight` `[units, in]`."""
    weight = var(f"{name}_weight", shape=(units, data.shape[-1]), dtype=data.dtype)
    return nn.dense(data, weight, units=units)


def dense_add_bias(data: Expr, units: int, name: str) -> Expr:
    """`[batch, in] -> [batch, units]`; makes `{name}_weight` `[units, in]` and `{name}_bias`."""
    return bias_add(dense(data, units, name), name, axis=-1)


def _vector(data: Expr, name: str, axis: int) -> Expr:
    """A parameter along one axis of the data."""
    return var(name, shape=(data.shape[axis],), dtype=data.dtype)


def _weight(
    data: Expr, name: str, channels: int, kernel_size: Sequence[int], groups: int, data_layout: str, kernel_layout: str
) -> Expr:
    """The weight of a convolution; its axes are those of `kernel_layout`."""
    extents = {"O": channels, "I": data.shape[data_layout.index("C")] // groups}
    extents |= zip("DHW"[-len(kernel_size) :], kernel_size, strict=True)
    return var(f"{name}_weight", shape=tuple(extents[letter] for letter in kernel_layout), dtype=data.dtype)
