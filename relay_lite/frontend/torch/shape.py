"""Operators that move elements or invent them: views, slices, joins, pads, and tensors of one number."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ansor.core.values.checks import require_computed
from te_lite.expr.expr import FLOATS

from ...ir.nodes import Expr
from ..onnx.emit import broadcast_to, call, cast, concatenate, const, reshape, transpose
from ..onnx.select import pick
from .node import Aten, Converter, Converters


def viewed(*names: str) -> Converter:
    """The elements in order in the shape of the result; the arguments `names` say no more than that does."""

    def convert(node: Aten) -> Expr:
        for name in names:
            node.argument(name)
        return reshape(node.tensor("self"), node.shape)

    return convert


def expand(node: Aten) -> Expr:
    """expand: repeated along axes of extent 1 and new leading ones."""
    node.integers("size")
    return broadcast_to(node.tensor("self"), node.shape)


def permute(node: Aten) -> Expr:
    """permute the axes."""
    x = node.tensor("self")
    return transpose(x, [node.axis(d, len(x.shape)) for d in node.integers("dims")])


def as_strided(node: Aten) -> Expr:
    """as_strided: elements by where they lie in memory, in which the program lays the data out densely."""
    x, size, stride = node.tensor("self"), node.integers("size"), node.integers("stride")
    first, laid = node.integer("storage_offset", 0), node.strides["self"]
    if first == 0 and size == x.shape and _same_places(size, stride, laid):
        return x
    order = sorted(range(len(x.shape)), key=lambda a: (-laid[a], a))
    inside = [x.shape[a] for a in order]
    dense = _same_places(inside, _row_major(inside), [laid[a] for a in order])
    node.require(dense, "the data must lie densely in memory", shape=x.shape, strides=laid)
    require_computed(size, "int64", str(node))
    at = np.full(size, first)
    for axis, (extent, step) in enumerate(zip(size, stride, strict=True)):
        at += (np.arange(extent) * step).reshape([-1 if a == axis else 1 for a in range(len(size))])
    node.require(at.size == 0 or at.max() < prod(x.shape), "it must stay inside of the data", shape=x.shape)
    return call("take", reshape(transpose(x, order), (prod(x.shape),)), const(at, "int32"), axis=0)


def _same_places(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether strides lead to the same elements: those of axes of one element do not count."""
    return all(d == 1 or s == t for d, s, t in zip(shape, a, b, strict=True))


def _row_major(shape: Sequence[int]) -> list[int]:
    return [prod(shape[a + 1 :]) for a in range(len(shape))]


def unfold(node: Aten) -> Expr:
    """unfold: windows of an axis, which become a new last axis."""
    x, size, step = node.tensor("self"), node.integer("size"), node.integer("step")
    axis = node.axis(node.integer("dimension"), len(x.shape))
    require_computed(node.shape, "int64", str(node))
    at = np.arange(node.shape[axis])[:, None] * step + np.arange(size)
    rank = len(x.shape)
    order = [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]
    return transpose(call("take", x, const(at, "int32"), axis=axis), order)


def diagonal(node: Aten) -> Expr:
    """diagonal of two axes, which become a new last axis."""
    x, offset = node.tensor("self"), node.integer("offset", 0)
    one, two = (node.axis(node.integer(name, k), len(x.shape)) for k, name in enumerate(("dim1", "dim2")))
    order = [a for a in range(len(x.shape)) if a not in (one, two)] + [one, two]
    k = np.arange(node.shape[-1])
    at = (k + max(-offset, 0)) * x.shape[two] + k + max(offset, 0)
    flat = reshape(transpose(x, order), (*node.shape[:-1], x.shape[one] * x.shape[two]))
    return call("take", flat, const(at, "int32"), axis=len(order) - 2)


def cat(node: Aten) -> Expr:
    """cat: tensors one after the other; those without elements are left out."""
    parts = [cast(e, node.wide) for e in node.tensors("tensors") if e is not None]
    kept = [e for e in parts if 0 not in e.shape]
    axis = node.axis(node.integer("dim", 0), len(node.shape))
    return concatenate(kept, axis) if kept else const(np.zeros(node.shape), node.wide)


def sliced(node: Aten) -> Expr:
    """slice along an axis; ends are clipped as Python does."""
    x, axis = node.tensor("self"), node.axis(node.integer("dim", 0), len(node.tensor("self").shape))
    places = _places(node, x.shape[axis])
    return x if places == range(x.shape[axis]) else pick(x, {axis: places})


def _places(node: Aten, extent: int) -> range:
    start, end = node.argument("start"), node.argument("end")
    return range(extent)[start : end : node.integer("step", 1)]


def select(node: Aten) -> Expr:
    """select one position of an axis, which is dropped."""
    x, axis, at = _selected(node)
    return reshape(pick(x, {axis: range(at, at + 1)}), node.shape)


def _selected(node: Aten) -> tuple[Expr, int, int]:
    x, index = node.tensor("self"), node.integer("index")
    axis = node.axis(node.integer("dim"), len(x.shape))
    node.require(-x.shape[axis] <= index < x.shape[axis], "the index must lie inside", shape=x.shape, index=index)
    return x, axis, index % x.shape[axis]


def slice_scatter(node: Aten) -> Expr:
    """slice_scatter: the data with a slice replaced by `src`."""
    x = node.tensor("self")
    axis = node.axis(node.integer("dim", 0), len(x.shape))
    return _replaced(x, node.operand("src", x.dtype), axis, _places(node, x.shape[axis]))


