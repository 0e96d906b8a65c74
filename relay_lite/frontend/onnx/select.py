"""Operators that pick and join parts of tensors: Gather, Slice, Split, Concat, Pad, and masks by position."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal, TypeAlias

import numpy as np

from ansor.core.values.checks import require_computed

from ...ir.extents import bounds, is_open
from ...ir.nodes import Array, Call, Expr
from .emit import add, binary, broadcast_to, call, cast, concatenate, const, item, reshape, sub, value_of
from .node import Converters, Node

Pairs: TypeAlias = list[tuple[int, int]]


def gather(node: Node) -> Expr:
    """Gather: slices along `axis` at the indices; negative ones count from the end, a scalar drops the axis."""
    x = node.input(0)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    return call("take", x, _indices(node, 1, x.shape[axis]), axis=axis)


def gather_elements(node: Node) -> Expr:
    """GatherElements: one index for every element of the result, along `axis`; other axes may end before the data's."""
    x, where = node.input(0), node.input(1)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    cut = {a: range(m) for a, (n, m) in enumerate(zip(x.shape, where.shape, strict=False)) if a != axis and m < n}
    return call("gather", pick(x, cut) if cut else x, _indices(node, 1, x.shape[axis]), axis=axis)


def _indices(node: Node, index: int, extent: int) -> Expr:
    """Indices as int32 from 0 to below `extent`."""
    indices = node.input(index)
    known = node.known(index)
    if is_open(extent):
        inside = known is not None and known.size and known.min() >= 0 and known.max() < bounds(extent)[0]
        law = "indices along an open extent must be known, from 0, and inside for all sizes"
        node.require(inside, law, extent=extent, indices=None if known is None else known.reshape(-1)[:8].tolist())
        return const(known, "int32")
    if known is not None:
        inside = known.size == 0 or (-extent <= known.min() and known.max() < extent)
        node.require(inside, f"indices must be in -{extent} to {extent - 1}", indices=known.reshape(-1)[:8].tolist())
    return _from_start(indices, known, extent)


def _from_start(indices: Expr, known: Array | None, extent: int) -> Expr:
    """Indices as int32, negative ones counted from the end."""
    if known is not None:
        whole = np.where(known < 0, known + extent, known)
        return const(np.clip(whole, -1, extent), "int32")
    indices = narrow(indices)
    return call("where", binary("less", indices, 0), add(indices, extent), indices)


def narrow(x: Expr) -> Expr:
    """Integers as int32; a conversion from int32 is undone."""
    if isinstance(x, Call) and x.op.name == "cast" and x.args[0].dtype == "int32":
        return x.args[0]
    return cast(x, "int32")


def slice_attrs(node: Node) -> Expr:
    """Slice before opset 10: attributes, and steps of 1."""
    starts = node.integers("starts")
    return _sliced(node, starts, node.integers("ends"), node.integers("axes") if node.has("axes") else None, None)


def slice_inputs(node: Node) -> Expr:
    """Slice from opset 10 on: inputs, and steps that may be negative."""
    starts, ends = node.list_at(1, "starts", since=10), node.list_at(2, "ends", since=10)
    node.require(starts is not None and ends is not None, "starts and ends are needed")
    assert starts is not None and ends is not None
    return _sliced(node, starts, ends, node.list_at(3, "axes", since=10), node.list_at(4, "steps", since=10))


def _sliced(
    node: Node, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int] | None, steps: Sequence[int] | None
) -> Expr:
    x = node.input(0)
    axes = tuple(range(len(starts))) if axes is None else tuple(node.axis(a, len(x.shape)) for a in axes)
    steps = (1,) * len(starts) if steps is None else steps
    same = len(starts) == len(ends) == len(set(axes)) == len(axes) == len(steps) and 0 not in steps
    law = "starts, ends, different axes and steps that are not 0 must be equally many"
    node.require(same, law, starts=tuple(starts), ends=tuple(ends), axes=axes, steps=tuple(steps))
    if is_open(*[x.shape[a] for a in axes], *starts, *ends):
        out = call("strided_slice", x, axes=axes, begin=tuple(starts), end=tuple(ends), strides=tuple(steps))
        return x if out.shape == x.shape else out
    picked = {a: range(x.shape[a])[s:e:t] for a, s, e, t in zip(axes, starts, ends, steps, strict=True)}
    return pick(x, {a: r for a, r in picked.items() if r != range(x.shape[a])})


