"""Programs that are hopeless by the analytical model are not measured, and nothing else is left out."""

from __future__ import annotations

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cost_model.prior import AnalyticalModel
from ansor.policy import proposals


def mean(n: int) -> list[te.Tensor]:
    x = te.placeholder((n, n), name="x")
    i, j = te.reduce_axis((0, n), "i"), te.reduce_axis((0, n), "j")
    total = te.compute((1,), lambda k: te.sum(x[i, j] * x[i, j], axis=[i, j]), name="total")
    return [x, te.compute((1,), lambda k: total[k] / float(n * n), name="mean")]


def seconds(n: int, random: bool) -> np.ndarray:
    """What is expected of the programs of three rounds."""
    task = ansor.SearchTask(compute_dag=mean(n), target="cuda -arch=sm_90")
    model = ansor.RandomModel() if random else AnalyticalModel()
    policy = ansor.SketchPolicy(task, model, seed=3, verbose=0)
    states = [state for _ in range(3) for state in policy.ask(16)]
    assert len(states) > 20
    return np.exp(-AnalyticalModel().predict(task, states))


@pytest.mark.parametrize("random", [False, True])
def test_a_large_sum_is_not_left_to_a_few_threads(random: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = seconds(32768, random)
    most = max(proposals.LONG, proposals.TIMES * expected.min())
    assert expected.max() <= most
    monkeypatch.setattr(proposals, "LARGE", float("inf"))
    assert not random or seconds(32768, random).max() > 10 * most  # of sketches that are worth it no program is slow


def test_small_tasks_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = seconds(512, True)
    monkeypatch.setattr(proposals, "LARGE", float("inf"))
    np.testing.assert_array_equal(seconds(512, True), expected)
