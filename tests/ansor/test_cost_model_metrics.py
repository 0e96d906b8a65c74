"""The metrics equal their definitions, counted out; ties never help; the pack-sum gradient is the loss's."""

import itertools

import numpy as np
import pytest

import ansor
from ansor.cost_model.metrics import pairwise_accuracy, rmse, top_k_peak, top_k_recall
from ansor.cost_model.pack_sum import PackSum
from tests.nonempty import nonempty

RNG = np.random.default_rng(0)


def cases():
    """Scores and costs with and without ties and failures."""
    for n in (1, 2, 5, 7, 23):
        for levels in (2, 3, 1000):
            costs = RNG.integers(1, levels + 1, n).astype(float)
            costs[RNG.random(n) < 0.2] = np.inf
            yield RNG.integers(0, levels, n).astype(float), costs


@pytest.mark.parametrize(("scores", "costs"), list(cases()))
def test_pairwise_accuracy_counted_out(scores, costs):
    pairs = [(i, j) for i, j in itertools.permutations(range(len(costs)), 2) if costs[i] < costs[j]]
    points = [1 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0 for i, j in pairs]
    expected = np.mean(points) if points else np.nan
    np.testing.assert_allclose(pairwise_accuracy(scores, costs), expected)


@pytest.mark.parametrize(("scores", "costs"), [(s, c) for s, c in cases() if len(s) <= 5])
def test_recall_is_the_mean_over_all_ways_to_break_ties(scores, costs):
    n = len(scores)
    for k in nonempty(range(1, n + 1)):

        def firsts(keys, k=k):
            orders = [o for o in itertools.permutations(range(n)) if all(np.diff(keys[list(o)], prepend=-np.inf) >= 0)]
            return [set(o[:k]) for o in orders]

        keys = np.where(np.isinf(costs), 1e300, costs)
        both = itertools.product(firsts(-scores), firsts(keys))
        expected = np.mean([len(a & b) / k for a, b in both])
        np.testing.assert_allclose(top_k_recall(scores, costs, k), expected)


@pytest.mark.parametrize(("scores", "costs"), [(s, c) for s, c in cases() if np.isfinite(c).any()])
def test_peak_is_the_worst_over_all_ways_to_break_ties(scores, costs):
    for k in range(1, len(scores) + 2):
        cut = np.sort(scores)[::-1][min(k, len(scores)) - 1]
        sure, tied = np.flatnonzero(scores > cut), np.flatnonzero(scores == cut)
        slowest = tied[np.argsort(-costs[tied])][: min(k, len(scores)) - len(sure)]
        expected = costs.min() / min(costs[[*sure, *slowest]])
        assert top_k_peak(scores, costs, k) == pytest.approx(expected)


def test_luck_earns_nothing():
    costs = RNG.random(400) + 1
    constant = np.zeros(400)
    assert pairwise_accuracy(constant, costs) == 0.5
    assert top_k_recall(constant, costs, 30) == pytest.approx(30 / 400)
    assert top_k_peak(constant, costs, 3) == pytest.approx(costs.min() / np.sort(costs)[-3])
    perfect = (pairwise_accuracy(-costs, costs), top_k_recall(-costs, costs, 30), top_k_peak(-costs, costs, 1))
    assert perfect == (1, 1, 1)
    assert rmse(np.array([1.0, 2]), np.array([4.0, 6])) == pytest.approx(np.sqrt(12.5))


def test_what_is_no_measurement_is_refused():
    ones = np.ones(3)
    for call in (
        lambda: pairwise_accuracy(ones, np.ones(4)),
        lambda: top_k_recall(np.array([1, np.nan, 2]), ones, 1),
        lambda: top_k_recall(ones, ones, 0),
        lambda: top_k_recall(np.ones(0), np.ones(0), 1),
        lambda: top_k_peak(ones, np.full(3, np.inf), 1),
        lambda: rmse(ones[None], ones[None]),
    ):
        with pytest.raises(ansor.TaskError):
            call()


def test_the_pack_sum_gradient_is_the_derivative_of_the_loss():
    sizes = np.array([1, 4, 2, 1, 3])
    labels, weights, rows = RNG.random(5), RNG.random(5) + 0.1, RNG.normal(size=11)
    objective = PackSum.of(sizes, labels, weights)

    def loss(x):
        packs = np.split(x, np.cumsum(sizes)[:-1])
        return sum(w * (p.sum() - y) ** 2 / 2 for p, y, w in zip(packs, labels, weights, strict=True))

    gradient, hessian = objective.objective(rows)
    numeric = [(loss(rows + e) - loss(rows - e)) / 2e-5 for e in 1e-5 * np.eye(11)]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5)
    np.testing.assert_allclose(hessian, np.repeat(weights, sizes), rtol=1e-6)
    assert gradient.dtype == hessian.dtype == np.float32
    name, value = objective.metric(rows)
    assert name == "p-rmse" and value == pytest.approx(np.sqrt(2 * loss(rows) / weights.sum()))
