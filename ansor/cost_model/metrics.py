"""How well scores order measured programs (Ansor, section 7.4 of the paper; higher scores mean faster programs).

Scores must not reward luck, so ties never help: every function says what it makes of programs with equal scores.
Costs are seconds; a failed program costs inf.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.errors import TaskError

Array = np.ndarray[Any, np.dtype[Any]]


def pairwise_accuracy(scores: Array, costs: Array) -> float:
    """The share of pairs of different cost whose faster program has the higher score.

    A pair with equal scores counts half: a constant model gets 0.5.  Pairs of equal cost (two failures, say) are left
    out; nan when there is no other pair.  Takes n^2 bytes a few times over.
    Raises TaskError when lengths differ or a score is NaN.
    """
    scores, costs = _checked(scores, costs)
    faster = costs[:, None] < costs[None, :]
    pairs = int(faster.sum())
    right = int((faster & (scores[:, None] > scores[None, :])).sum())
    tied = int((faster & (scores[:, None] == scores[None, :])).sum())
    return (right + tied / 2) / pairs if pairs else float("nan")


def top_k_recall(scores: Array, costs: Array, k: int) -> float:
    """The share of the `k` fastest programs that is among the `k` of the highest scores.

    Programs tied at either cut share the places that are left equally, so the figure is the mean over all ways to
    break the ties: a constant model gets k / n.  `k` is at most the number of programs.
    Raises TaskError for k < 1, no program, different lengths or a NaN score.
    """
    scores, costs = _checked(scores, costs)
    k = _at_most(k, len(scores))
    return float((_share(-scores, k) * _share(costs, k)).sum() / k)


def top_k_peak(scores: Array, costs: Array, k: int) -> float:
    """The least cost of all divided by the least cost among the `k` highest scores: 1 when the best was found.

    Of programs with equal scores the slower is taken first.  0 when all `k` failed.  Raises TaskError as
    `top_k_recall` does, and when no cost is finite.
    """
    scores, costs = _checked(scores, costs)
    k = _at_most(k, len(scores))
    require(np.isfinite(costs).any(), TaskError, "top_k_peak", "a program that did not fail is needed")
    chosen = np.lexsort((-costs, -scores))[:k]
    return float(costs.min() / costs[chosen].min())


def rmse(scores: Array, labels: Array) -> float:
    """The root of the mean squared difference; nan for no program.  Raises TaskError when lengths differ."""
    scores, labels = _checked(scores, labels)
    return float(np.sqrt(np.mean((scores - labels) ** 2))) if len(scores) else float("nan")


def _share(keys: Array, k: int) -> Array:
    """float64 [n]: the chance of each program to be among the k least keys, ties broken at random."""
    cut = np.partition(keys, k - 1)[k - 1]
    below, tied = keys < cut, keys == cut
    left: float = k - int(below.sum())
    share: Array = np.where(below, 1.0, 0.0) + tied * (left / tied.sum())
    return share


def _at_most(k: int, n: int) -> int:
    require(k >= 1 and n >= 1, TaskError, "top k", "k and the number of programs must be at least 1", k=k, n=n)
    return min(k, n)


def _checked(scores: Array, others: Array) -> tuple[Array, Array]:
    scores, others = np.asarray(scores, dtype=np.float64), np.asarray(others, dtype=np.float64)
    ok = scores.ndim == 1 and scores.shape == others.shape
    require(ok, TaskError, "metric", "two lists of the same length are needed", shapes=(scores.shape, others.shape))
    require(not np.isnan(scores).any() and not np.isnan(others).any(), TaskError, "metric", "no number may be NaN")
    return scores, others
