"""What operators of topi compute, written directly in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relay_lite.op.numpy_windows import Array, Ints, convolve, convolve_transposed
from te_lite.topi.nn.utils import Padding
from te_lite.topi.utils import conv_extent, layout_axes, per_dim


def _first(x: Array) -> Array:
    """Channels last to channels first."""
    return np.moveaxis(x, -1, 1)


def _last(x: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def convolve_last(x: Array, w: Array, stride: Ints, padding: Padding, dilation: Ints = 1, groups: int = 1) -> Array:
    """[N, spatial ..., C] with [kernel ..., I / groups, O]."""
    return _last(convolve(_first(x), np.moveaxis(w, [-1, -2], [0, 1]), stride, padding, dilation, groups))


def convolve_hwcn(x: Array, w: Array, stride: Ints, padding: Padding, dilation: Ints = 1) -> Array:
    """[H, W, C, N] with [KH, KW, I, O]."""
    out = convolve_last(x.transpose(3, 0, 1, 2), w, stride, padding, dilation)
    return np.ascontiguousarray(out.transpose(1, 2, 3, 0))


def convolve_depthwise(x: Array, w: Array, stride: Ints, padding: Padding, dilation: Ints = 1) -> Array:
    """[N, C, H, W] with [C, M, KH, KW] gives [N, C * M, OH, OW]."""
    channels, multiplier, *kernel = w.shape
    weight = w.reshape(channels * multiplier, 1, *kernel)
    return convolve(x, weight, stride, padding, dilation, groups=channels)


def convolve_depthwise_last(x: Array, w: Array, stride: Ints, padding: Padding, dilation: Ints = 1) -> Array:
    """[N, H, W, C] with [KH, KW, C, M] gives [N, OH, OW, C * M]."""
    return _last(convolve_depthwise(_first(x), w.transpose(2, 3, 0, 1), stride, padding, dilation))


def convolve_transposed_last(x: Array, w: Array, stride: Ints, padding: Padding) -> Array:
    """[N, H, W, CI] with [KH, KW, CI, CO]."""
    return _last(convolve_transposed(_first(x), w.transpose(2, 3, 0, 1), stride, padding))


def dilate(input_np: Array, strides: Ints) -> Array:
    """The elements of an array spread `strides` apart."""
    steps = per_dim(strides, input_np.ndim, "strides")
    shape = [(n - 1) * s + 1 for n, s in zip(input_np.shape, steps, strict=True)]
    out = np.zeros(shape, input_np.dtype)
    out[tuple([slice(None, None, s) for s in steps])] = input_np
    return out


def poolnd_python(
    np_data: Array,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    padding_before: Sequence[int],
    padding_after: Sequence[int],
    pool_type: str,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
    layout: str | None = None,
) -> Array:
    """Max or average pooling over the spatial dimensions of `layout` (N, C first when None)."""
    n = len(kernel)
    where = list(range(2, 2 + n)) if layout is None else layout_axes(layout, np_data.ndim, "pool")[2]
    data = np.moveaxis(np_data.astype(np.result_type(np_data, np.float64)), where, range(-n, 0))
    size = data.shape[-n:]
    tail = [a + (s - 1 if ceil_mode else 0) for a, s in zip(padding_after, strides, strict=True)]
    out_size = [
        conv_extent(d, k, s, b, a, step)
        for d, k, s, b, a, step in zip(size, kernel, strides, padding_before, tail, dilation, strict=True)
    ]
    out = np.empty((*data.shape[:-n], *out_size), data.dtype)
    for at in np.ndindex(*out_size):
        taps, counts = [], []
        for d, o in enumerate(at):
            start = o * strides[d] - padding_before[d]
            points = range(start, start + (kernel[d] - 1) * dilation[d] + 1, dilation[d])
            taps.append([p for p in points if 0 <= p < size[d]])
            counts.append(len([p for p in points if p < size[d] + padding_after[d]]))
        where_at: Any = (..., *np.ix_(*taps))
        window = data[where_at] if all(taps) else np.zeros((*data.shape[:-n], *(1,) * n))
        axes = tuple(range(-n, 0))
        total = int(np.prod(counts)) if count_include_pad else max(int(np.prod([len(t) for t in taps])), 1)
        target: Any = (..., *at)
        out[target] = window.max(axes) if pool_type == "max" else window.sum(axes) / total
    return np.moveaxis(out, range(-n, 0), where).astype(np_data.dtype)


def layer_norm_python(
    data: Array, gamma: Array, beta: Array | None, axis: int | Sequence[int], epsilon: float = 1e-5
) -> Array:
    """Normalise over `axis`; gamma and beta have the extents of those dimensions."""
    axes = sorted(a % data.ndim for a in ([axis] if isinstance(axis, int) else axis))
    mean, var = data.mean(tuple(axes), keepdims=True), data.var(tuple(axes), keepdims=True)
    shape = [n if d in axes else 1 for d, n in enumerate(data.shape)]
    out = (data - mean) / np.sqrt(var + epsilon) * gamma.reshape(shape)
    return np.asarray(out if beta is None else out + beta.reshape(shape))


def instance_norm_python(
    data: Array, gamma: Array, beta: Array, axis: Sequence[int] = (2, 3), epsilon: float = 1e-5
) -> Array:
    """Normalise each sample and channel (dimension 1) over `axis`."""
    mean, var = data.mean(tuple(axis), keepdims=True), data.var(tuple(axis), keepdims=True)
    shape = [1, -1, *[1] * (data.ndim - 2)]
    return np.asarray((data - mean) / np.sqrt(var + epsilon) * gamma.reshape(shape) + beta.reshape(shape))
