"""A ranking loss: finite differences, invariances, and the rank accuracy of a model that is trained by it."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ansor.cost_model.metrics import pairwise_accuracy

from ..core.verdict import function, need

HINT = """Make the matrix of differences scores[:, None] - scores[None, :] and the mask costs[:, None] < costs[None, :].
The derivative of log(1 + exp(-d)) is -1 / (1 + exp(d)). Each pair pushes two scores."""


def loss(scores: np.ndarray, costs: np.ndarray) -> float:
    """As the statement says it, pair by pair."""
    pairs = [(i, j) for i in range(len(costs)) for j in range(len(costs)) if costs[i] < costs[j]]
    return float(np.mean([np.logaddexp(0, scores[j] - scores[i]) for i, j in pairs]))


def trained(gradient: Callable[..., Any], x: np.ndarray, costs: np.ndarray) -> np.ndarray:
    """The weights of a linear model after descent by the gradient."""
    weights = np.zeros(x.shape[1])
    for _ in range(300):
        weights -= 2.0 * x.T @ np.asarray(gradient(x @ weights, costs))
    return weights


def check(answer: ModuleType) -> None:
    """The derivative by differences; ties, sizes of costs and large scores; then a model on costs over six decades."""
    gradient, rng = function(answer, "gradient"), np.random.default_rng(15)
    scores, costs = rng.standard_normal(9), rng.permutation(9) + 1.0
    got = np.asarray(gradient(scores.copy(), costs))
    need(got.shape == (9,), f"one number for each of 9 scores is wanted, you give the shape {got.shape}")
    h = 1e-5
    want = np.array([(loss(scores + h * e, costs) - loss(scores - h * e, costs)) / (2 * h) for e in np.eye(9)])
    need(not np.allclose(got, -want, atol=1e-6), "the sign is turned: this direction makes the loss larger")
    proportional = abs(got @ want) > 0.999 * np.linalg.norm(got) * np.linalg.norm(want) > 0
    need(np.allclose(got, gradient(scores, costs**3), atol=1e-9), "cubed costs change it; only their order may count")
    need(abs(got.sum()) < 1e-9, "the sum is not 0: what lifts one score of a pair must lower the other one")
    right = np.allclose(got, want, atol=1e-6)
    need(right or not proportional, "the direction is right, the size is not: it is the mean over all pairs")
    need(right, "it is not the derivative of the mean loss")
    tied = np.array([1.0, 1.0, 2.0])
    need(np.allclose(gradient(np.array([5.0, -5.0, -500.0]), tied), 0, atol=1e-6), "programs of equal cost are pushed")
    with np.errstate(over="ignore", invalid="ignore"):
        large = np.asarray(gradient(np.array([-1000.0, 1000.0]), np.array([1.0, 2.0])))
    need(np.isfinite(large).all(), "scores of 1000 give NaN: inf / inf; write 1 / (1 + exp(d))")
    x = rng.standard_normal((240, 6))
    costs = 10.0 ** (x @ rng.standard_normal(6) + 0.2 * rng.standard_normal(240) - 3)
    accuracy = pairwise_accuracy(x[160:] @ trained(gradient, x[:160], costs[:160]), costs[160:])
    need(accuracy > 0.9, f"a linear model trained by it orders {accuracy:.0%} of unseen pairs, where 90 % are easy")
