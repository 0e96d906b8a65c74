"""Operators that pick elements: slices, indices, reversal; and padding, which picks or invents them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite import topi
from te_lite.errors import require
from te_lite.expr.expr import as_expr
from te_lite.topi.utils import ax_compute

from ..ir.errors import GraphError
from ..ir.extents import bounds, extent, is_open
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .along_sizes import extents
from .define import Array, Shape, choice, indices, integers, one_axis, operator, tensors

PAD_MODES = ("constant", "edge", "reflect")
WHAT = "strided_slice"
TAKE_MODES = ("clip", "wrap", "fast")


def _slices(shape: Shape, attrs: Attrs) -> list[slice]:
    """One slice a dimension, with Python's rules; `slice_mode` "size" reads `end` as extents (-1: up to the end)."""
    what = "strided_slice"
    parts = _axis_slices(attrs, what)
    out = [slice(None)] * len(shape)
    by_size = choice(attrs["slice_mode"], ("end", "size"), what, "slice_mode") == "size"
    for axis, b, e, s in parts:
        at = one_axis(axis, len(shape), what)
        if by_size:
            first = b % shape[at] if b < 0 else b
            e, s = (shape[at] if e == -1 else first + e), 1
        out[at] = slice(b, e, s)
    return out


def _axis_slices(attrs: Attrs, what: str) -> list[tuple[int, int, int, int]]:
    """Axis, begin, end and stride of each slice that the attributes name."""
    begin, end = extents(attrs["begin"], what), extents(attrs["end"], what)
    strides = (1,) * len(begin) if attrs["strides"] is None else integers(attrs["strides"], what)
    strides = strides * len(begin) if len(strides) == 1 else strides
    axes = range(len(begin)) if attrs["axes"] is None else integers(attrs["axes"], what)
    equal = len(begin) == len(end) == len(strides) == len(axes)
    require(equal, GraphError, what, "begin, end, strides and axes must have equal lengths", begin=begin, end=end,
            strides=strides, axes=tuple(axes))  # fmt: skip
    require(0 not in strides, GraphError, what, "strides must not be 0", strides=strides)
    return list(zip(axes, begin, end, strides, strict=True))


def _ranges(shape: Shape, attrs: Attrs) -> list[range]:
    return [range(n)[s] for n, s in zip(shape, _slices(shape, attrs), strict=True)]


def _is_open(shape: Shape, attrs: Attrs) -> bool:
    """Whether an extent, or where a slice begins or ends, is open."""
    return is_open(*shape, *extents(attrs["begin"], WHAT), *extents(attrs["end"], WHAT))


def _open_slices(shape: Shape, attrs: Attrs) -> list[tuple[int, int, int]]:
    """Where the slice of each dimension begins, its extent and its stride, where some extents are open."""
    out = [(0, n, 1) for n in shape]
    require(attrs["slice_mode"] == "end", GraphError, WHAT, "open extents are cut up to an end, not by size")
    for axis, b, e, s in _axis_slices(attrs, WHAT):
        at = one_axis(axis, len(shape), WHAT)
        if is_open(shape[at], b, e):
            out[at] = b, _cut(shape[at], b, e, s), 1
        else:
            cut = range(shape[at])[slice(b, e, s)]
            out[at] = cut.start, len(cut), cut.step
    return out


def _cut(n: int, begin: int, end: int, stride: int) -> int:
    """The extent of a slice of an open extent, or up to one.

    An end behind the greatest extent is the end.  What depends on which of two is the smaller is refused.
    """
    law = "along an open extent a slice begins at a number, in steps of 1, and ends inside for all sizes"
    begins = stride == 1 and not is_open(begin) and begin >= 0
    require(begins, GraphError, WHAT, law, extent=n, begin=begin, end=end, stride=stride)
    last: Any = n if bounds(end)[0] >= bounds(n)[1] else end
    last = as_expr(n) + end if bounds(end)[1] < 0 else as_expr(last)
    ends = bounds(as_expr(n) - last)[0] >= 0 and bounds(last - begin)[0] > 0
    require(ends, GraphError, WHAT, law, extent=n, begin=begin, end=end, stride=stride)
    found: int = extent(last - begin, WHAT)
    return found


