"""Operations that move elements around: each output element is one input element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from ..computation.tensor import Tensor
from ..errors import ExprError, require
from ..expr.expr import Expr, ExprLike, binary, cast, compare, const, if_then_else, select
from .tag import INJECTIVE
from .utils import ax_compute, get_const_tuple, normal_axis, ravel, resolve_shape, same_rank, unravel

MOST_PARTS = 32
"""Tensors of one stage that puts tensors together: it asks for each element which one it is of."""


def expand_dims(a: Tensor, axis: int, num_newaxis: int = 1) -> Tensor:
    """Insert `num_newaxis` dimensions of 1 before `axis`, counted in the result when negative (`T_expand_dims`)."""
    at = normal_axis(axis, a.ndim + 1, "expand_dims")
    shape = a.shape[:at] + (1,) * num_newaxis + a.shape[at:]
    return ax_compute(shape, lambda *i: a[i[:at] + i[at + num_newaxis :]], "T_expand_dims", INJECTIVE)


def squeeze(a: Tensor, axis: int | Sequence[int] | None = None) -> Tensor:
    """Drop the dimensions `axis`, which must be 1; all of 1 when None (`T_squeeze`)."""
    if axis is None:
        drop = [d for d, n in enumerate(a.shape) if n == 1]
    else:
        drop = [normal_axis(d, a.ndim, "squeeze") for d in ([axis] if isinstance(axis, int) else axis)]
    for d in drop:
        require(a.shape[d] == 1, ExprError, "squeeze", "the dimension must be 1", axis=d, shape=a.shape)
    kept = [d for d in range(a.ndim) if d not in drop]

    def element(*i: Expr) -> Expr:
        at = dict(zip(kept, i, strict=True))
        return a[[at.get(d, 0) for d in range(a.ndim)]]

    return ax_compute([a.shape[d] for d in kept], element, "T_squeeze", INJECTIVE)


def reshape(a: Tensor, newshape: Sequence[int]) -> Tensor:
    """The elements of `a` in row-major order with another shape; one dimension may be -1 (`T_reshape`)."""
    shape = resolve_shape(newshape, math.prod(a.shape), "reshape")
    return ax_compute(shape, lambda *i: a[unravel(ravel(i, shape), a.shape)], "T_reshape", INJECTIVE)


def transpose(a: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Permute the dimensions: dimension `t` of the result is `axes[t]` of `a`; reversed when None (`T_transpose`)."""
    order = [normal_axis(x, a.ndim, "transpose") for x in (axes if axes is not None else range(a.ndim)[::-1])]
    require(sorted(order) == list(range(a.ndim)), ExprError, "transpose", "the axes must be a permutation", axes=order)

    def element(*i: Expr) -> Expr:
        return a[[i[order.index(d)] for d in range(a.ndim)]]

    return ax_compute([a.shape[x] for x in order], element, "T_transpose", INJECTIVE)


def flip(a: Tensor, axis: int = 0) -> Tensor:
    """Reverse the order along `axis` (`T_reverse_sequence` of the whole axis, named `T_flip`)."""
    at = normal_axis(axis, a.ndim, "flip")
    return ax_compute(a.shape, lambda *i: a(*i[:at], a.shape[at] - 1 - i[at], *i[at + 1 :]), "T_flip", INJECTIVE)


