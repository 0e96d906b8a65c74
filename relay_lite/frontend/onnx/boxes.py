"""Boxes of images: RoiAlign and MaxRoiPool read what is inside, NonMaxSuppression keeps the best of known ones.

Which boxes are left by NonMaxSuppression decides the shape of its result, so boxes and scores must be known at import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product as every
from math import prod

import numpy as np

from te_lite.expr.expr import FLOATS

from ...ir.nodes import Array, Expr
from .emit import add, binary, broadcast_to, call, cast, const, maximum, mul, reshape, sub, value_of
from .node import Converters, Node
from .sample import Axis, linear_taps, read_at
from .select import narrow, pick

MAX, AVERAGE = "max", "avg"


def non_max_suppression(node: Node) -> Expr:
    """NonMaxSuppression of known boxes: rows (batch, class, box) of those kept, int64."""
    boxes, scores, most = node.value(0), node.value(1), node.scalar(2)
    node.require(boxes is not None and scores is not None, "boxes and scores are needed")
    assert boxes is not None and scores is not None
    fits = boxes.ndim == 3 and scores.ndim == 3 and boxes.shape == (scores.shape[0], scores.shape[2], 4)
    law = "boxes must be (batch, boxes, 4) and scores (batch, classes, boxes)"
    node.require(fits, law, boxes=boxes.shape, scores=scores.shape)
    overlap, least = node.scalar(3) or 0.0, node.scalar(4)
    centred = bool(node.integer("center_point_box", 0))
    kept = [
        (b, c, k)
        for b, c in every(range(scores.shape[0]), range(scores.shape[1]))
        for k in _kept(_corners(boxes[b], centred), scores[b, c], int(most or 0), np.float32(overlap), least)
    ]
    return const(np.array(kept).reshape(-1, 3), "int64")


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes (n, 4) as (2, 2, n): the lesser corner, then the greater one."""
    if centred:
        middle, half = boxes[:, :2].T, boxes[:, 2:].T / 2
        return np.stack([middle - half, middle + half])
    first, second = boxes[:, :2].T, boxes[:, 2:].T
    return np.stack([np.minimum(first, second), np.maximum(first, second)])


def _kept(corners: Array, scores: Array, most: int, overlap: float, least: float | None) -> list[int]:
    """The boxes from the best on that overlap no better one by more than `overlap` of what both cover."""
    kept: list[int] = []
    for k in np.argsort(-scores, kind="stable"):
        if len(kept) >= most or (least is not None and not scores[k] > np.float32(least)):
            break
        if all(_share(corners[..., k], corners[..., other]) <= overlap for other in kept):
            kept.append(int(k))
    return kept


def _share(a: Array, b: Array) -> float:
    """The area that two boxes have in common over what they cover together; 0 for boxes without an area."""
    sides = np.minimum(a[1], b[1]) - np.maximum(a[0], b[0])
    common = float(np.prod(np.maximum(sides, 0)))
    areas = [float(np.prod(np.maximum(box[1] - box[0], 0))) for box in (a, b)]
    return common / (sum(areas) - common) if common > 0 and min(areas) > 0 else 0.0


@dataclass(frozen=True, eq=False)
class _Line:
    """The samples of every box along an axis of the image.

    `at` (R, bins, samples) are positions in elements, `inside` whether they lie in the image, `count` (R) how many
    samples a bin has, and `counted` (R, 1, samples) which those are, None for all.
    """

    at: Expr
    inside: Expr
    count: Expr
    counted: Expr | None


