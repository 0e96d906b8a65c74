"""How the search weighs what a model has learnt with what the analytical one expects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import ansor
from ansor.cost_model import AnalyticalModel
from ansor.cost_model.api import Array, PythonBasedModel
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.policy.scoring import Scorer
from ansor.space.spaces import Group
from te_lite.schedule.state import State
from tests.ansor.search_case import PARAMS, conv_task


class Known(PythonBasedModel):
    """Gives the scores that it was made with."""

    scores_throughput = True

    def __init__(self, scores: Array) -> None:
        self.scores = scores

    def predict(self, task: ansor.SearchTask, states: Sequence[State]) -> Array:
        return self.scores


def population(task: ansor.SearchTask, n: int = 12) -> Group:
    """Programs of one variant."""
    proposals = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0).proposals
    while True:
        variant, _ = proposals.random(1)[0][1]
        group = proposals._sample(variant, n)
        scores = Scorer(task, AnalyticalModel())(group)
        if len(group) >= 6 and (scores > -np.inf).all():
            return group


def test_the_prior_is_a_power_of_the_expected_throughput() -> None:
    task = conv_task("cuda")
    group = population(task)
    learnt = np.random.default_rng(2).uniform(0.01, 1, len(group))
    expected = Scorer(task, AnalyticalModel())(group)
    for weight in (0.0, 0.5, 2.0):
        found = Scorer(task, Known(learnt), weight)(group)
        np.testing.assert_allclose(np.log(found), np.log(learnt) + weight * expected, rtol=1e-12)


def test_programs_without_a_score_stay_so_and_hopeless_ones_are_told_apart() -> None:
    task = conv_task("cuda")
    group = population(task)
    learnt = np.zeros(len(group))
    learnt[0] = -np.inf
    found = Scorer(task, Known(learnt), 0.5)(group)
    expected = Scorer(task, AnalyticalModel())(group)
    assert found[0] == -np.inf and (np.argsort(found[1:]) == np.argsort(expected[1:])).all()


@pytest.mark.long
@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.one_in(2)
def test_the_prior_fades_as_measurements_come_in(target: str) -> None:
    task = conv_task(target)
    weights = []
    for model in (ansor.XGBModel(seed=0), ansor.RandomModel(0), PythonBasedModel()):
        policy = ansor.SketchPolicy(task, model, PARAMS, seed=1, verbose=0)
        before = policy._prior
        if model.scores_throughput:
            measurer = ansor.ProgramMeasurer(NoBuilder(), AnalyticalRunner(), [], verbose=0)
            policy.search(16, None, 16, measurer)
        weights.append((before, policy._prior))
    assert weights == [(1.0, 64 / 80), (0.0, 0.0), (0.0, 0.0)]
