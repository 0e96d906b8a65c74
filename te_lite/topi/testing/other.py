"""Softmax, products, pools and normalisations in NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ExprError, require
from ...meaning.reference_expr import Array
from ..utils import conv_extent, layout_axes, per_dim


def softmax_python(a_np: Array, axis: int = 1) -> Array:
    """`exp(a - max) / sum` along `axis`."""
    e = np.exp(a_np - a_np.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def log_softmax_python(a_np: Array, axis: int = 1) -> Array:
    """The logarithm of `softmax_python`."""
    shifted = a_np - a_np.max(axis, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis, keepdims=True)))


def dense(x: Array, y: Array, bias: Array | None = None, use_bias: bool = False, use_relu: bool = False) -> Array:
    """[M, K] with [N, K] gives [M, N]; the bias [N] and relu are added when asked for."""
    out = x @ y.T
    out = out + bias if use_bias and bias is not None else out
    return np.asarray(np.maximum(out, 0) if use_relu else out)


def matmul(x: Array, y: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """The product of two matrices, transposed as asked."""
    return np.asarray((x.T if transpose_a else x) @ (y.T if transpose_b else y))


def batch_matmul(x: Array, y: Array, trans_x: bool = False, trans_y: bool = True) -> Array:
    """[B, M, K] with [B, N, K] (transposed as asked) gives [B, M, N]."""
    left = x.transpose(0, 2, 1) if trans_x else x
    return np.asarray(left @ (y.transpose(0, 2, 1) if trans_y else y))


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
    require(pool_type in ("max", "avg"), ExprError, "testing.pool", "the type must be max or avg", pool_type=pool_type)
    n = len(kernel)
    where = list(range(2, 2 + n)) if layout is None else layout_axes(layout, np_data.ndim, "testing.pool")[2]
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


def adaptive_pool(np_data: Array, out_size: int | Sequence[int], pool_type: str, layout: str | None = None) -> Array:
    """Pooling to `out_size` by windows `[o * in // out, ceil((o + 1) * in / out))`."""
    n = np_data.ndim - 2
    where = list(range(2, 2 + n)) if layout is None else layout_axes(layout, np_data.ndim, "testing.pool")[2]
    sizes = per_dim(out_size, n, "out_size")
    data = np.moveaxis(np_data, where, range(-n, 0))
    out = np.empty((*data.shape[:-n], *sizes), np_data.dtype)
    for at in itertools.product(*map(range, sizes)):
        box = [slice(o * d // m, -(-((o + 1) * d) // m)) for o, d, m in zip(at, data.shape[-n:], sizes, strict=True)]
        source: Any = (..., *box)
        target: Any = (..., *at)
        window = data[source]
        axes = tuple(range(-n, 0))
        out[target] = window.max(axes) if pool_type == "max" else window.mean(axes)
    return np.moveaxis(out, range(-n, 0), where)


def batch_norm(
    x: Array,
    gamma: Array,
    beta: Array,
    moving_mean: Array,
    moving_var: Array,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> list[Array]:
    """`[normalised x, mean, var]` for inference; the vectors are [C] with C at `axis`."""
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    out = (x - moving_mean.reshape(shape)) / np.sqrt(moving_var.reshape(shape) + epsilon)
    out = out * gamma.reshape(shape) if scale else out
    return [out + beta.reshape(shape) if center else out, moving_mean, moving_var]


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
