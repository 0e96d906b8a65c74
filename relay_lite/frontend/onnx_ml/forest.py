"""Forests as arrays, read from the attributes of the operators of trees, old and new."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...ir.nodes import Array
from ..onnx.node import Node
from .walk import MODES, Forest

LEAF = "LEAF"
MEMBER = len(MODES)
"""The number of the comparison with a set, in TreeEnsemble."""


@dataclass(frozen=True, eq=False)
class Weights:
    """What leaves say: the numbers of nodes, of targets, and values, three columns of one table."""

    nodes: Array
    targets: Array
    values: Array


def numbers_of(node: Node, name: str) -> Array:
    """An attribute of numbers, a list or (`_as_tensor`) a tensor; empty where it is absent."""
    if node.has(f"{name}_as_tensor"):
        return node.tensor(f"{name}_as_tensor", np.zeros(0)).reshape(-1)
    return np.array(node.numbers(name, ()), "float64")


def forest_of(node: Node, dtype: str) -> Forest:
    """The forest of TreeEnsembleClassifier and TreeEnsembleRegressor.  Raises GraphError for what is no forest."""
    for name in ("nodes_hitrates", "nodes_hitrates_as_tensor"):
        node.has(name)
    trees, modes = node.integers("nodes_treeids"), node.texts("nodes_modes", ())
    at = _numbered(node)
    columns = {n: node.integers(f"nodes_{n}", ()) for n in ("featureids", "truenodeids", "falsenodeids")}
    values, missing = numbers_of(node, "nodes_values"), node.integers("nodes_missing_value_tracks_true", ())
    missing = missing or (0,) * len(trees)
    lengths = {len(trees), len(modes), len(values), len(missing), *map(len, columns.values())}
    node.require(len(lengths) == 1, "all attributes of nodes must be equally long", lengths=sorted(lengths))
    known = set(modes) <= {LEAF, *MODES}
    node.require(known, f"nodes_modes are {', '.join(MODES)} and {LEAF}", got=sorted(set(modes))[:8])
    children = np.repeat(np.arange(len(trees))[:, None], 2, axis=1)
    for number, mode in enumerate(modes):
        if mode != LEAF:
            for side, name in enumerate(("falsenodeids", "truenodeids")):
                child = at.get((trees[number], columns[name][number]))
                law = "children must be other nodes of their tree"
                node.require(child not in (None, number), law, tree=trees[number], child=columns[name][number])
                children[number, side] = number if child is None else child
    numbers = {mode: k for k, mode in enumerate(MODES)}
    kinds = np.array([numbers.get(mode, 0) for mode in modes])
    features = np.array(columns["featureids"])
    return Forest(features, values.astype(dtype), kinds, children, np.array(missing) != 0, _roots(node, children))


def _numbered(node: Node) -> dict[tuple[int, int], int]:
    """The number of every node by its tree and its id there."""
    pairs = list(zip(node.integers("nodes_treeids"), node.integers("nodes_nodeids"), strict=False))
    found = {pair: number for number, pair in enumerate(pairs)}
    node.require(pairs and len(found) == len(pairs), "every node must be there once", nodes=len(pairs))
    return found


def _roots(node: Node, children: Array) -> Array:
    """The nodes that nothing leads to, one a tree, in the order of the trees."""
    trees = np.array(node.integers("nodes_treeids"))
    inner = children[:, 0] != np.arange(len(children))
    free = np.ones(len(children), bool)
    free[children[inner].reshape(-1)] = False
    roots = np.flatnonzero(free)
    owners = trees[roots]
    one = len(set(owners.tolist())) == len(owners) == len(set(trees.tolist()))
    node.require(one, "every tree must have one node that no other leads to", trees=len(set(trees.tolist())),
                 roots=len(roots))  # fmt: skip
    return np.asarray(roots[np.argsort(owners, kind="stable")])


def weights_of(node: Node, what: str) -> Weights:
    """What leaves say about a `target` or `class`."""
    at = _numbered(node)
    trees, ids, targets = (node.integers(f"{what}_{name}", ()) for name in ("treeids", "nodeids", "ids"))
    values = numbers_of(node, f"{what}_weights")
    lengths = {len(trees), len(ids), len(targets), len(values)}
    law = f"all attributes of the {what}s of leaves must be equally long, and not empty"
    node.require(len(lengths) == 1 and 0 not in lengths, law, lengths=sorted(lengths))
    found = [at.get(pair) for pair in zip(trees, ids, strict=True)]
    node.require(None not in found, f"leaves that say something about a {what} must be nodes", leaves=len(found))
    leaf = np.array([mode == LEAF for mode in node.texts("nodes_modes", ())])
    numbers = np.array(found, "int64")
    node.require(leaf[numbers].all(), f"only leaves may say something about a {what}")
    return Weights(numbers, np.array(targets), values)


def reached(forest: Forest) -> Iterator[Array]:
    """Of every tree, which nodes are leaves of it."""
    for root in forest.roots:
        mine, front = np.zeros(len(forest.features), bool), np.array([root])
        while len(front):
            mine[front] = True
            after = np.unique(forest.children[front])
            front = after[~mine[after]]
        yield mine & forest.leaves


@dataclass
class _Nodes:
    """Nodes that are still being numbered, column by column."""

    features: list[int] = field(default_factory=list)
    thresholds: list[Any] = field(default_factory=list)
    modes: list[int] = field(default_factory=list)
    children: list[tuple[int, int]] = field(default_factory=list)
    missing: list[bool] = field(default_factory=list)

    def put(self, number: int, feature: int, threshold: Any, mode: int, sides: tuple[int, int], missing: bool) -> None:
        """Write the node `number`, or the next one where it is not there yet."""
        columns: Sequence[tuple[list[Any], Any]] = (
            (self.features, feature), (self.thresholds, threshold), (self.modes, mode), (self.children, sides),
            (self.missing, missing),
        )  # fmt: skip
        for column, value in columns:
            column.extend([value] * (number + 1 - len(column)))
            column[number] = value


def ensemble_of(node: Node, dtype: str) -> tuple[Forest, Weights]:
    """The forest of TreeEnsemble, whose leaves are numbered after its inner nodes, and what they say."""
    node.has("nodes_hitrates")
    names = ("featureids", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    columns = [node.integers(f"nodes_{name}") for name in names]
    splits, modes = node.tensor("nodes_splits", np.zeros(0)), node.tensor("nodes_modes", np.zeros(0))
    count = len(columns[0])
    missing = node.integers("nodes_missing_value_tracks_true", ()) or (0,) * count
    lengths = {*map(len, columns), len(splits), len(modes), len(missing)}
    node.require(lengths == {count} and count, "all attributes of nodes must be equally long", lengths=sorted(lengths))
    targets, values = node.integers("leaf_targetids"), node.tensor("leaf_weights", np.zeros(0))
    node.require(len(targets) == len(values) > 0, "leaf_targetids and leaf_weights must be equally long")
    node.require(modes.max() <= MEMBER, f"nodes_modes must be 0 to {MEMBER}", got=int(modes.max()))
    leaves = len(values)

    def child(at: int, is_leaf: int) -> int:
        node.require(0 <= at < (leaves if is_leaf else count), "children must be nodes or leaves", child=at)
        return count + at if is_leaf else at

    nodes, members = _Nodes(), _members(node, int((modes == MEMBER).sum()))
    for k, (feature, true, false, true_leaf, false_leaf) in enumerate(zip(*columns, strict=True)):
        sides = child(false, false_leaf), child(true, true_leaf)
        nodes.put(k, feature, splits[k], min(int(modes[k]), MEMBER - 1), sides, bool(missing[k]))
    for leaf in range(leaves):
        nodes.put(count + leaf, 0, 0, 0, (count + leaf, count + leaf), False)
    for k in np.flatnonzero(modes == MEMBER).tolist():
        _put_set(nodes, k, next(members))
    roots = np.array([_root(node, r, columns) for r in node.integers("tree_roots")])
    thresholds, kinds = np.array(nodes.thresholds, dtype), np.array(nodes.modes)
    forest = Forest(np.array(nodes.features), thresholds, kinds, np.array(nodes.children), np.array(nodes.missing),
                    roots)  # fmt: skip
    return forest, Weights(count + np.arange(leaves), np.array(targets), np.asarray(values))


def _root(node: Node, root: int, columns: Sequence[Sequence[int]]) -> int:
    """The number of a root; a node both of whose sides are one leaf is a tree of that leaf alone."""
    node.require(0 <= root < len(columns[0]), "tree_roots must be nodes", root=root)
    return root


def _members(node: Node, count: int) -> Iterator[Array]:
    """The sets of the nodes that compare with one, in order: each ends with NaN."""
    flat = node.tensor("membership_values", np.zeros(0)).reshape(-1)
    ends = np.flatnonzero(np.isnan(flat))
    # the last NaN may be left out
    sets = np.split(flat, ends)
    sets = [part[~np.isnan(part)] for part in sets]
    sets = sets[:count] if len(sets) >= count and not any(len(s) for s in sets[count:]) else sets
    node.require(len(sets) == count or not count, "membership_values must hold one set a node that compares with one",
                 sets=len(sets), nodes=count)  # fmt: skip
    return iter(sets)


def _put_set(nodes: _Nodes, number: int, values: Array) -> None:
    """The node `number` as a search for a feature in a set: halves by <=, and at the end one comparison by ==."""
    feature, sides, missing = nodes.features[number], nodes.children[number], nodes.missing[number]
    leq, equal = 0, list(MODES).index("BRANCH_EQ")
    todo = [(number, np.unique(values))]
    while todo:
        at, part = todo.pop()
        if len(part) < 2:
            nodes.put(at, feature, part[0] if len(part) else np.nan, equal, sides, missing)
            continue
        middle, first = len(part) // 2, len(nodes.features)
        nodes.put(first, 0, 0, 0, (0, 0), False)
        nodes.put(first + 1, 0, 0, 0, (0, 0), False)
        nodes.put(at, feature, part[middle - 1], leq, (first, first + 1), missing)
        todo += [(first + 1, part[:middle]), (first, part[middle:])]
