"""Operators that compare the elements of an axis with one another: TopK, Hardmax; and picks by a known condition."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ...ir.nodes import Expr
from .emit import binary, call, cast, const, item, reshape
from .node import Converters, Node
from .select import pick


def top_k(node: Node) -> Sequence[Expr]:
    """TopK: the k largest or smallest elements along `axis` in order, and their positions; equals stay in order."""
    x, k = node.input(0), node.scalar(1) if node.opset >= 10 else node.integer("k")
    axis = node.axis(node.integer("axis", -1), len(x.shape))
    extent = x.shape[axis]
    node.require(k is not None and 0 <= k <= extent, f"k must be in 0 to {extent}", k=k)
    node.integer("sorted", 1)
    descending = bool(node.integer("largest", 1))
    if 0 in x.shape or k == 0:
        shape = (*x.shape[:axis], int(k), *x.shape[axis + 1 :])
        return [const(np.zeros(shape), x.dtype), const(np.zeros(shape), "int64")]
    found = call("sort_with_positions", x, axis=axis, descending=descending)
    values, positions = [pick(item(found, j), {axis: range(int(k))}) for j in range(2)]
    return [values, cast(positions, "int64")]


def hard_max_flat(node: Node) -> Expr:
    """Hardmax before opset 13: the axes from `axis` on are one, by default from 1 on."""
    x = node.input(0)
    axis = node.axis(node.integer("axis", 1), len(x.shape))
    return reshape(_hard(reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:]))), 1), x.shape)


def hard_max(node: Node) -> Expr:
    """Hardmax: 1 at the first largest element along `axis`, 0 elsewhere."""
    x = node.input(0)
    return _hard(x, node.axis(node.integer("axis", -1), len(x.shape)))


def _hard(x: Expr, axis: int) -> Expr:
    if 0 in x.shape:
        return x
    first = call("argmax", x, axis=(axis,), keepdims=True)
    places = const(np.arange(x.shape[axis]).reshape((-1,) + (1,) * (len(x.shape) - axis - 1)), "int32")
    return cast(binary("equal", first, places), x.dtype)


def compress(node: Node) -> Expr:
    """Compress: the slices along `axis`, or the elements of the flat data, where a known condition holds."""
    x, condition = node.input(0), node.value(1)
    node.require(condition is not None and condition.ndim == 1, "a condition of one axis is needed")
    assert condition is not None
    if not node.has("axis"):
        x, axis = reshape(x, (prod(x.shape),)), 0
    else:
        axis = node.axis(node.integer("axis"), len(x.shape))
    law = "the condition must not be longer than the axis"
    node.require(len(condition) <= x.shape[axis], law, condition=len(condition), extent=x.shape[axis])
    return call("take", x, const(np.flatnonzero(condition), "int32"), axis=axis)


def unique(node: Node) -> Sequence[Expr]:
    """Unique, of a value that is known: the elements (or slices along `axis`), sorted or in order of appearance."""
    x = node.value(0)
    node.require(x is not None, "an input is needed")
    assert x is not None
    axis = node.axis(node.integer("axis"), x.ndim) if node.has("axis") else None
    found, first, inverse, counts = np.unique(x, True, True, True, axis=axis)
    inverse = np.reshape(inverse, -1)
    if not node.integer("sorted", 1):
        order = np.argsort(first)
        found, first, counts = np.take(found, order, axis or 0), first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return [const(found, str(x.dtype)), *(const(v, "int64") for v in (first, inverse, counts))]


CONVERTERS: Converters = {
    "TopK": {1: top_k},
    "Hardmax": {1: hard_max_flat, 13: hard_max},
    "Compress": {9: compress},
    "Unique": {11: unique},
}