def _strided_slice_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, WHAT)
    if _is_open(x.shape, attrs):
        return TensorType(tuple([n for _, n, _ in _open_slices(x.shape, attrs)]), x.dtype)
    return TensorType(tuple(len(r) for r in _ranges(x.shape, attrs)), x.dtype)


def _strided_slice_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Any]:
    (x,) = args
    if _is_open(x.shape, attrs):
        cuts = _open_slices(x.shape, attrs)

        def element(*at: Any) -> Any:
            return x[[i * step + begin for i, (begin, _, step) in zip(at, cuts, strict=True)]]

        return [ax_compute([n for _, n, _ in cuts], element, "T_strided_slice", topi.tag.INJECTIVE)]
    ranges = _ranges(x.shape, attrs)
    stops = [r.stop if r.step > 0 or r.stop >= 0 else -n - 1 for r, n in zip(ranges, x.shape, strict=True)]
    return [topi.strided_slice(x, [r.start for r in ranges], stops, [r.step for r in ranges])]


def _reverse_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "reverse")
    one_axis(attrs["axis"], len(x.shape), "reverse")
    return x


def _take_type(types: Sequence[Type], attrs: Attrs) -> Type:
    data, where = tensors(types, 2, "take")
    indices(where, "take")
    choice(attrs["mode"], TAKE_MODES, "take", "mode")
    if attrs["axis"] is None:
        return TensorType(where.shape, data.dtype)
    axis = one_axis(attrs["axis"], len(data.shape), "take")
    return TensorType((*data.shape[:axis], *where.shape, *data.shape[axis + 1 :]), data.dtype)


def _take_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    data, where = args
    modes: dict[str, Any] = {"fast": "raise", "clip": "clip", "wrap": "wrap"}
    return np.asarray(np.take(data, where, attrs["axis"], mode=modes[attrs["mode"]]))


def _gather_type(types: Sequence[Type], attrs: Attrs) -> Type:
    data, where = tensors(types, 2, "gather")
    indices(where, "gather")
    axis = one_axis(attrs["axis"], len(data.shape), "gather")
    same = len(data.shape) == len(where.shape) and all(
        m == n or d == axis for d, (m, n) in enumerate(zip(data.shape, where.shape, strict=True))
    )
    law = "data and indices must agree in all dimensions but the axis"
    require(same, GraphError, "gather", law, data=data.shape, indices=where.shape, axis=axis)
    return TensorType(where.shape, data.dtype)


def _gather_nd_type(types: Sequence[Type], attrs: Attrs) -> Type:
    data, where = tensors(types, 2, "gather_nd")
    indices(where, "gather_nd")
    ok = len(where.shape) > 0 and 0 < where.shape[0] <= len(data.shape)
    law = "the first dimension of the indices counts the dimensions of data that are indexed"
    require(ok, GraphError, "gather_nd", law, data=data.shape, indices=where.shape)
    return TensorType((*where.shape[1:], *data.shape[where.shape[0] :]), data.dtype)


def _sides(attrs: Attrs, ndim: int) -> tuple[list[int], list[int]]:
    """The amounts before and after each dimension."""
    width = attrs["pad_width"]
    pairs = isinstance(width, tuple) and len(width) == ndim and all(isinstance(p, tuple) and len(p) == 2 for p in width)
    require(pairs, GraphError, "nn.pad", f"pad_width must be {ndim} pairs", pad_width=width)
    sides = [integers(p, "nn.pad") for p in width]
    positive = all(v >= 0 for side in sides for v in side)
    require(positive, GraphError, "nn.pad", "the amounts must not be negative", pad_width=width)
    return [s[0] for s in sides], [s[1] for s in sides]


def _pad_type(types: Sequence[Type], attrs: Attrs) -> Type:
    (x,) = tensors(types, 1, "nn.pad")
    before, after = _sides(attrs, len(x.shape))
    mode = choice(attrs["pad_mode"], PAD_MODES, "nn.pad", "pad_mode")
    if mode != "constant":
        padded = [(max(b, a), n) for b, a, n in zip(before, after, x.shape, strict=True) if b or a]
        fits = all(n > (most if mode == "reflect" else 0) for most, n in padded)
        law = "a mirror needs more elements than are added" if mode == "reflect" else "an edge needs an element"
        require(fits, GraphError, "nn.pad", law, shape=x.shape, pad_width=attrs["pad_width"])
    return TensorType(tuple(n + b + a for n, b, a in zip(x.shape, before, after, strict=True)), x.dtype)


