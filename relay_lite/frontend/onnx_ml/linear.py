"""Linear models: a product with the coefficients, and what is made of its scores."""

from __future__ import annotations

import numpy as np

from ...ir.nodes import Expr
from ..onnx.emit import add, binary, call, cast, const, reshape, sub
from ..onnx.node import Converters, Node
from .scores import best, floats_of, label_count, labels, require_one_target, rows_of, transform_of, transformed, two


def _product(node: Node, x: Expr, rows: int) -> Expr:
    """`x` (N, C) times coefficients (rows, C), plus intercepts."""
    given, shift = node.numbers("coefficients"), node.numbers("intercepts", ())
    law = f"coefficients must be {rows} rows of {x.shape[1]}, and intercepts as many as rows, or none"
    fits = len(given) == rows * x.shape[1] and len(shift) in (0, rows)
    node.require(fits, law, coefficients=len(given), intercepts=len(shift))
    out = call("nn.dense", x, const(np.reshape(given, (rows, x.shape[1])), x.dtype))
    return add(out, const(shift, x.dtype)) if shift else out


def regressor(node: Node) -> Expr:
    """LinearRegressor: (rows, targets) in float32."""
    x, targets, transform = floats_of(rows_of(node)), node.integer("targets", 1), transform_of(node)
    require_one_target(node, targets, transform)
    return cast(transformed(_product(node, x, targets), transform), "float32")


def classifier(node: Node) -> list[Expr]:
    """LinearClassifier: the label of every row, and its scores in float32.

    Of two classes with one row of coefficients there is one score s, of the second class, beside 1 - s.
    """
    node.has("multi_class")
    x, count, transform = floats_of(rows_of(node)), label_count(node, "classlabels_ints"), transform_of(node)
    node.require(count >= 2, "at least two classes are needed", classes=count)
    if count > 2 or len(node.numbers("coefficients")) != x.shape[1]:
        scores = _product(node, x, count)
        return [labels(node, "classlabels_ints", best(scores)), cast(transformed(scores, transform), "float32")]
    node.require(transform in ("NONE", "LOGISTIC"), "of one score for two classes there are NONE and LOGISTIC",
                 post_transform=transform)  # fmt: skip
    score = _product(node, x, 1)
    chosen = cast(binary("greater", reshape(score, (x.shape[0],)), 0), "int32")
    both = two(call("negative", score), score) if transform == "LOGISTIC" else two(sub(1, score), score)
    return [labels(node, "classlabels_ints", chosen), cast(transformed(both, transform), "float32")]


CONVERTERS: Converters = {"LinearClassifier": {1: classifier}, "LinearRegressor": {1: regressor}}
