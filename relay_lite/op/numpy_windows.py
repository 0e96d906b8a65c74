"""Convolutions and adaptive pools in NumPy, which networks are held to: windows as a view, contracted by products."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.topi.nn.utils import Padding, get_pad_tuple_generic
from te_lite.topi.utils import per_dim

from ..ir.errors import GraphError

Array = np.ndarray[Any, np.dtype[Any]]
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
    require(ok, GraphError, "convolution", "data, weight and groups do not fit", data=x.shape, weight=w.shape,
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


def adaptive_pool(np_data: Array, out_size: int | Sequence[int], pool_type: str) -> Array:
    """Pooling of [N, C, spatial ...] to `out_size` by windows `[o * in // out, ceil((o + 1) * in / out))`."""
    n = np_data.ndim - 2
    sizes = per_dim(out_size, n, "out_size")
    out = np.empty((*np_data.shape[:2], *sizes), np_data.dtype)
    for at in itertools.product(*map(range, sizes)):
        box = [slice(o * d // m, -(-((o + 1) * d) // m)) for o, d, m in zip(at, np_data.shape[2:], sizes, strict=True)]
        source: Any = (..., *box)
        target: Any = (..., *at)
        window = np_data[source]
        axes = tuple(range(-n, 0))
        out[target] = window.max(axes) if pool_type == "max" else window.mean(axes)
    return out
