"""Reductions over axes of a tensor.

The stage is named after its input (`A_red`), its reduction axes after the axes of the input (`k1`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..computation.tensor import Tensor
from ..expr import own_reducers
from ..expr import reduction as te_reduction
from ..expr.expr import Expr, IterVar
from .tag import COMM_REDUCE, COMM_REDUCE_IDX
from .utils import ax_compute, normal_axis, ravel

Axis = int | Sequence[int] | None
IndexReducer = Callable[..., tuple[Expr, Expr]]


def real_axes(axis: Axis, ndim: int, what: str) -> tuple[int, ...]:
    """The axes counted from the front, sorted; None means all."""
    if axis is None:
        return tuple(range(ndim))
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    return tuple(sorted({normal_axis(a, ndim, what) for a in axes}))


def reduce_axes(data: Tensor, axes: Sequence[int]) -> list[IterVar]:
    """One reduction axis `k<d>` for each dimension `d` in `axes`."""
    return [te_reduction.reduce_axis((0, data.shape[a]), f"k{a}") for a in axes]


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> tuple[int, ...]:
    """The shape that is left of `shape`."""
    return tuple([1 if d in axes else n for d, n in enumerate(shape) if keepdims or d not in axes])


def source_indices(
    indices: Sequence[Expr], axes: Sequence[int], inner: Sequence[IterVar], ndim: int, keepdims: bool
) -> list[Expr]:
    """Where the input is read: the reduction axes at `axes`, the output's own indices elsewhere."""
    reduced = dict(zip(axes, inner, strict=True))
    kept = iter([i for d, i in enumerate(indices) if d not in reduced] if keepdims else indices)
    return [reduced[d] if d in reduced else next(kept) for d in range(ndim)]


def _reduce(data: Tensor, axis: Axis, keepdims: bool, reducer: Callable[..., Expr], what: str) -> Tensor:
    axes = real_axes(axis, data.ndim, what)
    inner = reduce_axes(data, axes)

    def element(*i: Expr) -> Expr:
        value = data[source_indices(i, axes, inner, data.ndim, keepdims)]
        return reducer(value, axis=inner) if inner else value

    return ax_compute(reduced_shape(data.shape, axes, keepdims), element, f"{data.op.name}_red", COMM_REDUCE)


def _reduce_index(data: Tensor, axis: Axis, keepdims: bool, reducer: IndexReducer, what: str) -> Tensor:
    axes = real_axes(axis, data.ndim, what)
    inner = reduce_axes(data, axes)
    shape = reduced_shape(data.shape, axes, keepdims)
    position = ravel(inner, [data.shape[a] for a in axes])
    index, _ = ax_compute(
        shape,
        lambda *i: reducer((position, data[source_indices(i, axes, inner, data.ndim, keepdims)]), axis=inner),
        f"{data.op.name}_red_temp",
        COMM_REDUCE_IDX,
    )
    return ax_compute(shape, lambda *i: index[i], f"{data.op.name}_red", COMM_REDUCE_IDX)


def sum(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis` (all axes when None)."""
    return _reduce(data, axis, keepdims, te_reduction.sum, "sum")


def prod(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The product over `axis`."""
    return _reduce(data, axis, keepdims, te_reduction.prod, "prod")


def max(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The maximum over `axis`."""
    return _reduce(data, axis, keepdims, te_reduction.max, "max")


def min(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The minimum over `axis`."""
    return _reduce(data, axis, keepdims, te_reduction.min, "min")


def all(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all elements of a bool tensor along `axis` are true."""
    return _reduce(data, axis, keepdims, te_reduction.all_reduce, "all")


def any(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether some element of a bool tensor along `axis` is true."""
    return _reduce(data, axis, keepdims, te_reduction.any_reduce, "any")


def argmax(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The int32 position of the first maximum along `axis` (row-major position over several axes)."""
    return _reduce_index(data, axis, keepdims, own_reducers.argmax, "argmax")


def argmin(data: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The int32 position of the first minimum along `axis`."""
    return _reduce_index(data, axis, keepdims, own_reducers.argmin, "argmin")
