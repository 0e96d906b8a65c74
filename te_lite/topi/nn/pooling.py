"""Pooling by windows, adaptive pooling and global pooling."""

from __future__ import annotations

from collections.abc import Sequence

from ... import reduction
from ...errors import ExprError, require
from ...expr import Expr, ExprLike, binary, cast, const, select
from ...tensor import Tensor
from ..tag import ELEMWISE
from ..utils import ax_compute, conv_extent, layout_axes, per_dim
from .conv import Ints
from .pad import pad_sides


def _pool(
    data: Tensor,
    kernel: Ints,
    stride: Ints,
    dilation: Ints,
    padding: Sequence[int],
    pool_type: str,
    ceil_mode: bool,
    layout: str,
    count_include_pad: bool,
) -> Tensor:
    _, _, where = layout_axes(layout, data.ndim, "pool")
    n = len(where)
    require(pool_type in ("max", "avg"), ExprError, "pool", "the type must be max or avg", pool_type=pool_type)
    sizes, strides, steps = per_dim(kernel, n, "kernel"), per_dim(stride, n, "stride"), per_dim(dilation, n, "dilation")
    pads = per_dim(padding, 2 * n, "padding")
    extra = [s - 1 if ceil_mode else 0 for s in strides]
    before, after = [0] * data.ndim, [0] * data.ndim
    shape = list(data.shape)
    for d, w in enumerate(where):
        before[w], after[w] = pads[d], pads[n + d] + extra[d]
        shape[w] = conv_extent(data.shape[w], sizes[d], strides[d], before[w], after[w], steps[d])
    fill = reduction.min_value(data.dtype) if pool_type == "max" else const(0, data.dtype)
    temp = pad_sides(data, before, after, fill, "pad_temp") if any(before) or any(after) else data
    window = [reduction.reduce_axis((0, k), f"rv{d}") for d, k in enumerate(sizes)]

    def read(*i: Expr) -> Expr:
        at = list(i)
        for d, w in enumerate(where):
            at[w] = i[w] * strides[d] + window[d] * steps[d]
        return temp[at]

    if pool_type == "max":
        return ax_compute(shape, lambda *i: reduction.max(read(*i), axis=window), "pool_max", "pool_max")
    total = ax_compute(shape, lambda *i: reduction.sum(read(*i), axis=window), "pool_sum", "pool_sum")

    def count(*i: Expr) -> Expr:
        out: Expr = const(1)
        for d, w in enumerate(where):
            start = i[w] * strides[d] - before[w]
            last = start + (sizes[d] - 1) * steps[d]
            if count_include_pad:
                end = binary("min", last, data.shape[w] + after[w] - 1 - extra[d])
                out = out * ((end - start) / steps[d] + 1)
            else:
                skipped = binary("max", (steps[d] - 1 - start) / steps[d], 0)
                end = binary("min", last, data.shape[w] - 1)
                out = out * ((end - (start + steps[d] * skipped)) / steps[d] + 1)
        return out if count_include_pad else binary("max", out, 1)

    return ax_compute(shape, lambda *i: total[i] / cast(data.dtype, count(*i)), "pool_avg", ELEMWISE)


def pool1d(data: Tensor, kernel: Ints, stride: Ints, dilation: Ints, padding: Sequence[int], pool_type: str,
           ceil_mode: bool = False, layout: str = "NCW", count_include_pad: bool = True) -> Tensor:  # fmt: skip
    """1-D pooling; `padding` is (left, right).  `pool_type`: max or avg."""
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


def pool2d(data: Tensor, kernel: Ints, stride: Ints, dilation: Ints, padding: Sequence[int], pool_type: str,
           ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True) -> Tensor:  # fmt: skip
    """2-D pooling; `padding` is (top, left, bottom, right).  `pool_type`: max or avg.

    `ceil_mode` keeps a last window that leaves the data by less than a stride; without `count_include_pad` the
    average is over the elements inside the data only.
    """
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


def pool3d(data: Tensor, kernel: Ints, stride: Ints, dilation: Ints, padding: Sequence[int], pool_type: str,
           ceil_mode: bool = False, layout: str = "NCDHW", count_include_pad: bool = True) -> Tensor:  # fmt: skip
    """3-D pooling; `padding` is (front, top, left, back, bottom, right)."""
    return _pool(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, count_include_pad)


def _start(out: Expr, extent: int, size: int) -> Expr:
    return out * size // extent


def _end(out: Expr, extent: int, size: int) -> Expr:
    product: Expr = (out + 1) * size
    whole = product // extent
    return select((product % extent).equal(0), whole, whole + 1)


def _adaptive(data: Tensor, output_size: Ints, pool_type: str, layout: str) -> Tensor:
    _, _, where = layout_axes(layout, data.ndim, "adaptive_pool")
    require(pool_type in ("max", "avg"), ExprError, "adaptive_pool", "the type must be max or avg", pool_type=pool_type)
    extents = per_dim(output_size, len(where), "output_size")
    shape = list(data.shape)
    for w, n in zip(where, extents, strict=True):
        shape[w] = n

    def lengths(i: Sequence[Expr]) -> list[Expr]:
        sizes = [(i[w], n, data.shape[w]) for w, n in zip(where, extents, strict=True)]
        return [_end(*size) - _start(*size) for size in sizes]

    def fold(*i: Expr) -> Expr:
        window = [reduction.reduce_axis((0, length), f"rv{d}") for d, length in enumerate(lengths(i))]
        at: list[ExprLike] = list(i)
        for w, n, v in zip(where, extents, window, strict=True):
            at[w] = _start(i[w], n, data.shape[w]) + v
        reducer = reduction.max if pool_type == "max" else reduction.sum
        return reducer(data[at], axis=window)

    if pool_type == "max":
        return ax_compute(shape, fold, "adaptive_pool_max", "adaptive_pool_max")
    total = ax_compute(shape, fold, "adaptive_pool_sum", "adaptive_pool_sum")

    def mean(*i: Expr) -> Expr:
        factor: Expr = const(1, data.dtype)
        for length in lengths(i):
            factor = factor * cast(data.dtype, length)
        return total[i] / factor

    return ax_compute(shape, mean, "adaptive_pool_avg", ELEMWISE)


def adaptive_pool1d(data: Tensor, output_size: Ints, pool_type: str, layout: str = "NCW") -> Tensor:
    """1-D pooling to `output_size` by windows `[o * in // out, ceil((o + 1) * in / out))`."""
    return _adaptive(data, output_size, pool_type, layout)


def adaptive_pool(data: Tensor, output_size: Ints, pool_type: str, layout: str = "NCHW") -> Tensor:
    """2-D pooling to `output_size` (one integer or two); the window extents vary, so FLOPs are not counted."""
    return _adaptive(data, output_size, pool_type, layout)


def adaptive_pool3d(data: Tensor, output_size: Ints, pool_type: str, layout: str = "NCDHW") -> Tensor:
    """3-D pooling to `output_size`."""
    return _adaptive(data, output_size, pool_type, layout)


def global_pool(data: Tensor, pool_type: str, layout: str = "NCHW") -> Tensor:
    """Pool all spatial dimensions to 1."""
    return _adaptive(data, 1, pool_type, layout)
