"""Depthwise convolutions: every channel has its own filters."""

from __future__ import annotations

from ... import reduction
from ...errors import ExprError, require
from ...expr import Expr, cast
from ...tensor import Tensor, compute
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
    dtype = out_dtype or data.dtype
    di, dj = reduction.reduce_axis((0, kh), "di"), reduction.reduce_axis((0, kw), "dj")

    def product(b: Expr, i: Expr, j: Expr, c: Expr) -> Expr:
        y, x, channel, m = i * sh + di * dh, j * sw + dj * dw, c // multiplier, c % multiplier
        read = padded[b, y, x, channel] if channels_last else padded[b, channel, y, x]
        weight = filt[di, dj, channel, m] if channels_last else filt[channel, m, di, dj]
        return reduction.sum(cast(dtype, read) * cast(dtype, weight), axis=[di, dj])

    if channels_last:
        padded = pad(data, (0, top, left, 0), (0, bottom, right, 0), name="PaddedInput")
        return compute(
            (batch, out_h, out_w, channels * multiplier),
            lambda b, i, j, c: product(b, i, j, c),
            "DepthwiseConv2d",
            "depthwise_conv2d_nhwc",
        )
    padded = pad(data, (0, 0, top, left), (0, 0, bottom, right), name="PaddedInput")
    return compute(
        (batch, channels * multiplier, out_h, out_w),
        lambda b, c, i, j: product(b, i, j, c),
        "DepthwiseConv2d",
        "depthwise_conv2d_nchw",
    )
