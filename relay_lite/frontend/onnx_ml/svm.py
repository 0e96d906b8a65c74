"""Support vector machines: kernels of rows and support vectors, duels of pairs of classes, and their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from ...ir.loops import loop
from ...ir.nodes import Array, Expr
from ..onnx.emit import add, binary, call, cast, concatenate, const, mul, reshape, sub
from ..onnx.node import Converters, Node
from .scores import best, floats_of, label_count, labels, require_one_target, rows_of, transform_of, transformed, two

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
SURE = 1e-7
"""Probabilities of duels are kept so far from 0 and 1."""
ROUNDS, CLOSE = 100, 0.005
"""How often probabilities are corrected at most (as often as there are classes, if that is more), and until when."""


def _kernel(node: Node, x: Expr, vectors: Array) -> Expr:
    """How alike the rows of `x` (N, C) and the support vectors (V, C) are: (N, V)."""
    kind, params = node.text("kernel_type", "LINEAR"), node.numbers("kernel_params", (0.0, 0.0, 0.0))
    node.require(kind in KERNELS, f"kernel_type must be one of {', '.join(KERNELS)}", kernel_type=kind)
    node.require(len(params) == 3, "kernel_params are gamma, coef0 and degree", kernel_params=params)
    gamma, shift, degree = params
    if kind == "RBF":
        apart = sub(reshape(x, (x.shape[0], 1, x.shape[1])), const(vectors[None], x.dtype))
        return call("exp", mul(call("sum", mul(apart, apart), axis=(2,), keepdims=False), -gamma))
    out = call("nn.dense", x, const(vectors, x.dtype))
    if kind == "LINEAR":
        return out
    line = add(mul(out, gamma), shift)
    return call("tanh", line) if kind == "SIGMOID" else binary("power", line, degree)


def regressor(node: Node) -> Expr:
    """SVMRegressor: (rows, 1) in float32; with `one_class` 1 or -1."""
    x, count = floats_of(rows_of(node)), node.integer("n_supports", 0)
    transform, factors = transform_of(node), node.numbers("coefficients")
    require_one_target(node, 1, transform)
    rho = node.numbers("rho")
    node.require(len(rho) == 1 and node.integer("n_targets", 1) == 1, "one target and one rho are supported", rho=rho)
    if count:
        near, law = _kernel(node, x, _vectors(node, count, x.shape[1])), "coefficients must be one a support vector"
    else:
        for name in ("kernel_type", "kernel_params", "support_vectors"):
            node.has(name)
        near, law = x, "coefficients must be one a feature"
    node.require(len(factors) == near.shape[1], law, coefficients=len(factors), wanted=near.shape[1])
    out = add(call("nn.dense", near, const([factors], x.dtype)), rho[0])
    if node.integer("one_class", 0):
        out = call("where", binary("greater", out, 0), const(1, x.dtype), const(-1, x.dtype))
    return cast(transformed(out, transform), "float32")


def _vectors(node: Node, count: int, columns: int) -> Array:
    flat = np.array(node.numbers("support_vectors"))
    law = f"support_vectors must be {count} rows of {columns}"
    node.require(flat.size == count * columns, law, numbers=flat.size)
    return flat.reshape(count, columns)


def classifier(node: Node) -> list[Expr]:
    """SVMClassifier: the label of every row by the duels that a class wins, and scores or probabilities in float32.

    Without `vectors_per_class` it is linear: one row of coefficients a class, of at least three classes.
    """
    x, count, transform = floats_of(rows_of(node)), label_count(node, "classlabels_ints"), transform_of(node)
    node.require(count >= 2, "at least two classes are needed", classes=count)
    sizes = node.integers("vectors_per_class", ())
    if not sum(sizes):
        return _linear(node, x, count, transform)
    duels = _duels(node, x, count, sizes)
    won = _votes(duels, count)
    given = node.numbers("prob_a", ()), node.numbers("prob_b", ())
    if given[0]:
        node.require(len(given[0]) == len(given[1]) == duels.shape[1], "prob_a and prob_b must be one a pair",
                     prob_a=len(given[0]), prob_b=len(given[1]))  # fmt: skip
        scores = transformed(_probabilities(duels, count, given), transform)
    elif count == 2:
        law = "of two classes without probabilities there are NONE and LOGISTIC"
        node.require(transform in ("NONE", "LOGISTIC"), law, post_transform=transform)
        scores = transformed(two(call("negative", duels), duels), transform)
    else:
        scores = transformed(duels, transform)
    return [labels(node, "classlabels_ints", best(won)), cast(scores, "float32")]


def _linear(node: Node, x: Expr, count: int, transform: str) -> list[Expr]:
    """Scores of a row of coefficients a class."""
    for name in ("kernel_type", "kernel_params", "support_vectors", "prob_a", "prob_b"):
        node.has(name)
    factors, rho = node.numbers("coefficients"), node.numbers("rho")
    law = "without support vectors, coefficients are one row for each of at least three classes"
    node.require(count > 2 and len(factors) == count * x.shape[1] and rho, law, classes=count, numbers=len(factors))
    scores = add(call("nn.dense", x, const(np.reshape(factors, (count, -1)), x.dtype)), rho[0])
    return [labels(node, "classlabels_ints", best(scores)), cast(transformed(scores, transform), "float32")]


def _duels(node: Node, x: Expr, count: int, sizes: Sequence[int]) -> Expr:
    """The score of every pair of classes, above 0 where the first wins: (rows, pairs)."""
    total, rho = sum(sizes), node.numbers("rho")
    factors, pairs = node.numbers("coefficients"), list(combinations(range(count), 2))
    fits = len(sizes) == count and min(sizes) >= 0 and len(factors) == (count - 1) * total and len(rho) == len(pairs)
    law = f"there must be {count} vectors_per_class, {count - 1} coefficients a vector, and {len(pairs)} rho"
    node.require(fits, law, vectors_per_class=tuple(sizes), coefficients=len(factors), rho=len(rho))
    ends = np.concatenate([[0], np.cumsum(sizes)])
    given, weights = np.reshape(factors, (count - 1, total)), np.zeros((len(pairs), total))
    for row, (i, j) in enumerate(pairs):
        weights[row, ends[i] : ends[i + 1]] = given[j - 1, ends[i] : ends[i + 1]]
        weights[row, ends[j] : ends[j + 1]] = given[i, ends[j] : ends[j + 1]]
    near = _kernel(node, x, _vectors(node, total, x.shape[1]))
    return add(call("nn.dense", near, const(weights, x.dtype)), const(rho, x.dtype))


def _votes(duels: Expr, count: int) -> Expr:
    """How many duels every class wins: (rows, classes)."""
    first = cast(binary("greater", duels, 0), duels.dtype)
    wins, losses = (np.zeros((count, duels.shape[1])) for _ in range(2))
    for at, (i, j) in enumerate(combinations(range(count), 2)):
        wins[i, at], losses[j, at] = 1, 1
    second = sub(1, first)
    return add(call("nn.dense", first, const(wins, duels.dtype)), call("nn.dense", second, const(losses, duels.dtype)))


def _probabilities(duels: Expr, count: int, given: tuple[Sequence[float], Sequence[float]]) -> Expr:
    """Probabilities of classes of those of the duels, by the second method of Wu, Lin and Weng (2004), section 4.

    They minimise the sum over pairs of (r_ji p_i - r_ij p_j)^2; each is corrected in turn, round by round, until no
    gradient is farther than `CLOSE` from their mean, or `ROUNDS` are over.
    """
    rows, kind = duels.shape[0], duels.dtype
    a, b = (const(v, kind) for v in given)
    first = call("sigmoid", call("negative", add(mul(duels, a), b)))
    first = call("clip", first, a_min=SURE, a_max=1 - SURE)
    second = sub(1, first)
    at = {pair: k for k, pair in enumerate(combinations(range(count), 2))}
    places = np.array([[at.get((min(i, j), max(i, j)), 0) for j in range(count)] for i in range(count)])
    both = concatenate([first, second], 1)
    beats = np.where(np.triu(np.ones((count, count)), 1) > 0, places, places + len(at))
    r = reshape(call("take", both, const(beats.reshape(-1), "int32"), axis=1), (rows, count, count))
    other = call("where", const(np.eye(count) > 0, "bool"), const(0, kind), r)
    turned = call("transpose", other, axes=(0, 2, 1))
    square = call("sum", mul(turned, turned), axis=(2,), keepdims=True)
    q = call("where", const(np.eye(count) > 0, "bool"), square, call("negative", mul(other, turned)))
    return _corrected(q, count)


def _corrected(q: Expr, count: int) -> Expr:
    """The probabilities that belong to the matrices `q` (rows, classes, classes)."""
    rows, kind = q.shape[0], q.dtype
    even = call("full", const(1 / count, kind), shape=(rows, count), dtype=kind)

    def product(p: Expr) -> Expr:
        return call("sum", mul(q, reshape(p, (rows, 1, count))), axis=(2,), keepdims=False)

    def total(x: Expr) -> Expr:
        return call("sum", x, axis=(1,), keepdims=True)

    def step(slices: Sequence[Expr], state: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        here, begins = slices[0], slices[1]  # (1, count), which class is corrected; whether a round begins
        p, held, weighted, busy = state
        fresh = product(p)
        held = call("where", begins, fresh, held)
        weighted = call("where", begins, total(mul(p, fresh)), weighted)
        worst = call("max", call("abs", sub(held, weighted)), axis=(1,), keepdims=True)
        goes_on = call("where", begins, call("logical_and", busy, binary("greater_equal", worst, CLOSE / count)), busy)
        own = reshape(here, (1, count, 1))
        row = call("sum", call("where", own, q, const(0, kind)), axis=(1,), keepdims=False)
        middle = total(call("where", here, row, const(0, kind)))
        gradient = total(call("where", here, held, const(0, kind)))
        move = binary("divide", sub(weighted, gradient), middle)
        grown = add(move, 1)
        moved = binary("divide", add(p, call("where", here, move, const(0, kind))), grown)
        after = binary("divide", add(weighted, mul(move, add(mul(move, middle), mul(gradient, 2)))), mul(grown, grown))
        below = binary("divide", add(held, mul(move, row)), grown)
        new = [call("where", goes_on, x, old) for x, old in ((moved, p), (below, held), (after, weighted))]
        return [*new, goes_on], []

    rounds = max(ROUNDS, count)
    turns = const(np.tile(np.eye(count) > 0, (rounds, 1)), "bool")
    begins = const((np.arange(rounds * count) % count == 0)[:, None], "bool")
    zeros = call("full", const(0, kind), shape=(rows, count), dtype=kind)
    one = call("full", const(0, kind), shape=(rows, 1), dtype=kind)
    busy = call("full", const(True, "bool"), shape=(rows, 1), dtype="bool")
    return loop(step, [turns, begins], [even, zeros, one, busy], rounds * count)[0][0]


CONVERTERS: Converters = {"SVMClassifier": {1: classifier}, "SVMRegressor": {1: regressor}}
