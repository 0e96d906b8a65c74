"""The transposed convolution that front ends use for CUDA targets."""

from __future__ import annotations

from collections.abc import Sequence

from ...computation.tensor import Tensor, compute
from ...errors import ExprError, require
from ...expr import reduction
from ...expr.expr import Expr, as_expr, cast, if_then_else, logical_and
from ..nn.conv import Ints
from ..nn.conv_transpose import transpose_padding
from ..nn.utils import Padding
from ..utils import per_dim


def conv2d_transpose_nchw(
    data: Tensor,
    kernel: Tensor,
    stride: Ints,
    padding: Padding,
    out_dtype: str | None = None,
    output_padding: Ints = 0,
    groups: int = 1,
) -> Tensor:
    """[N, CI, H, W] with [CI, CO / groups, KH, KW], dilation and padding merged into the one stage `data_pad`."""
    batch, channels, _, _ = data.shape
    in_channels, filters, kh, kw = kernel.shape
    fits = channels == in_channels and channels % groups == 0
    require(fits, ExprError, "conv2d_transpose_nchw", "the channels of data, weight and groups do not fit",
            data=data.shape, weight=kernel.shape, groups=groups)  # fmt: skip
    strides, extra = per_dim(stride, 2, "strides"), per_dim(output_padding, 2, "output_padding")
    before, after = transpose_padding((kh, kw), strides, padding, extra)
    padded = _dilated_and_padded(data, strides, before, after)
    dc = reduction.reduce_axis((0, channels // groups), "dc")
    dh, dw = reduction.reduce_axis((0, kh), "dh"), reduction.reduce_axis((0, kw), "dw")
    dtype = out_dtype or data.dtype

    def element(b: Expr, c: Expr, h: Expr, w: Expr) -> Expr:
        channel = c // filters * (channels // groups) + dc
        read = padded[b, channel, h + dh, w + dw]
        weight = kernel[channel, c % filters, kh - 1 - dh, kw - 1 - dw]
        return reduction.sum(cast(dtype, read) * cast(dtype, weight), axis=[dc, dh, dw])

    shape = (batch, filters * groups, padded.shape[2] - kh + 1, padded.shape[3] - kw + 1)
    return compute(shape, element, tag="conv2d_transpose_nchw")


def _dilated_and_padded(data: Tensor, strides: Sequence[int], before: Sequence[int], after: Sequence[int]) -> Tensor:
    """[N, C, H, W] with its elements `strides` apart and zeros between and around: the stage `data_pad`."""
    batch, channels, height, width = data.shape
    (sh, sw), (top, left), (bottom, right) = strides, before, after
    tall, wide = (height - 1) * sh + 1, (width - 1) * sw + 1
    zero = as_expr(0.0, data.dtype)

    def hit(v: Expr, first: int, extent: int, step: int) -> list[Expr]:
        return [v >= first, v < first + extent, ((v - first) % step).equal(0)]

    def element(n: Expr, c: Expr, y: Expr, x: Expr) -> Expr:
        inside = logical_and(*hit(x, left, wide, sw), *hit(y, top, tall, sh))
        return if_then_else(inside, data[n, c, (y - top) // sh, (x - left) // sw], zero)

    shape = (batch, channels, tall + top + bottom, wide + left + right)
    return compute(shape, element, name="data_pad")
