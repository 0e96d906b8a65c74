"""Gathers and scatters by positions of several axes, and elements by one axis.

A scatter asks of every element which of the updates go there: a comparison of positions and a reduction over the
updates, which no order of threads can change.  Where positions are known when the model is read, every element has a
list of its updates instead, so nothing is compared with everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from te_lite.expr.expr import FLOATS
from te_lite.expr.reduction import greatest, least

from ...ir.nodes import Array, Expr
from .emit import add, binary, broadcast_to, call, const, mul, reshape, sub, transpose, value_of
from .node import Converters, Node
from .select import narrow

REDUCTIONS = {"none": "", "add": "sum", "mul": "prod", "max": "max", "min": "min"}
JOIN = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def gather_nd(node: Node) -> Expr:
    """GatherND: slices of the data at positions, which are the last axis of the indices, batch by batch."""
    x, where = node.input(0), node.input(1)
    batch = node.integer("batch_dims", 0)
    fits = 0 <= batch < min(len(x.shape), len(where.shape)) and x.shape[:batch] == where.shape[:batch]
    node.require(
        fits, "batch_dims must count leading axes that agree", data=x.shape, indices=where.shape, batch_dims=batch
    )
    depth = where.shape[-1]
    node.require(1 <= depth <= len(x.shape) - batch, "the last axis of the indices must count axes of the data",
                 data=x.shape, indices=where.shape)  # fmt: skip
    flat = _flat_positions(node, where, x.shape[batch : batch + depth])
    rows, inner = prod(x.shape[batch : batch + depth]), x.shape[batch + depth :]
    outer = prod(x.shape[:batch])
    first = np.arange(outer).reshape(x.shape[:batch] + (1,) * (len(flat.shape) - batch)) * rows
    at = add(flat, const(np.broadcast_to(first, flat.shape), "int32")) if batch else flat
    return call("take", reshape(x, (outer * rows, *inner)), at, axis=0)


def _flat_positions(node: Node, where: Expr, extents: Sequence[int]) -> Expr:
    """Positions of several axes (the last axis of `where`) as one number each, int32; negative ones from the end."""
    sizes, known = np.array(extents), value_of(where)
    if known is not None:
        inside = bool(np.all((-sizes <= known) & (known < sizes)))
        node.require(inside, "indices must lie inside of the data", extents=tuple(extents))
    where = narrow(where)
    wrapped = call("where", binary("less", where, 0), add(where, const(sizes, "int32")), where)
    if len(extents) == 1:
        return reshape(wrapped, where.shape[:-1])
    steps = np.cumprod([1, *extents[:0:-1]])[::-1].copy()
    return call("sum", mul(wrapped, const(steps, "int32")), axis=(len(where.shape) - 1,), keepdims=False)


def scatter_nd(node: Node) -> Expr:
    """ScatterND: the data with slices replaced by the updates, or joined with them by a reduction."""
    x, where, updates = node.input(0), node.input(1), node.input(2)
    depth = where.shape[-1] if where.shape else 0
    law = "the last axis of the indices counts axes of the data, the updates have the rest of both"
    fits = 1 <= depth <= len(x.shape) and updates.shape == (*where.shape[:-1], *x.shape[depth:])
    node.require(fits, law, data=x.shape, indices=where.shape, updates=updates.shape)
    rows, count, reduction = prod(x.shape[:depth]), prod(where.shape[:-1]), _reduction(node)
    if 0 in (count, prod(x.shape)):
        return x
    at, inner = reshape(_flat_positions(node, where, x.shape[:depth]), (1, count)), prod(x.shape[depth:])
    x_rows, new, known = reshape(x, (rows, inner)), reshape(updates, (count, inner)), value_of(at)
    if known is None:
        hit = binary("equal", at, const(np.arange(rows).reshape(rows, 1), "int32"))
        flat = _joined(node, x_rows, new, hit)
    else:
        lists = writers(known, rows, last=not reduction)[0]
        taken = call("take", new, const(np.maximum(lists, 0), "int32"), axis=0)
        flat = _from_lists(reduction, x_rows, taken, lists[..., None] >= 0, 1)
    return reshape(flat, x.shape)


def writers(at: Array, extent: int, last: bool) -> Array:
    """int32 [lines, extent, most]: which of the updates at the known positions `at` [lines, count] go to each element.

    In their order; -1 fills the lists up.  With `last` the lists have one entry, the last one.
    """
    lines, count = at.shape
    used = (at >= 0).ravel()
    place = (np.arange(lines)[:, None] * extent + at).ravel()[used]
    update = np.tile(np.arange(count, dtype=np.int32), lines)[used]
    order = np.argsort(place, kind="stable")
    place, update = place[order], update[order]
    rank = np.zeros_like(place) if last else np.arange(len(place)) - np.searchsorted(place, place)
    lists = np.full((lines * extent, int(rank.max(initial=0)) + 1), -1, np.int32)
    np.maximum.at(lists, (place, rank), update)
    return lists.reshape(lines, extent, lists.shape[1])


def _from_lists(reduction: str, x: Expr, taken: Expr, there: Array, axis: int) -> Expr:
    """`x` joined with what was `taken` from the updates by lists of writers, which lie along `axis`.

    `there` says where a list has an update, and spreads over `taken`.
    """
    has = const(there, "bool")
    if not reduction:
        return call("where", call("squeeze", has, axis=(axis,)), call("squeeze", taken, axis=(axis,)), x)
    spread = call("where", has, taken, const(_neutral(reduction, x.dtype), x.dtype))
    return binary(JOIN[reduction], x, call(reduction, spread, axis=(axis,), keepdims=False))


def _joined(node: Node, x: Expr, updates: Expr, hit: Expr) -> Expr:
    """`x` (rows, inner) with the `updates` (count, inner) that `hit` (rows, count) sends to each row."""
    reduction = _reduction(node)
    if not reduction:
        order = const(np.arange(hit.shape[1])[None], "int32")
        last = call("max", call("where", hit, order, const(-1, "int32")), axis=(1,), keepdims=False)
        new = call("take", updates, last, axis=0)
        return call("where", call("expand_dims", binary("greater_equal", last, 0), axis=1), new, x)
    spread = call("where", call("expand_dims", hit, axis=2), call("expand_dims", updates, axis=0),
                  const(_neutral(reduction, x.dtype), x.dtype))  # fmt: skip
    return binary(JOIN[reduction], x, call(reduction, spread, axis=(1,), keepdims=False))


def _reduction(node: Node) -> str:
    """The reduction of the graph that the attribute names; "" for the last update alone."""
    name = node.text("reduction", "none")
    node.require(name in REDUCTIONS, f"reduction must be one of {', '.join(REDUCTIONS)}", reduction=name)
    return REDUCTIONS[name]


def _neutral(reduction: str, dtype: str) -> float:
    """What a reduction makes no difference with."""
    if reduction in ("sum", "prod"):
        return float(reduction == "prod")
    end = least if reduction == "max" else greatest
    return float(end(dtype).value) if dtype in FLOATS else int(end(dtype).value)


def scatter_elements(node: Node) -> Expr:
    """ScatterElements: elements replaced by, or joined with, the updates that have them as their index along `axis`."""
    x, where, updates = node.input(0), node.input(1), node.input(2)
    axis = node.axis(node.integer("axis", 0), len(x.shape))
    fits = len(where.shape) == len(x.shape) and where.shape == updates.shape
    fits = fits and all(w <= d or a == axis for a, (w, d) in enumerate(zip(where.shape, x.shape, strict=True)))
    law = "indices and updates must have one shape, within the data on every axis but one"
    node.require(fits, law, data=x.shape, indices=where.shape, updates=updates.shape)
    reduction = _reduction(node)
    if 0 in (prod(where.shape), prod(x.shape)):
        return x
    extent, count = x.shape[axis], where.shape[axis]
    where = _flat_positions(node, call("expand_dims", where, axis=len(where.shape)), (extent,))
    widths = [(0, 0 if a == axis else d - w) for a, (w, d) in enumerate(zip(where.shape, x.shape, strict=True))]
    order = [a for a in range(len(x.shape)) if a != axis] + [axis]
    at, new = (_padded(v, widths, fill) for v, fill in ((where, -1), (updates, 0)))
    at, new, flat = (reshape(transpose(v, order), (prod(x.shape) // extent, v.shape[axis])) for v in (at, new, x))
    known = value_of(at)
    if known is None:
        hit = binary("equal", call("expand_dims", at, axis=1), const(np.arange(extent).reshape(1, extent, 1), "int32"))
        lines = elements(reduction, flat, new, hit, count)
    else:
        lists = writers(known, extent, last=not reduction)
        index = const(np.maximum(lists, 0).reshape(len(lists), -1), "int32")
        taken = reshape(call("gather", new, index, axis=1), lists.shape)
        lines = _from_lists(reduction, flat, taken, lists >= 0, 2)
    out = reshape(lines, [x.shape[a] for a in order])
    return transpose(out, [order.index(a) for a in range(len(order))])


def _padded(x: Expr, widths: Sequence[tuple[int, int]], fill: int) -> Expr:
    return call("nn.pad", x, pad_width=tuple(widths), pad_value=fill) if any(any(w) for w in widths) else x


def elements(reduction: str, x: Expr, updates: Expr, hit: Expr, count: int) -> Expr:
    """`x` (lines, extent) with the `updates` (lines, count) that `hit` (lines, extent, count) sends to each element.

    They are joined by `reduction`, one of the graph's; with "" the last one replaces the element.
    """
    if not reduction:
        order = const(np.arange(count).reshape(1, 1, count), "int32")
        last = call("max", call("where", hit, order, const(-1, "int32")), axis=(2,), keepdims=False)
        new = call("gather", updates, binary("maximum", last, 0), axis=1)
        return call("where", binary("greater_equal", last, 0), new, x)
    spread = call("where", hit, call("expand_dims", updates, axis=1), const(_neutral(reduction, x.dtype), x.dtype))
    return binary(JOIN[reduction], x, call(reduction, spread, axis=(2,), keepdims=False))


def tensor_scatter(node: Node) -> Expr:
    """TensorScatter: a cache with the update written at the index of each item of the batch, along `axis`.

    The writing goes on at the beginning when `mode` is circular.
    """
    x, update, start = node.input(0), node.input(1), node.optional(2)
    rank, mode = len(x.shape), node.text("mode", "linear")
    axis = node.axis(node.integer("axis", -2), rank)
    node.require(mode in ("linear", "circular"), "mode must be linear or circular", mode=mode)
    fits = len(update.shape) == rank and axis > 0 and update.shape[axis] <= x.shape[axis]
    fits = fits and all(u == d or a == axis for a, (u, d) in enumerate(zip(update.shape, x.shape, strict=False)))
    node.require(fits, "the update must fit the cache, and the axis not be the batch", cache=x.shape,
                 update=update.shape, axis=axis)  # fmt: skip
    first = const(np.zeros(x.shape[0]), "int32") if start is None else narrow(start)
    node.require(first.shape == x.shape[:1], "one index an item of the batch is needed", write_indices=first.shape)
    line = (1,) * axis + (x.shape[axis],) + (1,) * (rank - axis - 1)
    back = sub(const(np.arange(x.shape[axis]).reshape(line), "int32"), reshape(first, (x.shape[0], *(1,) * (rank - 1))))
    back = call("where", binary("less", back, 0), add(back, x.shape[axis]), back) if mode == "circular" else back
    written = call("logical_and", binary("greater_equal", back, 0), binary("less", back, update.shape[axis]))
    inside = broadcast_to(call("clip", back, a_min=0.0, a_max=float(update.shape[axis] - 1)), x.shape)
    return call("where", written, call("gather", update, inside, axis=axis), x)


CONVERTERS: Converters = {
    "TensorScatter": {24: tensor_scatter},
    "GatherND": {11: gather_nd},
    "ScatterND": {11: scatter_nd},
    "Scatter": {9: scatter_elements},
    "ScatterElements": {11: scatter_elements},
}
