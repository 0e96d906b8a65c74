"""The walk of many rows through all trees of a forest at once: as many equal steps as the deepest leaf needs.

A node number for every row and every tree is the state; a step looks up the node's feature and threshold, compares, and
looks up the child.  A leaf leads to itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...ir.loops import loop
from ...ir.nodes import Array, Expr
from ..onnx.emit import add, broadcast_to, call, cast, const, mul
from ..onnx.node import Node

MODES = {
    "BRANCH_LEQ": "less_equal", "BRANCH_LT": "less", "BRANCH_GTE": "greater_equal", "BRANCH_GT": "greater",
    "BRANCH_EQ": "equal", "BRANCH_NEQ": "not_equal",
}  # fmt: skip
"""The comparison of a feature with the threshold, in the order of their numbers in TreeEnsemble."""
COMPARISONS = tuple(MODES.values())
NOT_EQUAL = COMPARISONS.index("not_equal")


@dataclass(frozen=True, eq=False)
class Forest:
    """The nodes of all trees, by number: the feature that is compared, with which threshold, and how.

    `children` (nodes, 2) are where false and true lead to, of a leaf itself twice.  `missing`: NaN leads where true
    does; elsewhere it leads where false does.  `roots` are numbers of nodes, one a tree.
    """

    features: Array
    thresholds: Array
    modes: Array
    children: Array
    missing: Array
    roots: Array

    @property
    def leaves(self) -> Array:
        """Which nodes are leaves."""
        return np.asarray(self.children[:, 0] == np.arange(len(self.children)))


def depth_of(node: Node, forest: Forest) -> int:
    """How many steps lead from the roots to all leaves.  Raises GraphError where a way does not end."""
    steps, front = 0, np.unique(forest.roots)
    while len(front := front[~forest.leaves[front]]):
        steps += 1
        node.require(steps <= len(forest.children), "a tree must have no way back to an inner node", tree=int(front[0]))
        front = np.unique(forest.children[front])
    return steps


def require_features(node: Node, x: Expr, forest: Forest) -> None:
    """Refuse a forest that compares features which rows of `x` have not."""
    law = "features must be in the input"
    most = int(forest.features[~forest.leaves].max(initial=0))
    least = int(forest.features[~forest.leaves].min(initial=0))
    node.require(least >= 0 and most < x.shape[1], law, features=(least, most), columns=x.shape[1])


def leaves_of(node: Node, x: Expr, forest: Forest) -> Expr:
    """The leaf that every row of `x` (rows, features) comes to in every tree: numbers of nodes, (rows, trees)."""
    steps, shape = depth_of(node, forest), (x.shape[0], len(forest.roots))
    start = broadcast_to(const(forest.roots[None], "int32"), shape)
    if not steps:
        return start

    def step(_: Sequence[Expr], state: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        return [_next(x, forest, state[0])], []

    return loop(step, [], [start], steps)[0][0]


def _next(x: Expr, forest: Forest, at: Expr) -> Expr:
    """The nodes after those in `at`."""
    inner = ~forest.leaves
    value = call("gather", x, _table(forest.features * inner, "int32", at), axis=1)
    threshold = _table(forest.thresholds, x.dtype, at)
    modes = np.unique(forest.modes[inner])
    goes = call(COMPARISONS[int(modes[0])], value, threshold)
    for mode in modes[1:]:
        own = _table(forest.modes == mode, "bool", at)
        goes = call("where", own, call(COMPARISONS[int(mode)], value, threshold), goes)
    if forest.missing[inner].any() or NOT_EQUAL in modes:
        goes = call("where", call("isnan", value), _table(forest.missing, "bool", at), goes)
    both = const(forest.children.reshape(-1), "int32")
    return call("take", both, add(mul(at, 2), cast(goes, "int32")), axis=0, mode="fast")


def _table(values: Array, dtype: str, at: Expr) -> Expr:
    """A column of the table of nodes at the nodes `at`; a column of one value is that value."""
    if len(values) and (values == values[0]).all():
        return broadcast_to(const(values[0], dtype), at.shape)
    return call("take", const(values, dtype), at, axis=0, mode="fast")