def pick(x: Expr, ranges: dict[int, range]) -> Expr:
    """The given positions along each axis; those of a negative step are taken in order and then reversed."""
    value = value_of(x)
    if value is not None:
        return const(value[np.ix_(*(ranges.get(a, range(n)) for a, n in enumerate(value.shape)))], x.dtype)
    if not ranges:
        return x
    upward = {a: r if r.step > 0 else r[::-1] for a, r in ranges.items()}
    out = call(
        "strided_slice", x, axes=tuple(upward), begin=tuple(r.start for r in upward.values()),
        end=tuple(r.stop for r in upward.values()), strides=tuple(r.step for r in upward.values()),
    )  # fmt: skip
    for axis, r in ranges.items():
        if r.step < 0:
            out = call("reverse", out, axis=axis)
    return out


def split(node: Node) -> Sequence[Expr]:
    """Split along `axis` into the named extents, or into equal parts of which the last may be smaller."""
    x = node.input(0)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    sizes = _parts(node, x.shape[axis])
    cut = [s for s in sizes if s]
    if len(cut) > 1:
        ends = tuple(int(e) for e in np.cumsum(cut)[:-1])
        whole = call("split", x, axis=axis, indices_or_sections=len(cut) if len(set(cut)) == 1 else ends)
    parts = iter([x] if len(cut) < 2 else [item(whole, i) for i in range(len(cut))])
    return [next(parts) if s else const(np.zeros((*x.shape[:axis], 0, *x.shape[axis + 1 :])), x.dtype) for s in sizes]


