"""A model is followed as far as its scores mean something: by results, by what is known, or by the estimates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.tasks.measure_values import MeasureErrorNo, MeasureResult
from ansor.cost_model.prior import AnalyticalModel
from ansor.offline.analytical import AnalyticalRunner
from ansor.policy.exploration import ENOUGH, ExplorationRatio, Origin, agreement
from benchmarks.search_quality import BlindModel
from te_lite.schedule.state import State
from tests.workloads import matmul


class OwnModel(ansor.PythonBasedModel):
    """The analytical model, as somebody's own."""

    def update(self, inputs: Sequence[ansor.MeasureInput], results: Sequence[ansor.MeasureResult]) -> None:
        """Nothing is learnt."""

    def predict(self, task: ansor.SearchTask, states: Sequence[State]) -> np.ndarray[Any, Any]:
        return AnalyticalModel().predict(task, states)


def task() -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(64, 64, 64)), target="c")


SMALL = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 1}


def results(costs: Sequence[float]) -> list[MeasureResult]:
    ok, failed = MeasureErrorNo.NO_ERROR, MeasureErrorNo.COMPILE_HOST
    return [MeasureResult((c,) if c < math.inf else (), ok if c < math.inf else failed, "", 0.0, 0) for c in costs]


def drawn_of(model: Any, n: int = 64, seed: int = 3) -> int:
    """How many programs of a first round are drawn at random."""
    policy = ansor.SketchPolicy(task(), model, SMALL, seed=seed, verbose=0)
    return sum(thought is None for thought in policy.predicted(policy.ask(n)))


def test_opinions_with_and_without_an_order_in_common() -> None:
    rng = np.random.default_rng(0)
    a = rng.random(200)
    assert agreement(a, 3 * a + 1) == 1.0 == agreement(a, np.exp(a))
    assert agreement(a, -a) == 0.0
    assert np.mean([agreement(rng.random(128), rng.random(128)) for _ in range(50)]) < 0.3


def test_what_has_no_chance_counts_on_neither_side() -> None:
    a, b = np.arange(40.0), np.arange(40.0)
    b[20:] = -np.inf
    assert agreement(a, b) == 1.0
    assert agreement(a[: ENOUGH - 1], -a[: ENOUGH - 1]) == 1.0, "too few to say"


@pytest.mark.parametrize(("chosen", "share"), [(0.5, 1.0), (1.5, 0.0), (math.inf, 0.0)])
def test_results_decide_once_there_are_enough(chosen: float, share: float) -> None:
    trust = ExplorationRatio()
    trust.told(results([1.0] * ENOUGH), [Origin.DRAWN] * ENOUGH)
    trust.told(results([0.1] * ENOUGH), [Origin.OTHER] * ENOUGH)
    assert trust.by_results() is None
    trust.told(results([chosen] * ENOUGH), [Origin.CHOSEN] * ENOUGH)
    assert trust.by_results() == share


def test_old_choices_are_forgotten() -> None:
    trust = ExplorationRatio()
    trust.told(results([1.0] * 64), [Origin.DRAWN] * 64)
    trust.told(results([2.0] * 64), [Origin.CHOSEN] * 64)
    assert trust.by_results() == 0.0
    trust.told(results([0.5] * 64), [Origin.CHOSEN] * 64)
    assert trust.by_results() == 1.0


@pytest.mark.long
def test_random_scores_choose_next_to_nothing() -> None:
    """But one program of each sketch, and what is a few by chance; in most searches, for chance may agree, too."""
    sketches = len(ansor.SketchPolicy(task(), verbose=0).proposals.sketches)
    assert np.median([drawn_of(BlindModel(0), seed=seed) for seed in range(7)]) >= 64 - sketches - 16
    assert drawn_of(AnalyticalModel()) == 3


@pytest.mark.long
def test_a_look_changes_no_program() -> None:
    """A model of one's own that thinks as the analytical one does asks for the same programs."""
    models = (OwnModel(), AnalyticalModel())
    asked = [ansor.SketchPolicy(task(), model, SMALL, seed=5, verbose=0).ask(32) for model in models]
    assert [s.steps for s in asked[0]] == [s.steps for s in asked[1]]


@pytest.mark.long
def test_a_model_that_is_wrong_of_what_is_known_is_left() -> None:
    """It likes what the estimates like at first, then what is slowest."""

    class Turned(OwnModel):
        told = False

        def update(self, inputs: Sequence[ansor.MeasureInput], results: Sequence[ansor.MeasureResult]) -> None:
            self.told = True

        def predict(self, task: ansor.SearchTask, states: Sequence[State]) -> np.ndarray[Any, Any]:
            return super().predict(task, states) * (-1 if self.told else 1)

    policy = ansor.SketchPolicy(task(), Turned(), SMALL, seed=1, verbose=0)
    options = ansor.TuningOptions(
        32, num_measures_per_round=32, verbose=0, builder=AnalyticalRunner.builder(), runner=AnalyticalRunner(),
        measure_callbacks=[],
    )  # fmt: skip
    policy.task.tune(options, policy)
    thought = policy.predicted(policy.ask(32))
    assert sum(x is None for x in thought) > 16
