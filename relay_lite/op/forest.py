"""Forests: what the leaves that rows come to in all trees say, joined.

Trees of one line of a scan walk side by side, so that the processor waits for several nodes at once: a step of a walk
reads a node, a feature of the row, and so the next node.  A scan follows a timetable: trees of like depths start
together, and when the deepest of them has come to its leaf the next ones start.  A leaf leads to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from te_lite import Tensor, compute
from te_lite.computation.scan import scan
from te_lite.errors import require
from te_lite.expr.element import Before
from te_lite.expr.expr import Expr as Value
from te_lite.expr.expr import cast, if_then_else, maximum, minimum
from te_lite.expr.reduction import max as max_reduce
from te_lite.expr.reduction import min as min_reduce
from te_lite.expr.reduction import reduce_axis
from te_lite.expr.reduction import sum as sum_reduce

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .define import Array, choice, floats, operator, tensors


@dataclass(frozen=True)
class Join:
    """How what leaves say is joined: two values, all along an axis, and in NumPy."""

    two: Callable[[Value, Value], Value]
    every: Callable[..., Value]
    numpy: np.ufunc


JOINS = {
    "sum": Join(lambda a, b: a + b, sum_reduce, np.add),
    "min": Join(minimum, min_reduce, np.minimum),
    "max": Join(maximum, max_reduce, np.maximum),
}


def _forest_type(types: Sequence[Type], attrs: Attrs) -> Type:
    given = x, nodes, thresholds, said, starts, roots = tensors(types, 6, "forest")
    choice(attrs["join"], tuple(JOINS), "forest", "join")
    kind = floats(x, "forest")
    found = [(len(t.shape), t.dtype) for t in given]
    wanted = [(2, kind), (1, "uint32"), (1, kind), (2, kind), (2, "bool"), (3, "uint32")]
    same = found == wanted and nodes.shape == thresholds.shape == said.shape[:1] and starts.shape == roots.shape[:2]
    some = all(0 not in t.shape for t in given[1:]) and x.shape[1:] != (0,)
    law = "rows, nodes and their thresholds, what they say (nodes, targets) and a timetable are needed"
    require(same and some, GraphError, "forest", law, got=[str(t) for t in given])
    return TensorType((x.shape[0], said.shape[1]), kind)


def _forest_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    x, nodes, thresholds, said, starts, roots = args
    join, (count, width) = JOINS[attrs["join"]].numpy, (len(nodes), x.shape[1])
    rows, words = np.arange(len(x))[:, None, None], nodes.astype("int64")
    at = np.zeros((len(x), *roots[:, 0].shape), "int64")  # of every row, part and tree that walks there
    found = join.reduce(said[at], axis=2)
    for t in range(roots.shape[1]):
        first = starts[:, t, None]
        found = np.where(first, join(found, join.reduce(said[at], axis=2)), found) if t else found
        at = np.where(first, roots[:, t], at) % count
        at = (words[at] // width + (x[rows, words[at] % width] <= thresholds[at])) % count
    return np.asarray(join.reduce(found, axis=1), x.dtype)


def _forest_te(args: Sequence[Any], attrs: Attrs, target: str) -> list[Tensor]:
    x, nodes, thresholds, said, starts, roots = args
    (count, targets), (parts, steps, side), width = said.shape, roots.shape, x.shape[1]
    join = JOINS[attrs["join"]]

    def after(node: Value, row: Value) -> Value:
        word = nodes[node % count]
        goes = x[row, cast("int64", word % width)] <= thresholds[node % count]
        following: Value = word // width + cast("uint32", goes)
        return following

    def step(before: Sequence[Before], part: Value, row: Value, t: Value) -> Sequence[Value]:
        first, ways = starts[part, t], before[side : 2 * side]
        here = [if_then_else(first, roots[part, t, w], way) for w, way in enumerate(ways)]
        there = [after(b.now, row) for b in before[:side]]
        joined = []
        for k, own in enumerate(before[2 * side :]):
            ends = reduce(join.two, [said[way % count, k] for way in ways])
            joined.append(if_then_else(t.equal(0), ends, if_then_else(first, join.two(own, ends), own)))
        return (*here, *there, *joined)

    kinds = (*["uint32"] * (2 * side), *[x.dtype] * targets)
    found = scan((parts, x.shape[0], steps), step, kinds, "walked")[2 * side :]
    part = reduce_axis((0, parts), "part")

    def element(row: Value, target: Value) -> Value:
        last = [one[part, row, steps - 1] for one in found]
        value = last[-1]
        for k, one in enumerate(last[:-1]):
            value = if_then_else(target.equal(k), one, value)
        return join.every(value, axis=part)

    return [compute((x.shape[0], targets), element, "forest")]


@operator("forest", OpPattern.OPAQUE, _forest_type, _forest_numpy, _forest_te)
def forest(x: Expr, nodes: Expr, thresholds: Expr, said: Expr, starts: Expr, roots: Expr, join: str = "sum") -> Call:
    """What the leaves of all trees say about the rows of `x`, joined by "sum", "min" or "max": (rows, targets).

    `nodes` are words, uint32, with `thresholds` and with what they say, `said` (nodes, targets).  The node `n` compares
    `x[row, n % width]`, for rows of `width` features, with its threshold and leads to the node `n // width`, or to the
    one behind that where the feature is not larger.  `starts` (parts, steps) is true where the trees whose `roots`
    (parts, steps, trees) are given start, and where the last ones have ended: what the nodes say that were come to is
    joined then.  Before the first step all trees are at node 0.  Numbers of nodes are taken modulo their count; where
    that and `width` are powers of two this costs little.
    """
    return call("forest", x, nodes, thresholds, said, starts, roots, join=join)
