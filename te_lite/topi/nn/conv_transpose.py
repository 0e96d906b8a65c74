"""Transposed convolutions: dilate, pad, and convolve with the mirrored filter."""

from __future__ import annotations

from collections.abc import Sequence

from ...computation.tensor import Tensor, compute
from ...errors import ExprError, require
from ...expr import reduction
from ...expr.expr import Expr, cast
from ..tag import INJECTIVE
from ..utils import per_dim
from .conv import Ints
from .pad import dilate, pad
from .utils import Padding, get_pad_tuple_generic

WINDOW_AXES = {1: ("w",), 2: ("h", "w"), 3: ("d", "h", "w")}


def transpose_padding(
    kernel: tuple[int, ...], strides: tuple[int, ...], padding: Padding, output_padding: tuple[int, ...]
) -> tuple[list[int], list[int]]:
    """How much the dilated data is padded before and after.

    Raises ExprError when the padding exceeds the kernel or the output padding reaches the stride.
    """
    front, back = get_pad_tuple_generic(padding, kernel)
    ok = all(0 <= o < s for o, s in zip(output_padding, strides, strict=True))
    require(ok, ExprError, "conv_transpose", "output_padding must be less than the stride",
            output_padding=output_padding, strides=strides)  # fmt: skip
    before = [k - 1 - p for k, p in zip(kernel, front, strict=True)]
    after = [k - 1 - p + o for k, p, o in zip(kernel, back, output_padding, strict=True)]
    ok = min(*before, *after) >= 0
    require(ok, ExprError, "conv_transpose", "padding must be less than the kernel", padding=padding, kernel=kernel)
    return before, after


def _conv_transpose(
    data: Tensor, weight: Tensor, stride: Ints, padding: Padding, out_dtype: str | None, output_padding: Ints, tag: str
) -> Tensor:
    n = data.ndim - 2
    require(weight.ndim == data.ndim and weight.shape[0] == data.shape[1], ExprError, tag,
            "the weight must be [CI, CO, kernel ...]", data=data.shape, weight=weight.shape)  # fmt: skip
    strides, extra = per_dim(stride, n, "strides"), per_dim(output_padding, n, "output_padding")
    batch, channels, *_ = data.shape
    filters, kernel = weight.shape[1], weight.shape[2:]
    before, after = transpose_padding(kernel, strides, padding, extra)
    spread = dilate(data, (1, 1, *strides), name="data_dilate")
    padded = pad(spread, (0, 0, *before), (0, 0, *after), name="data_pad")
    names = WINDOW_AXES[n]
    turned = _mirrored(weight, names)
    dc = reduction.reduce_axis((0, channels), "dc")
    window = [reduction.reduce_axis((0, k), f"d{name}") for k, name in zip(kernel, names, strict=True)]
    dtype = out_dtype or data.dtype

    def element(*i: Expr) -> Expr:
        read = padded(i[0], dc, *[v + r for v, r in zip(i[2:], window, strict=True)])
        return reduction.sum(cast(dtype, read) * cast(dtype, turned(i[1], dc, *window)), axis=[dc, *window])

    shape = [p - k + 1 for p, k in zip(padded.shape[2:], kernel, strict=True)]
    return compute((batch, filters, *shape), element, tag=tag, varargs_names=["b", "c", *names])


def _mirrored(weight: Tensor, names: Sequence[str]) -> Tensor:
    """A weight [CI, CO, kernel ...] as [CO, CI, kernel ...] with the window turned round."""
    channels, filters, *kernel = weight.shape

    def element(*i: Expr) -> Expr:
        return weight(i[1], i[0], *[k - 1 - v for k, v in zip(kernel, i[2:], strict=True)])

    axes = ["o", "i", *names]
    return compute((filters, channels, *kernel), element, "kernel_transform", INJECTIVE, varargs_names=axes)


def conv1d_transpose_ncw(data: Tensor, kernel: Tensor, stride: Ints, padding: Padding, out_dtype: str | None = None,
                         output_padding: Ints = 0) -> Tensor:  # fmt: skip
    """[N, CI, W] with [CI, CO, K] gives [N, CO, (W - 1) * stride + K - padding + output_padding]."""
    return _conv_transpose(data, kernel, stride, padding, out_dtype, output_padding, "conv1d_transpose_ncw")


def conv2d_transpose_nchw(Input: Tensor, Filter: Tensor, strides: Ints, padding: Padding, out_dtype: str | None = None,
                          output_padding: Ints = 0) -> Tensor:  # fmt: skip
    """[N, CI, H, W] with [CI, CO, KH, KW]; `output_padding` must be less than the stride."""
    return _conv_transpose(Input, Filter, strides, padding, out_dtype, output_padding, "conv2d_transpose_nchw")


def conv3d_transpose_ncdhw(Input: Tensor, Filter: Tensor, strides: Ints, padding: Padding, out_dtype: str | None = None,
                           output_padding: Ints = 0) -> Tensor:  # fmt: skip
    """[N, CI, D, H, W] with [CI, CO, KD, KH, KW]."""
    return _conv_transpose(Input, Filter, strides, padding, out_dtype, output_padding, "conv3d_transpose_ncdhw")