def roi_align(node: Node) -> Expr:
    """RoiAlign: images (N, C, H, W) read between their elements at a grid of samples in every bin of every box."""
    x, boxes, images = node.input(0), node.input(1), node.input(2)
    count = _check_boxes(node, x, boxes, 4)
    node.require(images.shape == (count,), "one of batch_indices a box is needed", batch_indices=images.shape)
    mode, bins = node.text("mode", AVERAGE), [node.integer(f"output_{side}", 1) for side in ("height", "width")]
    node.require(mode in (AVERAGE, MAX), f"mode must be {AVERAGE} or {MAX}", mode=mode)
    node.require(min(bins) >= 1, "output_height and output_width must be at least 1", bins=bins)
    rows, columns = (_line(node, cast(boxes, x.dtype), d, x.shape[2 + d], n) for d, n in enumerate(bins))
    extents = (count, prod(rows.at.shape[1:]), prod(columns.at.shape[1:]))
    lines = reshape(rows.at, (*extents[:2], 1)), reshape(columns.at, (count, 1, extents[2]))
    own = reshape(call("take", x, narrow(images), axis=0), (count, x.shape[1], prod(x.shape[2:])))
    places = [reshape(broadcast_to(line, extents), (count, prod(extents[1:]))) for line in lines]
    read = _corners_read(own, x.shape[2:], places, mode)
    return _pooled(reshape(read, (count, x.shape[1], *rows.at.shape[1:], *columns.at.shape[1:])), rows, columns, mode)


def _check_boxes(node: Node, x: Expr, boxes: Expr, columns: int) -> int:
    """How many boxes there are."""
    count = boxes.shape[0] if boxes.shape else 0
    law = f"data (N, C, H, W) of floats and rois (R, {columns}) are needed"
    fits = len(x.shape) == 4 and boxes.shape == (count, columns) and x.dtype in FLOATS
    node.require(fits, law, data=x.shape, rois=boxes.shape, dtype=x.dtype)
    return count


def _line(node: Node, boxes: Expr, d: int, extent: int, bins: int) -> _Line:
    """The samples along axis `d` (0: height)."""
    scale, half, fixed = node.number("spatial_scale", 1.0), _half_pixel(node), node.integer("sampling_ratio", 0)
    node.require(fixed >= 0, "sampling_ratio must be at least 0", sampling_ratio=fixed)
    start, end = (sub(mul(_column(boxes, 1 - d + k), scale), 0.5 if half else 0.0) for k in (0, 2))
    length = sub(end, start) if half else maximum(sub(end, start), 1.0)
    size = binary("divide", length, float(bins))
    count = const(np.full(boxes.shape[0], fixed), boxes.dtype) if fixed else maximum(call("ceil", size), 0.0)
    known = value_of(count)
    node.require(known is not None, "sampling_ratio must be at least 1, or the rois known when the model is read")
    assert known is not None
    most = max(int(known.max(initial=1)), 1)
    start, size, shown = (call("expand_dims", e, axis=1, num_newaxis=2) for e in (start, size, count))
    middles = mul(const(np.arange(most) + 0.5, boxes.dtype), binary("divide", size, maximum(shown, 1.0)))
    at = add(add(start, mul(size, const(np.arange(bins)[:, None], boxes.dtype))), middles)
    inside = call("logical_and", binary("greater_equal", at, -1.0), binary("less_equal", at, float(extent)))
    counted = None if np.all(known == most) else binary("less", const(np.arange(most), boxes.dtype), shown)
    return _Line(at, inside, count, counted)


def _half_pixel(node: Node) -> bool:
    """Whether boxes are moved by half a pixel; before opset 16 they are not."""
    modes = ("half_pixel", "output_half_pixel")
    mode = node.text("coordinate_transformation_mode", modes[node.opset < 16])
    node.require(mode in modes, f"coordinate_transformation_mode must be {modes[0]} or {modes[1]}", mode=mode)
    return mode == modes[0]


def _column(boxes: Expr, k: int) -> Expr:
    return reshape(pick(boxes, {1: range(k, k + 1)}), boxes.shape[:1])


def _corners_read(flat: Expr, extents: Sequence[int], places: Sequence[Expr], mode: str) -> Expr:
    """The four elements around every place, each times its weight, together; of a maximum it is their largest."""
    axes = [Axis(extent, "border", False) for extent in extents]
    taps = [linear_taps(axis.clamped(place)) for axis, place in zip(axes, places, strict=True)]
    first, *rest = (read_at(flat, axes, chosen) for chosen in every(*taps))
    return reduce(add if mode == AVERAGE else maximum, rest, first)


