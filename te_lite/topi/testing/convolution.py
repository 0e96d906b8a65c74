"""Convolutions in NumPy: windows as a strided view, contracted by matrix multiplication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ExprError, require
from ...meaning.reference_expr import Array
from ..nn.utils import Padding, get_pad_tuple_generic
from ..utils import per_dim

Ints = int | Sequence[int]


def windows(x: Array, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> Array:
    """Every window of `x` [.., spatial] over its last dimensions: a view [.., positions, kernel]."""
    n = len(kernel)
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(x, spans, axis=tuple(range(-n, 0)))
    step = [slice(None)] * (x.ndim - n) + [slice(None, None, s) for s in (*strides, *dilation)]
    out: Array = view[tuple(step)]
    return out


def convolve(x: Array, w: Array, stride: Ints, padding: Padding, dilation: Ints = 1, groups: int = 1) -> Array:
    """[N, C, spatial ...] with [O, C / groups, kernel ...], any number of spatial dimensions."""
    n = x.ndim - 2
    ok = w.ndim == x.ndim and x.shape[1] == w.shape[1] * groups and w.shape[0] % groups == 0
    require(ok, ExprError, "testing.conv", "data, weight and groups do not fit", data=x.shape, weight=w.shape,
            groups=groups)  # fmt: skip
    strides, dilations = per_dim(stride, n, "stride"), per_dim(dilation, n, "dilation")
    kernel = w.shape[2:]
    before, after = get_pad_tuple_generic(padding, [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)])
    padded = np.pad(x, [(0, 0), (0, 0), *zip(before, after, strict=True)])
    parts = []
    for data, weight in zip(np.split(padded, groups, 1), np.split(w, groups, 0), strict=True):
        view = windows(data, kernel, strides, dilations)
        inner = [1, *range(2 + n, 2 + 2 * n)]
        parts.append(np.moveaxis(np.tensordot(view, weight, (inner, [1, *range(2, 2 + n)])), -1, 1))
    return np.ascontiguousarray(np.concatenate(parts, 1))


def convolve_transposed(x: Array, w: Array, stride: Ints, padding: Padding, output_padding: Ints = 0) -> Array:
    """[N, CI, spatial ...] with [CI, CO, kernel ...]: the gradient of a convolution with respect to its data."""
    n = x.ndim - 2
    strides, extra = per_dim(stride, n, "stride"), per_dim(output_padding, n, "output_padding")
    kernel = w.shape[2:]
    before, after = get_pad_tuple_generic(padding, kernel)
    full = [(d - 1) * s + k + o for d, s, k, o in zip(x.shape[2:], strides, kernel, extra, strict=True)]
    out = np.zeros((x.shape[0], w.shape[1], *full), np.result_type(x, w))
    for at in np.ndindex(*kernel):
        tap: Any = (slice(None), slice(None), *at)
        term = np.moveaxis(np.tensordot(x, w[tap], (1, 0)), -1, 1)
        steps = [slice(a, a + (d - 1) * s + 1, s) for a, d, s in zip(at, x.shape[2:], strides, strict=True)]
        where: Any = (slice(None), slice(None), *steps)
        out[where] += term
    cut = [slice(b, f - a) for b, f, a in zip(before, full, after, strict=True)]
    inside: Any = (slice(None), slice(None), *cut)
    return np.ascontiguousarray(out[inside])


def _first(x: Array) -> Array:
    """Channels last to channels first."""
    return np.moveaxis(x, -1, 1)


def _last(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def _weight_first(w: Array) -> Array:
    """[kernel ..., I, O] to [O, I, kernel ...]."""
    return np.moveaxis(w, [-1, -2], [0, 1])


def conv1d_ncw_python(a_np: Array, w_np: Array, stride: Ints, padding: Padding, dilation: Ints = 1) -> Array:
    """[N, C, W] with [O, I, W]."""
    return convolve(a_np, w_np, stride, padding, dilation)


def group_conv1d_ncw_python(
    a_np: Array, w_np: Array, stride: Ints, padding: Padding, dilation: Ints, groups: int
) -> Array:
    """[N, C, W] with [O, I / groups, W]."""
    return convolve(a_np, w_np, stride, padding, dilation, groups)


def conv1d_nwc_python(a_np: Array, w_np: Array, stride: Ints, padding: Padding, dilation: Ints = 1) -> Array:
    """[N, W, C] with [W, I, O]."""
    return _last(convolve(_first(a_np), _weight_first(w_np), stride, padding, dilation))


def conv2d_nchw_python(
    a_np: Array, w_np: Array, stride: Ints, padding: Padding, groups: int = 1, dilation: Ints = 1
) -> Array:
    """[N, C, H, W] with [O, I / groups, KH, KW]; padding as in `topi.nn.get_pad_tuple`."""
    return convolve(a_np, w_np, stride, padding, dilation, groups)


def conv2d_nhwc_python(
    a_np: Array, w_np: Array, stride: Ints, padding: Padding, groups: int = 1, dilation: Ints = 1
) -> Array:
    """[N, H, W, C] with [KH, KW, I / groups, O]."""
    return _last(convolve(_first(a_np), _weight_first(w_np), stride, padding, dilation, groups))


def conv2d_hwcn_python(a_np: Array, w_np: Array, stride: Ints, padding: Padding, dilation: Ints = 1) -> Array:
    """[H, W, C, N] with [KH, KW, I, O]."""
    out = convolve(a_np.transpose(3, 2, 0, 1), _weight_first(w_np), stride, padding, dilation)
    return np.ascontiguousarray(out.transpose(2, 3, 1, 0))


def conv3d_ncdhw_python(
    a_np: Array, w_np: Array, stride: Ints, padding: Padding, groups: int = 1, dilation: Ints = 1
) -> Array:
    """[N, C, D, H, W] with [O, I / groups, KD, KH, KW]."""
    return convolve(a_np, w_np, stride, padding, dilation, groups)


def conv3d_ndhwc_python(
    a_np: Array, w_np: Array, stride: Ints, padding: Padding, groups: int = 1, dilation: Ints = 1
) -> Array:
    """[N, D, H, W, C] with [KD, KH, KW, I / groups, O]."""
    return _last(convolve(_first(a_np), _weight_first(w_np), stride, padding, dilation, groups))


def depthwise_conv2d_python_nchw(
    input_np: Array, filter_np: Array, stride: Ints, padding: Padding, dilation: Ints = 1
) -> Array:
    """[N, C, H, W] with [C, M, KH, KW] gives [N, C * M, OH, OW]."""
    channels, multiplier, *kernel = filter_np.shape
    weight = filter_np.reshape(channels * multiplier, 1, *kernel)
    return convolve(input_np, weight, stride, padding, dilation, groups=channels)


def depthwise_conv2d_python_nhwc(
    input_np: Array, filter_np: Array, stride: Ints, padding: Padding, dilation: Ints = 1
) -> Array:
    """[N, H, W, C] with [KH, KW, C, M] gives [N, OH, OW, C * M]."""
    out = depthwise_conv2d_python_nchw(_first(input_np), filter_np.transpose(2, 3, 0, 1), stride, padding, dilation)
    return _last(out)


def conv1d_transpose_ncw_python(
    a_np: Array, w_np: Array, stride: Ints, padding: Padding, output_padding: Ints = 0
) -> Array:
    """[N, CI, W] with [CI, CO, K]."""
    return convolve_transposed(a_np, w_np, stride, padding, output_padding)


def conv2d_transpose_nchw_python(
    a_np: Array, w_np: Array, stride: Ints, padding: Padding, output_padding: Ints = 0
) -> Array:
    """[N, CI, H, W] with [CI, CO, KH, KW]."""
    return convolve_transposed(a_np, w_np, stride, padding, output_padding)


def conv2d_transpose_nhwc_python(
    a_np: Array, w_np: Array, stride: Ints, padding: Padding, output_padding: Ints = 0
) -> Array:
    """[N, H, W, CI] with [KH, KW, CI, CO]."""
    return _last(convolve_transposed(_first(a_np), w_np.transpose(2, 3, 0, 1), stride, padding, output_padding))


def conv3d_transpose_ncdhw_python(
    data_np: Array, weight_np: Array, stride: Ints, padding: Padding, output_padding: Ints = 0
) -> Array:
    """[N, CI, D, H, W] with [CI, CO, KD, KH, KW]."""
    return convolve_transposed(data_np, weight_np, stride, padding, output_padding)


def dilate_python(input_np: Array, strides: Ints, dilation_value: float = 0.0) -> Array:
    """The elements of an array spread `strides` apart."""
    steps = per_dim(strides, input_np.ndim, "strides")
    shape = [(n - 1) * s + 1 for n, s in zip(input_np.shape, steps, strict=True)]
    out = np.full(shape, dilation_value, input_np.dtype)
    out[tuple([slice(None, None, s) for s in steps])] = input_np
    return out
