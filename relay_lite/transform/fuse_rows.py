"""Rows that an exporter spelled out become one kernel: means, deviations, squares, ... as operators of their own.

    m = mean(x)   d = x - m   v = mean(d * d)   y = d / sqrt(v + e) * gamma + beta          8 operators, one group

Fusion (`fuse_ops.py`) ends a group at a reduction.  Where a reduction folds the last dimensions and keeps them as ones,
what it gives is a number of each row; a group in which everything is a whole row, or a number of one, is a row program
(ansor_ext/README.md, rule `rows`).  So a node joins its post-dominator with all that lies between, if that makes
such a group: every operator is elementwise, a broadcast, or one of these reductions, of one and the same shape of rows.
A reshape at the end of it, as after a group norm, stands alone again: it moves no data.

Every reduction doubles the sketches of a task, so a group has `MOST_FOLDS` at most: a norm, which may have three, and
one more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from ..ir.nodes import Call
from ..ir.op_registry import OpPattern
from ..ir.types import TensorType
from ..ir.visit import is_op
from .dominator import Dominator, FlowGraph, between, is_inlined
from .simplify_movement import RESHAPES

Shape = tuple[int, ...]
MOST_FOLDS = 4


def fuse_rows(graph: FlowGraph, tree: Sequence[Dominator], roots: Sequence[int], max_depth: int) -> list[int]:
    """The partition `roots` (the number of the last node of its group, for every node) with groups of rows joined.

    `max_depth` bounds the nodes of a group.
    """
    root = list(roots)
    members: dict[int, list[int]] = {}
    for k, r in enumerate(root):
        members.setdefault(r, []).append(k)
    for k, dominator in enumerate(tree):
        end = dominator.parent
        if end is None or root[k] == root[end] or graph.patterns[k] > OpPattern.COMM_REDUCE:
            continue
        joined = {root[n] for n in (k, *between(graph, k, end))}
        after = _reshapes(graph, members[root[end]])
        nodes = sorted({n for r in joined for n in members[r]} - set(after))
        if end in nodes and len(nodes) <= max_depth and are_rows(graph, nodes):
            for group in (nodes, after):
                for n in group:
                    root[n] = group[-1]
                    members[group[-1]] = group
    return root


def _reshapes(graph: FlowGraph, group: Sequence[int]) -> list[int]:
    """The operators that move no data in which a group ends."""
    start = len(group)
    while start > 0 and is_op(graph.nodes[group[start - 1]], *RESHAPES):
        start -= 1
    return list(group[start:])


def are_rows(graph: FlowGraph, nodes: Iterable[int]) -> bool:
    """Whether all nodes are of the same rows, which are folded, but not too often."""
    calls = [(graph.nodes[n], graph.patterns[n]) for n in nodes if not is_inlined(graph.nodes[n])]
    folds = [node for node, pattern in calls if pattern == OpPattern.COMM_REDUCE]
    rows = _rows(folds[0]) if folds and isinstance(folds[0], Call) else None
    if rows is None or len(folds) > MOST_FOLDS:
        return False
    full, one = rows
    return all(
        isinstance(node, Call)
        and (_rows(node) == rows if pattern == OpPattern.COMM_REDUCE else pattern <= OpPattern.BROADCAST)
        and isinstance(node.type, TensorType)
        and node.shape in (full, one)
        for node, pattern in calls
    )


def _rows(fold: Call) -> tuple[Shape, Shape] | None:
    """The shape of the argument of a reduction, and of its result: the leading dimensions, then ones."""
    if len(fold.args) != 1 or not isinstance(fold.type, TensorType):
        return None
    full, one = fold.args[0].shape, fold.shape
    if len(full) != len(one):
        return None
    lead = next((d for d in range(len(full)) if full[d] != one[d]), len(full))
    row = full[lead:]
    return (full, one) if prod(row) > 1 and one == (*full[:lead], *[1] * len(row)) else None