def _parts(node: Node, extent: int) -> Sequence[int]:
    """The extents of the parts: those that are named, or equal ones."""
    sizes = node.list_at(1, "split", since=13)
    if sizes is None:
        count = node.integer("num_outputs", len(node.outputs))
        whole_parts = count >= 1 and (node.opset >= 18 or extent % count == 0)
        node.require(whole_parts, "the parts must be equal", extent=extent, parts=count)
        node.require(count == len(node.outputs), "the parts must be as many as outputs", parts=count)
        size = -(-extent // count)
        sizes = tuple(min(size, extent - i * size) for i in range(count))
    fits = min(sizes) >= 0 and sum(sizes) == extent and len(sizes) == len(node.outputs)
    node.require(fits, "the parts must be as many as outputs and fill the axis", extent=extent, split=sizes)
    return sizes


def concat(node: Node) -> Expr:
    """Concat along `axis`; tensors that have no element there are left out."""
    parts = [node.input(i) for i in range(len(node.inputs))]
    node.require(parts, "at least one input is needed")
    axis = node.axis(node.integer("axis"), len(parts[0].shape))
    return concatenate([p for p in parts if len(p.shape) <= axis or p.shape[axis] != 0] or parts[:1], axis)


def pad_attrs(node: Node) -> Expr:
    """Pad before opset 11: attributes."""
    return _padded(node, node.integers("pads"), node.number("value", 0.0), None)


def pad_inputs(node: Node) -> Expr:
    """Pad from opset 11 on: pads, value and (from 18 on) axes are inputs."""
    pads = node.list_at(1, "pads", since=11)
    node.require(pads is not None, "pads are needed")
    assert pads is not None
    axes, given = node.list_at(3, "axes", since=11), node.optional(2)
    if given is not None and node.known(2) is None:
        padded, constant = _padded(node, pads, 0, axes), node.text("mode", "constant") == "constant"
        return _surrounded(node, padded, _widths(node, pads, axes), given) if constant else padded
    value = node.scalar(2)
    return _padded(node, pads, int(value) if isinstance(value, bool) else value or 0, axes)


def _surrounded(node: Node, x: Expr, widths: Pairs, value: Expr) -> Expr:
    """A padded `x` with a value that is known when it runs in place of what was put around it."""
    node.require(prod(value.shape) == 1, "input 2 must hold one number", shape=value.shape)
    for axis, (before, after) in enumerate(widths):
        if max(before, after) > 0:
            at = np.arange(x.shape[axis])
            own = (at >= before) & (at < x.shape[axis] - after)
            mask = const(own.reshape(-1, *(1,) * (len(x.shape) - axis - 1)), "bool")
            x = call("where", mask, x, reshape(value, ()))
    return x


def _padded(node: Node, pads: Sequence[int], value: float, axes: Sequence[int] | None) -> Expr:
    widths, mode = _widths(node, pads, axes), node.text("mode", "constant")
    modes = ("constant", "edge", "reflect", "wrap")
    node.require(mode in modes, f"mode must be one of {', '.join(modes)}", mode=mode)
    x, widths = _cropped(node, widths, pads)
    if not any(b or e for b, e in widths):
        return x
    small = all(max(w) < max(d, 1) for w, d in zip(widths, x.shape, strict=True))
    if mode in ("constant", "edge") or (mode == "reflect" and small):
        number = int(value) if isinstance(value, bool) else value
        return call("nn.pad", x, pad_width=tuple(widths), pad_value=number, pad_mode=mode)
    return _repeated(node, x, widths, "reflect" if mode == "reflect" else "wrap")


def _widths(node: Node, pads: Sequence[int], axes: Sequence[int] | None) -> Pairs:
    """What is added before and behind every axis; below zero is taken away."""
    rank = len(node.input(0).shape)
    where = tuple(range(rank)) if axes is None else tuple(node.axis(a, rank) for a in axes)
    node.require(len(pads) == 2 * len(where), f"{2 * len(where)} pads are needed", pads=tuple(pads))
    given = {a: (pads[i], pads[i + len(where)]) for i, a in enumerate(where)}
    return [given.get(a, (0, 0)) for a in range(rank)]


def _cropped(node: Node, widths: Pairs, pads: Sequence[int]) -> tuple[Expr, Pairs]:
    """The input without what is taken away, and what is added."""
    x = node.input(0)
    crop = {a: range(max(-b, 0), x.shape[a] - max(-e, 0)) for a, (b, e) in enumerate(widths) if min(b, e) < 0}
    left = all(r.start <= r.stop for r in crop.values())
    node.require(left, "no more can be taken away than there is", shape=x.shape, pads=tuple(pads))
    return pick(x, crop), [(max(b, 0), max(e, 0)) for b, e in widths]


def _repeated(node: Node, x: Expr, widths: Pairs, mode: Literal["reflect", "wrap"]) -> Expr:
    """The pads are elements of `x`, taken axis by axis; there may be more of them than elements."""
    for axis, (before, after) in enumerate(widths):
        if before or after:
            node.require(x.shape[axis] > (mode == "reflect"), "there must be something to repeat", shape=x.shape)
            require_computed((x.shape[axis] + before + after,), "int64", str(node))
            positions = np.pad(np.arange(x.shape[axis]), (before, after), mode=mode)
            x = call("take", x, const(positions, "int32"), axis=axis)
    return x


def one_hot(node: Node) -> Expr:
    """OneHot: a new axis of `depth`, the second value of `values` at the index and the first elsewhere.

    Of an index outside of the axis there is the first value only.
    """
    depth, values = node.scalar(1), node.input(2)
    node.require(values.shape == (2,) and depth is not None, "depth and two values are needed")
    node.require(depth == depth // 1, "depth must be an integer", depth=depth)
    rank = len(node.input(0).shape) + 1
    hot = [reshape(pick(values, {0: range(j, j + 1)}), ()) for j in (1, 0)]
    where, known = node.input(0), node.known(0)
    if known is None and np.dtype(where.dtype).itemsize >= 4 and where.dtype != "int32":
        where = call("clip", where, a_min=-depth - 1, a_max=depth)  # far outside stays outside in 32 bits
    return call("one_hot", _from_start(where, known, int(depth)), *hot, depth=int(depth),
                axis=node.axis(node.integer("axis", -1), rank), dtype=values.dtype)  # fmt: skip


def triangle(node: Node) -> Expr:
    """Trilu: the upper or lower triangle of the last two axes, zeros elsewhere."""
    x = node.input(0)
    node.require(len(x.shape) >= 2, "two axes are needed", shape=x.shape)
    k = node.scalar(1) or 0
    require_computed(x.shape[-2:], "bool", str(node))
    ones: Array = np.ones(x.shape[-2:], bool)
    kept = np.triu(ones, int(k)) if node.integer("upper", 1) else np.tril(ones, int(k))
    return call("where", const(kept, "bool"), x, const(0, x.dtype))


def reverse_sequence(node: Node) -> Expr:
    """ReverseSequence: of every item of a batch the first `sequence_lens` steps in the opposite order."""
    x, lengths = node.input(0), node.input(1)
    batch, time = node.integer("batch_axis", 1), node.integer("time_axis", 0)
    fits = {batch, time} == {0, 1} and len(x.shape) >= 2 and lengths.shape == (x.shape[batch],)
    node.require(fits, "axes are 0 and 1, with one length an item", shape=x.shape, sequence_lens=lengths.shape)
    steps = const(np.arange(x.shape[time]).reshape((-1, 1) if time == 0 else (1, -1)), "int32")
    count = call("expand_dims", narrow(lengths), axis=time)
    back = sub(sub(count, 1), steps)
    at = call("where", binary("less", steps, count), back, steps)
    inner = x.shape[2:]
    flat = call("expand_dims", at, axis=2, num_newaxis=len(inner)) if inner else at
    return call("gather", x, broadcast_to(flat, x.shape), axis=time)


CONVERTERS: Converters = {
    "Gather": {1: gather},
    "GatherElements": {11: gather_elements},
    "Slice": {1: slice_attrs, 10: slice_inputs},
    "Split": {2: split},
    "Concat": {4: concat},
    "Pad": {2: pad_attrs, 11: pad_inputs},
    "OneHot": {9: one_hot},
    "Trilu": {14: triangle},
    "ReverseSequence": {10: reverse_sequence},
}
