"""Winograd convolution as two operators, so that the transformed weight can be computed before the network runs.

Y = A^T [ (G g G^T) * (B^T d B) ] A      a tile of m x m results from a x a data, a = m + 2
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require
from te_lite.topi.nn import winograd_transform_matrices
from te_lite.topi.utils import get_const_int

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .conv import Ints, check_named, conv_call, conv_defaults
from .define import Array, define, dtype_of, floats, rank, same_dtype, tensors
from .numpy_windows import windows
from .window import Window

CONV = "nn.contrib_conv2d_winograd_without_weight_transform"
WEIGHT = "nn.contrib_conv2d_winograd_weight_transform"


def _matrices(tile_size: Any, dtype: Any = np.float64) -> tuple[Array, Array, Array]:
    """(A, B, G) as arrays."""
    exact = winograd_transform_matrices(get_const_int(tile_size))
    a, b, g = (np.array([[float(v) for v in row] for row in matrix], dtype) for matrix in exact)
    return a, b, g


def _weight_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (weight,) = tensors(types, 1, WEIGHT)
    filters, channels, *kernel = rank(weight, 4, WEIGHT)
    floats(weight, WEIGHT)
    require(kernel == [3, 3], GraphError, WEIGHT, "the weight must be [CO, CI, 3, 3]", weight=weight.shape)
    a = len(_matrices(attrs["tile_size"])[2])
    return TensorType((a, a, filters, channels), weight.dtype)


def _weight_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    (weight,) = args
    _, _, g = _matrices(attrs["tile_size"], weight.dtype)
    filters, channels, *_ = weight.shape
    rows = g @ weight.transpose(2, 3, 0, 1).reshape(3, -1)
    made: Array = (g @ rows.reshape(len(g), 3, -1)).reshape(len(g), len(g), filters, channels)
    return made


define(
    WEIGHT,
    OpPattern.OUT_ELEMWISE_FUSABLE,
    _weight_type,
    _weight_numpy,
    lambda args, attrs, target: [topi.nn.conv2d_winograd_weight_transform(args[0], attrs["tile_size"])],
    tile_size=4,
)


def _conv_window(attrs: Attrs) -> Window:
    window = Window.of(3, attrs["strides"], attrs["dilation"], attrs["padding"], 2, CONV)
    plain = window.strides == window.dilation == (1, 1) and attrs["groups"] == 1
    law = "strides, dilation and groups must be 1"
    require(plain, GraphError, CONV, law, strides=window.strides, dilation=window.dilation, groups=attrs["groups"])
    return window


def _conv_type(types: Sequence[Type], attrs: Attrs) -> Type:
    data, weight = tensors(types, 2, CONV)
    batch, height, width, channels = rank(data, 4, CONV)
    a, a_, filters, weight_channels = rank(weight, 4, CONV)
    floats(data, CONV)
    same_dtype([data, weight], CONV)
    layouts = (attrs["data_layout"], attrs["kernel_layout"])
    require(layouts == ("NHWC", "HWIO"), GraphError, CONV, "the layouts must be NHWC and HWIO", layouts=layouts)
    alpha = len(_matrices(attrs["tile_size"])[2])
    fits = (a, a_, weight_channels) == (alpha, alpha, channels)
    law = f"the transformed weight must be [{alpha}, {alpha}, CO, {channels}]"
    require(fits, GraphError, CONV, law, weight=weight.shape)
    check_named(attrs, filters, (3, 3), CONV)
    out_h, out_w = _conv_window(attrs).extents((height, width), CONV)
    return TensorType((batch, out_h, out_w, filters), dtype_of(attrs["out_dtype"], data.dtype, CONV))


def _conv_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    dtype = attrs["out_dtype"] or args[0].dtype
    data, weight = args[0].astype(dtype), args[1].astype(dtype)
    m, window = attrs["tile_size"], _conv_window(attrs)
    a, b, _ = _matrices(m, dtype)
    batch, height, width, channels = data.shape
    out_h, out_w = window.extents((height, width), CONV)
    rows, columns = -(-out_h // m), -(-out_w // m)
    padded = window.padded(data.transpose(0, 3, 1, 2), 0, (rows * m - out_h, columns * m - out_w))
    tiles = windows(padded, b.shape, (m, m), (1, 1))
    points = (b.T @ tiles @ b).transpose(4, 5, 0, 2, 3, 1).reshape(*b.shape, -1, channels)
    products = points @ weight.swapaxes(-1, -2)
    filters = weight.shape[2]
    results = a.T @ products.reshape(*b.shape, batch, rows, columns, filters).transpose(2, 3, 4, 5, 0, 1) @ a
    whole = results.transpose(0, 1, 4, 2, 5, 3).reshape(batch, rows * m, columns * m, filters)
    return np.ascontiguousarray(whole[:, :out_h, :out_w])


def _conv_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    """As in TVM, or one axis of the tiles after the other, which is less work on a CPU."""
    data, weight, padding, m = args[0], args[1], _conv_window(attrs).padding, attrs["tile_size"]
    dtype = attrs["out_dtype"] or data.dtype
    if attrs["by_axis"] and dtype == data.dtype:
        return [topi.nn.conv_winograd_by_axis(data, weight, padding, m, transformed=True)]
    return [topi.nn.conv2d_winograd_nhwc_without_weight_transform(data, weight, 1, padding, 1, dtype, m)]


define(
    CONV,
    OpPattern.OUT_ELEMWISE_FUSABLE,
    _conv_type,
    _conv_numpy,
    _conv_te,
    tile_size=4,
    by_axis=False,
    **conv_defaults(2, "NHWC", "HWIO"),
)


def contrib_conv2d_winograd_weight_transform(weight: Expr, tile_size: int) -> Call:
    """[CO, CI, 3, 3] as [a, a, CO, CI], a = tile_size + 2: `G g G^T` for every filter and channel."""
    return call(WEIGHT, weight, tile_size=tile_size)


def contrib_conv2d_winograd_without_weight_transform(
    data: Expr,
    weight: Expr,
    tile_size: int,
    strides: Ints = (1, 1),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Ints | None = None,
    data_layout: str = "NHWC",
    kernel_layout: str = "HWIO",
    out_layout: str = "",
    out_dtype: str = "",
    by_axis: bool = False,
) -> Call:
    """3x3 convolution of [N, H, W, CI] with a transformed weight [a, a, CO, CI], a = tile_size + 2.

    Tiles are transformed whole, as in TVM, or `by_axis`, one axis after the other.
    """
    return conv_call(CONV, 2, data, weight, strides, padding, dilation, kernel_size, tile_size=tile_size, groups=groups,
                     channels=channels, data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
                     out_dtype=out_dtype, by_axis=by_axis)  # fmt: skip
