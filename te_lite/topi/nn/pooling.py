"""Pooling by windows, adaptive pooling and global pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...computation.tensor import Tensor
from ...errors import ExprError, require
from ...expr import reduction
from ...expr.expr import Expr, ExprLike, binary, cast, const, select
from ..tag import ELEMWISE
from ..utils import ax_compute, conv_extent, layout_axes, per_dim
from .conv import Ints
from .pad import pad_sides


@dataclass(frozen=True)
class _Windows:
    """The windows of a pool along the dimensions `where`; `extra` is the part of `after` that `ceil_mode` adds."""

    where: list[int]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    steps: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]
    extra: tuple[int, ...]

    def shape(self, data: Tensor) -> list[int]:
        """The shape of the pooled `data`."""
        shape = list(data.shape)
        for d, w in enumerate(self.where):
            sides = self.before[d], self.after[d]
            shape[w] = conv_extent(data.shape[w], self.sizes[d], self.strides[d], *sides, self.steps[d])
        return shape

    def padded(self, data: Tensor, fill: Expr) -> Tensor:
        if not any(self.before) and not any(self.after):
            return data
        sides = [dict(zip(self.where, pads, strict=True)) for pads in (self.before, self.after)]
        before, after = [[pads.get(d, 0) for d in range(data.ndim)] for pads in sides]
        return pad_sides(data, before, after, fill, "pad_temp")

    def place(self, i: Sequence[Expr], window: Sequence[Expr]) -> list[Expr]:
        """The element at `window` of the window of output `i`."""
        at = list(i)
        for d, w in enumerate(self.where):
            at[w] = i[w] * self.strides[d] + window[d] * self.steps[d]
        return at

    def count(self, i: Sequence[Expr], data: Tensor, include_pad: bool) -> Expr:
        """How many elements the window of output `i` averages."""
        out: Expr = const(1)
        for d, w in enumerate(self.where):
            start = i[w] * self.strides[d] - self.before[d]
            last = start + (self.sizes[d] - 1) * self.steps[d]
            if include_pad:
                end = binary("min", last, data.shape[w] + self.after[d] - 1 - self.extra[d])
                out = out * ((end - start) / self.steps[d] + 1)
            else:
                skipped = binary("max", (self.steps[d] - 1 - start) / self.steps[d], 0)
                end = binary("min", last, data.shape[w] - 1)
                out = out * ((end - (start + self.steps[d] * skipped)) / self.steps[d] + 1)
        return out if include_pad else binary("max", out, 1)


def _windows(
    data: Tensor, kernel: Ints, stride: Ints, dilation: Ints, padding: Sequence[int], ceil_mode: bool, layout: str
) -> _Windows:
    where = layout_axes(layout, data.ndim, "pool")[2]
    n = len(where)
    sizes, strides, steps = per_dim(kernel, n, "kernel"), per_dim(stride, n, "stride"), per_dim(dilation, n, "dilation")
    pads = per_dim(padding, 2 * n, "padding")
    extra = tuple([s - 1 if ceil_mode else 0 for s in strides])
    after = tuple([p + more for p, more in zip(pads[n:], extra, strict=True)])
    return _Windows(where, sizes, strides, steps, pads[:n], after, extra)


def _pool(data: Tensor, windows: _Windows, pool_type: str, count_include_pad: bool) -> Tensor:
    require(pool_type in ("max", "avg"), ExprError, "pool", "the type must be max or avg", pool_type=pool_type)
    shape = windows.shape(data)
    fill = reduction.least(data.dtype) if pool_type == "max" else const(0, data.dtype)
    temp = windows.padded(data, fill)
    axes = [reduction.reduce_axis((0, k), f"rv{d}") for d, k in enumerate(windows.sizes)]
    fold, name = (reduction.max, "pool_max") if pool_type == "max" else (reduction.sum, "pool_sum")
    folded = ax_compute(shape, lambda *i: fold(temp[windows.place(i, axes)], axis=axes), name, name)
    if pool_type == "max":
        return folded

    def mean(*i: Expr) -> Expr:
        return folded[i] / cast(data.dtype, windows.count(i, data, count_include_pad))

    return ax_compute(shape, mean, "pool_avg", ELEMWISE)


def pool1d(data: Tensor, kernel: Ints, stride: Ints, dilation: Ints, padding: Sequence[int], pool_type: str,
           ceil_mode: bool = False, layout: str = "NCW", count_include_pad: bool = True) -> Tensor:  # fmt: skip
    """1-D pooling; `padding` is (left, right).  `pool_type`: max or avg."""
    windows = _windows(data, kernel, stride, dilation, padding, ceil_mode, layout)
    return _pool(data, windows, pool_type, count_include_pad)


def pool2d(data: Tensor, kernel: Ints, stride: Ints, dilation: Ints, padding: Sequence[int], pool_type: str,
           ceil_mode: bool = False, layout: str = "NCHW", count_include_pad: bool = True) -> Tensor:  # fmt: skip
    """2-D pooling; `padding` is (top, left, bottom, right).  `pool_type`: max or avg.

    `ceil_mode` keeps a last window that leaves the data by less than a stride; without `count_include_pad` the
    average is over the elements inside the data only.
    """
    windows = _windows(data, kernel, stride, dilation, padding, ceil_mode, layout)
    return _pool(data, windows, pool_type, count_include_pad)


def pool3d(data: Tensor, kernel: Ints, stride: Ints, dilation: Ints, padding: Sequence[int], pool_type: str,
           ceil_mode: bool = False, layout: str = "NCDHW", count_include_pad: bool = True) -> Tensor:  # fmt: skip
    """3-D pooling; `padding` is (front, top, left, back, bottom, right)."""
    windows = _windows(data, kernel, stride, dilation, padding, ceil_mode, layout)
    return _pool(data, windows, pool_type, count_include_pad)


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