def _pad_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    if attrs["pad_mode"] == "constant":
        return np.pad(args[0], attrs["pad_width"], constant_values=attrs["pad_value"])
    return np.pad(args[0], attrs["pad_width"], attrs["pad_mode"])


# ---------------------------------------------------------------------------------------------------- calls


@operator(
    "strided_slice",
    OpPattern.INJECTIVE,
    _strided_slice_type,
    lambda args, attrs: np.ascontiguousarray(args[0][tuple(_slices(args[0].shape, attrs))]),
    _strided_slice_te,
    begin=(),
    end=(),
)
def strided_slice(
    data: Expr,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    slice_mode: str = "end",
) -> Call:
    """`data[begin:end:strides]` on `axes` (the leading ones when None) with Python's rules.

    With `slice_mode` "size", `end` holds extents, where -1 means up to the end.
    """
    return call("strided_slice", data, begin=begin, end=end, strides=strides, axes=axes, slice_mode=slice_mode)


@operator(
    "reverse",
    OpPattern.INJECTIVE,
    _reverse_type,
    lambda args, attrs: np.ascontiguousarray(np.flip(args[0], attrs["axis"])),
    lambda args, attrs, target: [topi.flip(args[0], attrs["axis"])],
    axis=0,
)
def reverse(data: Expr, axis: int) -> Call:
    """The order along `axis` reversed."""
    return call("reverse", data, axis=axis)


@operator(
    "take",
    OpPattern.INJECTIVE,
    _take_type,
    _take_numpy,
    lambda args, attrs, target: [topi.take(args[0], args[1], attrs["axis"], attrs["mode"])],
)
def take(data: Expr, indices: Expr, axis: int | None = None, mode: str = "clip") -> Call:
    """Elements of the flat tensor, or slices along `axis`, at integer `indices`.

    `mode`: "clip" moves indices into range, "wrap" takes them modulo the extent, "fast" trusts them.
    """
    return call("take", data, indices, axis=axis, mode=mode)


@operator(
    "gather",
    OpPattern.INJECTIVE,
    _gather_type,
    lambda args, attrs: np.take_along_axis(args[0], args[1], attrs["axis"]),
    lambda args, attrs, target: [topi.gather(args[0], attrs["axis"], args[1])],
    axis=0,
)
def gather(data: Expr, axis: int, indices: Expr) -> Call:
    """`out[.., j, ..] = data[.., indices[.., j, ..], ..]` along `axis`; indices count from the front."""
    return call("gather", data, indices, axis=axis)


@operator(
    "gather_nd",
    OpPattern.INJECTIVE,
    _gather_nd_type,
    lambda args, attrs: np.asarray(args[0][tuple(args[1])]),
    lambda args, attrs, target: [topi.gather_nd(args[0], args[1])],
)
def gather_nd(data: Expr, indices: Expr) -> Call:
    """`out[y, z] = data[indices[0, y], ..., indices[m - 1, y], z]` for indices [m, y]."""
    return call("gather_nd", data, indices)


@operator(
    "nn.pad",
    OpPattern.INJECTIVE,
    _pad_type,
    _pad_numpy,
    lambda args, attrs, target: [
        topi.nn.pad_sides(args[0], *_sides(attrs, args[0].ndim), attrs["pad_value"], pad_mode=attrs["pad_mode"])
    ],
    pad_width=(),
)
def pad(data: Expr, pad_width: Sequence[Sequence[int]], pad_value: float = 0.0, pad_mode: str = "constant") -> Call:
    """Put (before, after) elements around each dimension.

    `pad_mode`: "constant" (`pad_value`), "edge" (the border again) or "reflect" (mirrored without the border).
    """
    return call("nn.pad", data, pad_width=pad_width, pad_value=pad_value, pad_mode=pad_mode)
