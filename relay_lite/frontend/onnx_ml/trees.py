"""Ensembles of trees: the leaves of a walk, what they say summed up, and the scores or classes that this gives."""

from __future__ import annotations

import numpy as np

from ansor.core.values.checks import require_computed

from ...ir.nodes import Array, Expr
from ..onnx.emit import add, binary, call, cast, const, mul, reshape, sub
from ..onnx.node import Converters, Node
from . import forest as forests
from .scores import (
    TRANSFORMS,
    best,
    floats_of,
    label_count,
    labels,
    require_one_target,
    rows_of,
    transform_of,
    transformed,
    two,
)
from .timetable import said_by
from .walk import Forest, depth_of, leaves_of, require_features

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""In the order of their numbers in TreeEnsemble."""
EMPTY = {"AVERAGE": 0.0, "SUM": 0.0, "MIN": np.inf, "MAX": -np.inf}
FOLDS = {"AVERAGE": "sum", "SUM": "sum", "MIN": "min", "MAX": "max"}
JOINED = {"AVERAGE": np.add, "SUM": np.add, "MIN": np.minimum, "MAX": np.maximum}


def regressor(node: Node) -> Expr:
    """TreeEnsembleRegressor: (rows, targets) in float32."""
    x, aggregate = floats_of(rows_of(node)), node.text("aggregate_function", "SUM")
    node.require(aggregate in AGGREGATES, f"aggregate_function is one of {', '.join(AGGREGATES)}", got=aggregate)
    targets, transform = node.integer("n_targets"), transform_of(node)
    require_one_target(node, targets, transform)
    weights = forests.weights_of(node, "target")
    scores = _scores(node, x, forests.forest_of(node, x.dtype), weights, targets, aggregate)
    base = forests.numbers_of(node, "base_values")
    node.require(len(base) in (0, targets), "base_values must be one a target", base_values=len(base), targets=targets)
    scores = add(scores, const(base, x.dtype)) if len(base) else scores
    return cast(transformed(scores, transform), "float32")


def ensemble(node: Node) -> Expr:
    """TreeEnsemble of version 5: (rows, targets) in the dtype of the input."""
    x = node.input(0)
    node.require(len(x.shape) == 2, "the input must be rows of features", shape=x.shape)
    numbers = node.integer("aggregate_function", 1), node.integer("post_transform", 0)
    node.require(0 <= numbers[0] < len(AGGREGATES), "aggregate_function must be 0 to 3", aggregate_function=numbers[0])
    node.require(0 <= numbers[1] < len(TRANSFORMS), "post_transform must be 0 to 4", post_transform=numbers[1])
    forest, weights = forests.ensemble_of(node, x.dtype)
    targets, transform = node.integer("n_targets"), TRANSFORMS[numbers[1]]
    require_one_target(node, targets, transform)
    return transformed(_scores(node, x, forest, weights, targets, AGGREGATES[numbers[0]]), transform)


def classifier(node: Node) -> list[Expr]:
    """TreeEnsembleClassifier: the label of every row, and its scores in float32.

    Of two classes whose leaves all score the first, there is one score s: of the second class, beside 1 - s where no
    leaf is negative, or else beside -s.  One class is refused, for nobody agrees what its label is.
    """
    x, count = floats_of(rows_of(node)), label_count(node, "classlabels_int64s")
    node.require(count >= 2, "at least two classes are needed", classes=count)
    weights, base = forests.weights_of(node, "class"), forests.numbers_of(node, "base_values")
    one = count == 2 and len(set(weights.targets.tolist())) == 1
    forest = forests.forest_of(node, x.dtype)
    if one:
        return _of_two(node, x, forest, weights, base)
    node.require(len(base) in (0, count), "base_values must be one a class", base_values=len(base), classes=count)
    scores = _scores(node, x, forest, weights, count, "SUM")
    scores = add(scores, const(base, x.dtype)) if len(base) else scores
    found = cast(transformed(scores, transform_of(node)), "float32")
    return [labels(node, "classlabels_int64s", best(scores)), found]


def _of_two(node: Node, x: Expr, forest: Forest, weights: forests.Weights, base: Array) -> list[Expr]:
    """Label and scores of two classes of which only one is scored."""
    at, transform = int(weights.targets[0]), transform_of(node)
    law = "leaves of two classes that score one need no base_values, or one where they score the first"
    node.require(len(base) in (0, 1 - at), law, base_values=len(base), scored=at)
    score = _scores(node, x, forest, forests.Weights(weights.nodes, weights.targets * 0, weights.values), 1, "SUM")
    score = add(score, const(base, x.dtype)) if len(base) else score
    positive = bool((weights.values >= 0).all())
    chosen = cast(binary("greater", reshape(score, (x.shape[0],)), 0.5 if positive else 0.0), "int32")
    if at == 1:
        both = transformed(two(mul(score, 0), score), transform)
    else:
        law = "of one score for two classes there are NONE and LOGISTIC"
        node.require(transform in ("NONE", "LOGISTIC"), law, post_transform=transform)
        other = sub(1, score) if positive and transform != "LOGISTIC" else call("negative", score)
        both = two(other, score)
        both = call("sigmoid", both) if transform == "LOGISTIC" else both
    return [labels(node, "classlabels_int64s", chosen), cast(both, "float32")]


def _scores(node: Node, x: Expr, forest: Forest, weights: forests.Weights, targets: int, aggregate: str) -> Expr:
    """What the leaves of every row say about every target: (rows, targets)."""
    outside = weights.targets[(weights.targets < 0) | (weights.targets >= targets)]
    node.require(targets >= 1 and not len(outside), f"targets must be in 0 to {targets - 1}", got=outside[:4].tolist())
    nodes, trees = len(forest.features), len(forest.roots)
    require_computed((nodes, targets), x.dtype, str(node))
    table = np.full((nodes, targets), EMPTY[aggregate], x.dtype)
    JOINED[aggregate].at(table, (weights.nodes, weights.targets), weights.values.astype(x.dtype))
    if aggregate in ("MIN", "MAX"):
        _require_scored(node, forest, weights, targets)
    require_features(node, x, forest)
    depth_of(node, forest)
    found = said_by(x, forest, table, FOLDS[aggregate], EMPTY[aggregate])
    if found is not None:
        return mul(found, 1 / trees) if aggregate == "AVERAGE" else found
    at = leaves_of(node, x, forest)
    if targets == 1:
        said, axis = call("take", const(table[:, 0], x.dtype), at, axis=0, mode="fast"), 1
        found = reshape(_joined(said, aggregate, axis), (x.shape[0], 1))
    else:
        found = _joined(call("take", const(table, x.dtype), at, axis=0, mode="fast"), aggregate, 1)
    return mul(found, 1 / trees) if aggregate == "AVERAGE" else found


def _joined(said: Expr, aggregate: str, axis: int) -> Expr:
    return call(FOLDS[aggregate], said, axis=(axis,), keepdims=False)


def _require_scored(node: Node, forest: Forest, weights: forests.Weights, targets: int) -> None:
    """Refuse a least or largest score of a target that no leaf of a row may say anything about."""
    every = list(forests.reached(forest))
    for target in range(targets):
        silent = ~np.isin(np.arange(len(forest.features)), weights.nodes[weights.targets == target])
        said = any(not (silent & tree).any() for tree in every)
        node.require(said, "every row must get a score for a target, from a tree all of whose leaves have one",
                     target=target)  # fmt: skip


CONVERTERS: Converters = {
    "TreeEnsemble": {5: ensemble},
    "TreeEnsembleClassifier": {1: classifier},
    "TreeEnsembleRegressor": {1: regressor},
}