def _pooled(grid: Expr, rows: _Line, columns: _Line, mode: str) -> Expr:
    """The samples (R, C, bins, samples, bins, samples) of every bin as one; outside of the image they are 0."""
    grid = call("where", _both(rows.inside, columns.inside), grid, const(0, grid.dtype))
    counted = [line.counted for line in (rows, columns)]
    if counted[0] is not None or counted[1] is not None:
        every_one = const(np.ones((1, 1, 1)), "bool")
        missing = const(0 if mode == AVERAGE else -np.inf, grid.dtype)
        grid = call("where", _both(*(every_one if c is None else c for c in counted)), grid, missing)
    total = mul(rows.count, columns.count)
    shown = call("expand_dims", cast(total, grid.dtype), axis=1, num_newaxis=3)
    if mode == AVERAGE:
        return binary("divide", call("sum", grid, axis=(3, 5), keepdims=False), maximum(shown, 1.0))
    best = call("max", grid, axis=(3, 5), keepdims=False)
    return call("where", binary("greater", shown, 0.0), best, const(0, grid.dtype))


def _both(rows: Expr, columns: Expr) -> Expr:
    """Where rows (R, bins, samples) and columns both are true, as (R, 1, bins, samples, bins, samples)."""
    r, c = rows.shape, columns.shape
    return call("logical_and", reshape(rows, (r[0], 1, *r[1:], 1, 1)), reshape(columns, (c[0], 1, 1, 1, *c[1:])))


def max_roi_pool(node: Node) -> Expr:
    """MaxRoiPool: the largest element in every bin of every box (image, x1, y1, x2, y2); 0 where a bin has none."""
    x, boxes = node.input(0), node.input(1)
    count, bins = _check_boxes(node, x, boxes, 5), node.integers("pooled_shape")
    node.require(len(bins) == 2 and min(bins) >= 1, "pooled_shape must be 2 extents", pooled_shape=bins)
    scale = node.number("spatial_scale", 1.0)
    own = call("take", x, narrow(_column(boxes, 0)), axis=0)
    low = const(-np.inf, x.dtype)
    masks = [_members(mul(_column(boxes, 2 - d), scale), mul(_column(boxes, 4 - d), scale), n, x.shape[2 + d])
             for d, n in enumerate(bins)]  # fmt: skip
    rows = reshape(masks[0], (count, 1, bins[0], x.shape[2], 1))
    best = call("max", call("where", rows, call("expand_dims", own, axis=2), low), axis=(3,), keepdims=False)
    columns = reshape(masks[1], (count, 1, 1, bins[1], x.shape[3]))
    best = call("max", call("where", columns, call("expand_dims", best, axis=3), low), axis=(4,), keepdims=False)
    some = [cast(call("max", cast(m, "int32"), axis=(2,), keepdims=False), "bool") for m in masks]
    full = call("logical_and", reshape(some[0], (count, 1, bins[0], 1)), reshape(some[1], (count, 1, 1, bins[1])))
    return call("where", full, best, const(0, x.dtype))


def _members(first: Expr, last: Expr, bins: int, extent: int) -> Expr:
    """Which elements of an axis belong to each bin (R, bins, extent) of boxes from `first` to `last`, rounded."""
    start, end = (_rounded(e) for e in (first, last))
    size = binary("divide", maximum(add(sub(end, start), 1.0), 1.0), float(bins))
    start, size = (call("expand_dims", e, axis=1, num_newaxis=2) for e in (start, size))
    place, bin_ = const(np.arange(extent), size.dtype), np.arange(bins)[:, None]
    begin = add(call("floor", mul(size, const(bin_, size.dtype))), start)
    stop = add(call("ceil", mul(size, const(bin_ + 1, size.dtype))), start)
    return call("logical_and", binary("greater_equal", place, begin), binary("less", place, stop))


def _rounded(e: Expr) -> Expr:
    """The nearest whole number, of two the one farther from 0."""
    return mul(call("sign", e), call("floor", add(call("abs", e), 0.5)))


CONVERTERS: Converters = {
    "NonMaxSuppression": {10: non_max_suppression},
    "RoiAlign": {10: roi_align},
    "MaxRoiPool": {1: max_roi_pool},
}