def concatenate(a_tuple: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors along `axis` (`T_concat`)."""
    tensors = tuple(a_tuple)
    at = normal_axis(axis, same_rank(tensors, "concatenate"), "concatenate")
    rest = {t.shape[:at] + t.shape[at + 1 :] for t in tensors}
    require(len(rest) == 1, ExprError, "concatenate", "the other dimensions must agree",
            shapes=[t.shape for t in tensors])  # fmt: skip
    if len(tensors) > MOST_PARTS:
        groups = [tensors[k : k + MOST_PARTS] for k in range(0, len(tensors), MOST_PARTS)]
        return concatenate([concatenate(group, at) for group in groups], at)
    shape = (*tensors[0].shape[:at], sum(t.shape[at] for t in tensors), *tensors[0].shape[at + 1 :])

    def element(*i: Expr) -> Expr:
        position, out = i[at], tensors[0][i]
        for before, t in itertools.pairwise(tensors):
            position = position - before.shape[at]
            out = if_then_else(position >= 0, t(*i[:at], position, *i[at + 1 :]), out)
        return out

    return ax_compute(shape, element, "T_concat", INJECTIVE)


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Join tensors of equal shape along a new dimension (`T_stack`)."""
    at = normal_axis(axis, same_rank(tensors, "stack") + 1, "stack")
    shapes = [t.shape for t in tensors]
    require(len(set(shapes)) == 1, ExprError, "stack", "all shapes must be equal", shapes=shapes)
    if len(tensors) > MOST_PARTS:
        return concatenate([stack(tensors[k : k + MOST_PARTS], at) for k in range(0, len(tensors), MOST_PARTS)], at)
    shape = (*tensors[0].shape[:at], len(tensors), *tensors[0].shape[at:])

    def element(*i: Expr) -> Expr:
        inner = i[:at] + i[at + 1 :]
        out = tensors[0][inner]
        for k, t in enumerate(tensors[1:], 1):
            out = if_then_else(i[at] >= k, t[inner], out)
        return out

    return ax_compute(shape, element, "T_stack", INJECTIVE)


def split(ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0) -> list[Tensor]:
    """Cut along `axis` into equal parts (int) or at the given positions (`T_split`)."""
    at = normal_axis(axis, ary.ndim, "split")

    def part(begin: int, end: int) -> Tensor:
        shape = (*ary.shape[:at], end - begin, *ary.shape[at + 1 :])
        return ax_compute(shape, lambda *i: ary(*i[:at], i[at] + begin, *i[at + 1 :]), "T_split", INJECTIVE)

    return [part(*ends) for ends in _parts_of(ary.shape[at], indices_or_sections)]


def _parts_of(size: int, indices_or_sections: int | Sequence[int]) -> list[tuple[int, int]]:
    """Where the parts of an axis begin and end."""
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        require(n > 0 and size % n == 0, ExprError, "split", "the parts must be equal", extent=size, sections=n)
        cuts = [k * (size // n) for k in range(n)]
    else:
        cuts = [0, *get_const_tuple(indices_or_sections)]
    parts = list(zip(cuts, [*cuts[1:], size], strict=True))
    law = "the positions must increase and lie inside the axis"
    require(all(a < b for a, b in parts), ExprError, "split", law, positions=cuts[1:], extent=size)
    return parts


def strided_slice(
    a: Tensor,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
) -> Tensor:
    """`a[begin:end:strides]` on `axes` (the leading ones when None), with Python's rules (`T_strided_slice`)."""
    where = [normal_axis(x, a.ndim, "strided_slice") for x in (axes if axes is not None else range(len(begin)))]
    steps = list(strides) if strides else [1] * len(where)
    ranges = [range(n) for n in get_const_tuple(a.shape)]
    for x, b, e, s in zip(where, begin, end, steps, strict=True):
        ranges[x] = ranges[x][b:e:s]
        require(len(ranges[x]) > 0, ExprError, "strided_slice", "the slice is empty", axis=x, begin=b, end=e, stride=s)
    return ax_compute(
        [len(r) for r in ranges],
        lambda *i: a[[v * r.step + r.start for v, r in zip(i, ranges, strict=True)]],
        "T_strided_slice",
        INJECTIVE,
    )


def clipped(index: Expr, size: int) -> Expr:
    """An index that is read from memory, moved into `0 .. size - 1`."""
    return binary("min", binary("max", 0, index), size - 1)


def take(a: Tensor, indices: Tensor, axis: int | None = None, mode: str = "clip") -> Tensor:
    """Elements (of the flat tensor) or slices along `axis` at integer `indices` (`T_take`).

    `mode`: `clip` moves indices into range, `wrap` takes them modulo the extent, `fast` is `clip`: indices are never
    trusted.
    """
    require(mode in ("clip", "wrap", "fast"), ExprError, "take", "the mode must be clip, wrap or fast", mode=mode)
    at = None if axis is None else normal_axis(axis, a.ndim, "take")
    size = math.prod(a.shape) if at is None else a.shape[at]

    def position(index: Expr) -> Expr:
        return index % size if mode == "wrap" else clipped(index, size)

    if at is None:
        return ax_compute(indices.shape, lambda *i: a[unravel(position(indices[i]), a.shape)], "T_take", INJECTIVE)
    stop = at + indices.ndim
    shape = a.shape[:at] + indices.shape + a.shape[at + 1 :]
    return ax_compute(shape, lambda *i: a(*i[:at], position(indices[i[at:stop]]), *i[stop:]), "T_take", INJECTIVE)


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """`out[.., j, ..] = data[.., indices[.., j, ..], ..]` along `axis`, indices moved into range (`T_gather`)."""
    at = normal_axis(axis, data.ndim, "gather")
    size = data.shape[at]
    return ax_compute(
        indices.shape, lambda *i: data(*i[:at], clipped(indices[i], size), *i[at + 1 :]), "T_gather", INJECTIVE
    )


def gather_nd(data: Tensor, indices: Tensor) -> Tensor:
    """`out[y, z] = data[indices[0, y], ..., indices[m - 1, y], z]` for indices [m, y] (`T_gather_nd`).

    Indices are moved into range.
    """
    m, *lead = indices.shape
    require(m <= data.ndim, ExprError, "gather_nd", "there are more indices than dimensions", data=data.shape,
            indices=indices.shape)  # fmt: skip

    def element(*i: Expr) -> Expr:
        at = i[: len(lead)]
        return data(*[clipped(indices(k, *at), data.shape[k]) for k in range(m)], *i[len(lead) :])

    return ax_compute((*lead, *data.shape[m:]), element, "T_gather_nd", INJECTIVE)


def tile(a: Tensor, reps: Sequence[int]) -> Tensor:
    """Repeat the whole tensor `reps[d]` times along each dimension (`T_tile`)."""
    ndim = max(a.ndim, len(reps))
    counts = (1,) * (ndim - len(reps)) + get_const_tuple(reps)
    shape = (1,) * (ndim - a.ndim) + a.shape
    skip = ndim - a.ndim
    return ax_compute(
        [n * c for n, c in zip(shape, counts, strict=True)],
        lambda *i: a[[v % n for v, n in zip(i[skip:], a.shape, strict=True)]],
        "T_tile",
        INJECTIVE,
    )


def repeat(a: Tensor, repeats: int, axis: int) -> Tensor:
    """Repeat every element `repeats` times along `axis` (`T_repeat`)."""
    at = normal_axis(axis, a.ndim, "repeat")
    shape = (*a.shape[:at], a.shape[at] * repeats, *a.shape[at + 1 :])
    return ax_compute(shape, lambda *i: a(*i[:at], i[at] // repeats, *i[at + 1 :]), "T_repeat", INJECTIVE)


def one_hot(indices: Tensor, on_value: ExprLike, off_value: ExprLike, depth: int, axis: int, dtype: str) -> Tensor:
    """`on_value` where the new dimension `axis` of `depth` equals the index, else `off_value` (`T_one_hot`)."""
    at = normal_axis(axis, indices.ndim + 1, "one_hot")
    on, off = cast(dtype, on_value), cast(dtype, off_value)
    return ax_compute(
        (*indices.shape[:at], depth, *indices.shape[at:]),
        lambda *i: select(compare("==", indices[i[:at] + i[at + 1 :]], i[at]), on, off),
        "T_one_hot",
        INJECTIVE,
    )


def arange(start: float, stop: float | None = None, step: float = 1, dtype: str = "float32") -> Tensor:
    """`start, start + step, ...` below `stop`; from 0 when `stop` is None (`T_arange`)."""
    lo, hi = (0, start) if stop is None else (start, stop)
    count = math.ceil((hi - lo) / step)
    require(count > 0, ExprError, "arange", "the range is empty", start=lo, stop=hi, step=step)
    return ax_compute((count,), lambda i: const(lo, dtype) + cast(dtype, i) * const(step, dtype), "T_arange", INJECTIVE)