def select_scatter(node: Aten) -> Expr:
    """select_scatter: the data with one position of an axis replaced by `src`."""
    x, axis, at = _selected(node)
    src = node.operand("src", x.dtype)
    return _replaced(x, call("expand_dims", src, axis=axis), axis, range(at, at + 1))


def _replaced(x: Expr, src: Expr, axis: int, places: range) -> Expr:
    """Both one after the other, of which every position is taken from one of them."""
    at = np.arange(x.shape[axis])
    at[places] = x.shape[axis] + np.arange(len(places))
    return call("take", concatenate([x, src], axis), const(at, "int32"), axis=axis) if len(places) else x


def split(node: Aten) -> Sequence[Expr]:
    """split_with_sizes along an axis."""
    x, sizes = node.tensor("self"), node.integers("split_sizes")
    axis = node.axis(node.integer("dim", 0), len(x.shape))
    return node.onnx("Split", x, const(sizes, "int64"), outputs=len(sizes), axis=axis)


def flip(node: Aten) -> Expr:
    """flip: axes backwards, none where none is named."""
    x = node.tensor("self")
    axes = [node.axis(a, len(x.shape)) for a in node.integers("dims") if x.shape]
    return pick(x, {a: range(x.shape[a] - 1, -1, -1) for a in axes})


def repeat(node: Aten) -> Expr:
    """repeat: the whole data along every axis, and along new leading ones."""
    x, times = node.tensor("self"), node.integers("repeats")
    x = reshape(x, (*(1,) * (len(times) - len(x.shape)), *x.shape))
    return x if set(times) <= {1} else call("tile", x, reps=times)


def pad(node: Aten) -> Expr:
    """constant_pad_nd: pairs of pads from the last axis on; negative ones take away."""
    x, pads = node.tensor("self"), node.integers("pad")
    node.require(len(pads) % 2 == 0, "pads must be pairs", pad=pads)
    rank = len(x.shape)
    pairs = [(0, 0)] * (rank - len(pads) // 2) + list(zip(pads[::2], pads[1::2], strict=True))[::-1]
    widths = const([p[0] for p in pairs] + [p[1] for p in pairs], "int64")
    return node.onnx("Pad", x, widths, const(node.number("value", 0), x.dtype), mode="constant")[0]


def triangle(upper: int) -> Converter:
    """tril and triu: zeros beyond a diagonal of the last two axes."""
    return lambda node: node.onnx(
        "Trilu", node.tensor("self"), const(node.integer("diagonal", 0), "int64"), upper=upper
    )


def filled(name: str | None, value: float = 0) -> Converter:
    """A tensor of the number that argument `name` gives, or of `value`."""

    def convert(node: Aten) -> Expr:
        for given in ("size", "dtype", "self"):
            node.argument(given)
        number = value if name is None else node.number(name)
        require_computed(node.shape, node.dtype, str(node))
        return const(np.full(node.shape, number), node.dtype)

    return convert


def arange(node: Aten) -> Expr:
    """arange: start, start + step, ... below end; integers are of integers."""
    node.argument("dtype"), node.argument("end")
    require_computed(node.shape, node.dtype, str(node))
    kind = float if node.dtype in FLOATS else int
    start, step = kind(node.number("start", 0)), kind(node.number("step", 1))
    return const(start + np.arange(prod(node.shape)) * step, node.dtype)


def linspace(node: Aten) -> Expr:
    """linspace: so many numbers at one distance, those of the second half counted from the end.

    The ends of integers are cut to integers first, as PyTorch's kernels do.
    """
    node.argument("dtype"), node.argument("steps")
    require_computed(node.shape, node.dtype, str(node))
    kind, last = float if node.dtype in FLOATS else int, node.shape[0] - 1
    start, end = kind(node.number("start")), kind(node.number("end"))
    step, at = (end - start) / max(last, 1), np.arange(last + 1)
    return const(np.where(at <= max((last - 1) // 2, 0), start + step * at, end - step * (last - at)), node.dtype)


CONVERTERS: Converters = {
    **{f"aten.{name}": viewed("size") for name in ("view", "_unsafe_view")},
    "aten.reshape": viewed("shape"),
    "aten.squeeze": viewed(),
    **{f"aten.{name}": viewed("dim") for name in ("squeeze.dim", "squeeze.dims", "unsqueeze")},
    "aten.expand": expand,
    "aten.permute": permute,
    "aten.as_strided": as_strided,
    "aten.unfold": unfold,
    "aten.diagonal": diagonal,
    "aten.cat": cat,
    "aten.slice.Tensor": sliced,
    "aten.select.int": select,
    "aten.slice_scatter": slice_scatter,
    "aten.select_scatter": select_scatter,
    "aten.split_with_sizes": split,
    "aten.flip": flip,
    "aten.repeat": repeat,
    "aten.constant_pad_nd": pad,
    "aten.tril": triangle(0),
    "aten.triu": triangle(1),
    "aten.full": filled("fill_value"),
    "aten.full_like": filled("fill_value"),
    "aten.scalar_tensor": filled("s"),
    **{f"aten.{name}": filled(None) for name in ("empty.memory_format", "zeros", "zeros_like", "new_zeros")},
    **{f"aten.{name}": filled(None, 1) for name in ("ones", "ones_like", "new_ones")},
    "aten.arange.start_step": arange,
    "aten.linspace": linspace,
}
