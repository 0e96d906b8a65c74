"""Depthwise convolutions: every channel has its own filters."""

from __future__ import annotations

from collections.abc import Callable

from ...computation.tensor import Tensor, compute
from ...errors import ExprError, require
from ...expr import reduction
from ...expr.expr import Expr, cast
from ..utils import conv_extent, per_dim
from .conv import Ints
from .pad import pad
from .utils import Padding, get_pad_tuple


def depthwise_conv2d_nchw(Input: Tensor, Filter: Tensor, stride: Ints, padding: Padding, dilation: Ints,
                          out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """[N, C, H, W] with [C, M, KH, KW] gives [N, C * M, OH, OW]; stages `PaddedInput`, `DepthwiseConv2d`."""
    return _depthwise(Input, Filter, stride, padding, dilation, out_dtype, channels_last=False)


def depthwise_conv2d_nhwc(Input: Tensor, Filter: Tensor, stride: Ints, padding: Padding, dilation: Ints,
                          kernel_layout: str = "HWOI", out_dtype: str | None = None) -> Tensor:  # fmt: skip
    """[N, H, W, C] with [KH, KW, C, M] ("HWOI") gives [N, OH, OW, C * M]."""
    law = "the kernel layout must be HWOI"
    require(kernel_layout == "HWOI", ExprError, "depthwise_conv2d_nhwc", law, kernel_layout=kernel_layout)
    return _depthwise(Input, Filter, stride, padding, dilation, out_dtype, channels_last=True)


def _depthwise(
    data: Tensor,
    filt: Tensor,
    stride: Ints,
    padding: Padding,
    dilation: Ints,
    out_dtype: str | None,
    channels_last: bool,
) -> Tensor:
    require(data.ndim == 4 and filt.ndim == 4, ExprError, "depthwise_conv2d", "data and weight must have 4 dimensions",
            data=data.shape, weight=filt.shape)  # fmt: skip
    (batch, height, width, channels) = data.shape if channels_last else [data.shape[d] for d in (0, 2, 3, 1)]
    (kh, kw, groups, multiplier) = filt.shape if channels_last else [filt.shape[d] for d in (2, 3, 0, 1)]
    require(channels == groups, ExprError, "depthwise_conv2d", "data and weight must have equal channels",
            data=data.shape, weight=filt.shape)  # fmt: skip
    (sh, sw), (dh, dw) = per_dim(stride, 2, "stride"), per_dim(dilation, 2, "dilation")
    top, left, bottom, right = get_pad_tuple(padding, ((kh - 1) * dh + 1, (kw - 1) * dw + 1))
    out_h, out_w = conv_extent(height, kh, sh, top, bottom, dh), conv_extent(width, kw, sw, left, right, dw)
    sides = [(0, *p, 0) if channels_last else (0, 0, *p) for p in ((top, left), (bottom, right))]
    padded = pad(data, sides[0], sides[1], name="PaddedInput")
    product = _product(padded, filt, (sh, sw), (dh, dw), out_dtype or data.dtype, channels_last)
    if channels_last:
        shape = (batch, out_h, out_w, channels * multiplier)
        return compute(shape, lambda b, i, j, c: product(b, i, j, c), "DepthwiseConv2d", "depthwise_conv2d_nhwc")
    shape = (batch, channels * multiplier, out_h, out_w)
    return compute(shape, lambda b, c, i, j: product(b, i, j, c), "DepthwiseConv2d", "depthwise_conv2d_nchw")


def _product(
    padded: Tensor, filt: Tensor, strides: tuple[int, ...], dilations: tuple[int, ...], dtype: str, channels_last: bool
) -> Callable[[Expr, Expr, Expr, Expr], Expr]:
    """The sum over the window at row i, column j of channel c."""
    (sh, sw), (dh, dw) = strides, dilations
    kh, kw, multiplier = [filt.shape[d] for d in ((0, 1, 3) if channels_last else (2, 3, 1))]
    di, dj = reduction.reduce_axis((0, kh), "di"), reduction.reduce_axis((0, kw), "dj")

    def product(b: Expr, i: Expr, j: Expr, c: Expr) -> Expr:
        y, x, channel, m = i * sh + di * dh, j * sw + dj * dw, c // multiplier, c % multiplier
        read = padded[b, y, x, channel] if channels_last else padded[b, channel, y, x]
        weight = filt[di, dj, channel, m] if channels_last else filt[channel, m, di, dj]
        return reduction.sum(cast(dtype, read) * cast(dtype, weight), axis=[di, dj])

    return product
