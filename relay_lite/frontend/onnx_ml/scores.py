"""What becomes of the scores of models: transforms of a row of scores, and the class that a row is given."""

from __future__ import annotations

from math import pi

import numpy as np

from ...ir.nodes import Expr
from ..onnx.emit import add, binary, call, cast, concatenate, const, mul, sub
from ..onnx.model import NO_TEXT
from ..onnx.node import Node

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""In the order of their numbers in TreeEnsemble."""
NEARLY_ZERO = 1e-7
ERF_TERM = 0.147
"""The constant of the formula for the inverse of erf that everyone uses here, which is right to 2e-3."""


def transform_of(node: Node) -> str:
    """The attribute `post_transform`."""
    found = node.text("post_transform", "NONE")
    node.require(found in TRANSFORMS, f"post_transform must be one of {', '.join(TRANSFORMS)}", post_transform=found)
    return found


def transformed(scores: Expr, transform: str) -> Expr:
    """Rows of scores, by a transform."""
    match transform:
        case "SOFTMAX":
            return call("nn.softmax", scores, axis=1)
        case "LOGISTIC":
            return call("sigmoid", scores)
        case "SOFTMAX_ZERO":
            return _softmax_zero(scores)
        case "PROBIT":
            return _probit(scores)
    return scores


def _softmax_zero(x: Expr) -> Expr:
    """A softmax in which zeros stay zeros; of nothing but zeros it is 1/2 each."""
    best = call("max", x, axis=(1,), keepdims=True)
    far = binary("greater", call("abs", x), NEARLY_ZERO)
    parts = call("where", far, call("exp", sub(x, best)), mul(x, call("exp", call("negative", best))))
    total = call("sum", parts, axis=(1,), keepdims=True)
    nothing = binary("equal", total, 0)
    return call("where", nothing, const(0.5, x.dtype), binary("divide", parts, total))


def _probit(x: Expr) -> Expr:
    """sqrt(2) times the inverse of erf at 2 x - 1."""
    y = sub(mul(x, 2), 1)
    log = call("log", mul(sub(1, y), add(y, 1)))
    half = add(mul(log, 0.5), 2 / (pi * ERF_TERM))
    size = call("sqrt", sub(call("sqrt", sub(mul(half, half), mul(log, 1 / ERF_TERM))), half))
    return mul(call("where", binary("less", y, 0), call("negative", size), size), float(np.sqrt(2)))


def require_one_target(node: Node, targets: int, transform: str) -> None:
    """Refuse a transform of a regressor's one score, which ONNX says is made, and onnxruntime leaves out."""
    law = "of one target post_transform must be NONE or PROBIT: what others mean nobody agrees about"
    node.require(targets > 1 or transform in ("NONE", "PROBIT"), law, post_transform=transform)


def two(first: Expr, second: Expr) -> Expr:
    """Two columns as one matrix."""
    return concatenate([first, second], 1)


def label_count(node: Node, integers: str) -> int:
    """How many classes there are, whose labels are in `integers` or in `classlabels_strings`."""
    texts = node.texts("classlabels_strings", ())
    return len(texts or node.integers(integers, ()))


def labels(node: Node, integers: str, at: Expr) -> Expr:
    """The labels of classes by their positions (rows,); labels that are strings cannot be given."""
    if node.texts("classlabels_strings", ()):
        others = ", ".join(map(repr, node.outputs[1:]))
        node.lacking[0] = f"the labels of {node.op} {node.name!r} are strings: {NO_TEXT}, such as {others}"
        return cast(at, "int64")
    names = const(node.integers(integers), "int64")
    return call("take", names, cast(at, "int32"), axis=0, mode="clip")


def best(scores: Expr) -> Expr:
    """Where the largest score of every row is, the first of equal ones."""
    return call("argmax", scores, axis=(1,), keepdims=False)


def rows_of(node: Node, least: int = 1) -> Expr:
    """The input as rows of features; a vector is one row."""
    x = node.input(0)
    node.require(least <= len(x.shape) <= 2, "the input must be rows of features", shape=x.shape)
    return x if len(x.shape) == 2 else call("reshape", x, newshape=(1, *x.shape))


def floats_of(x: Expr) -> Expr:
    """Float64 as it is, all else in float32: what scores are computed in."""
    return cast(x, "float64" if x.dtype == "float64" else "float32")
