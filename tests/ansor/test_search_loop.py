"""Whole searches without a device: what is learnt helps, what is asked for can run, and both ways to score agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.core.tasks.measure_values import BuildResult, MeasureInput, MeasureResult
from ansor.evolve.neighbours import neighbours
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.space.duplicates import program_text
from ansor.space.states import concrete
from te_lite.schedule.state import State
from tests.amount import some
from tests.ansor.search_case import PARAMS, TARGETS, conv_task

ROUND = some(32, 24)
BUILT = BuildResult("", (), 0, "", 0.0)


class ContraryMachine(AnalyticalRunner):
    """Programs that the analytical model finds slow are fast here: what stands in for the model is always wrong."""

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        res = super().run(inp, built)
        return replace(res, costs=(1e-6 / res.cost,))


class Costs:
    """A measure callback that keeps the costs in the order of the trials."""

    def __init__(self) -> None:
        self.found: list[float] = []

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        self.found += [res.cost for res in results]


def rounds_of(task: ansor.SearchTask, model: Any, runner: Any, rounds: int) -> np.ndarray:
    """The median costs of rounds of `ROUND` programs."""
    costs = Costs()
    measurer = ansor.ProgramMeasurer(NoBuilder(), runner, [costs], verbose=0)
    params = {"evolutionary_search_population": 96, "evolutionary_search_num_iters": 2}
    ansor.SketchPolicy(task, model, params, seed=2, verbose=0).search(ROUND * rounds, None, ROUND, measurer)
    return np.median(np.reshape(costs.found, (rounds, ROUND)), axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.one_in(2)
def test_what_is_learnt_corrects_a_wrong_draft(target: str) -> None:
    """The first programs are worse than random ones, for the draft misleads; the last ones are better."""
    task, runner = conv_task(target), ContraryMachine(noise=0.1, seed=1)
    random = rounds_of(task, ansor.RandomModel(1), runner, rounds=some(3, 2))
    learning = rounds_of(task, ansor.XGBModel(num_warmup_sample=ROUND, seed=1), runner, rounds=some(6, 4))
    assert learning[0] > 1.2 * np.median(random) > 1.3 * learning[-1], (random, learning)


class Trained:
    """A model that scores states, or features, by trees; it learns nothing more."""

    def __init__(self, model: ansor.XGBModel, reads_features: bool) -> None:
        self.model, self.reads_features = model, reads_features

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        pass

    def predict(self, task: ansor.SearchTask, states: Sequence[State]) -> np.ndarray:
        assert not self.reads_features
        return self.model.predict(task, states)

    def predict_features(self, task: ansor.SearchTask, features: np.ndarray) -> np.ndarray:
        assert self.reads_features
        return self.model.predict_features(task, features)


def measured(task: ansor.SearchTask, n: int) -> tuple[list[MeasureInput], list[MeasureResult]]:
    states = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=9, verbose=0).ask(n)
    inputs = [MeasureInput(task, state) for state in states]
    return inputs, [AnalyticalRunner(noise=0.3).run(inp, BUILT) for inp in inputs]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.one_in(2)
def test_a_model_of_states_and_one_of_features_ask_for_the_same_programs(target: str) -> None:
    task = conv_task(target)
    model = ansor.XGBModel(num_warmup_sample=1, seed=1)
    model.update(*measured(task, 24))
    params = {**PARAMS, "evolutionary_search_population": 32}
    policies = [ansor.SketchPolicy(task, Trained(model, reads), params, seed=3, verbose=0) for reads in (True, False)]
    asked = [policy.ask(6) for policy in policies]
    assert asked[0] == asked[1] and len(set(asked[0])) == 6


@pytest.mark.long
def test_what_is_asked_for_can_run() -> None:
    """On a GPU with so little shared memory that children of good programs often want more."""
    hardware = ansor.HardwareParams(max_shared_memory_per_block=3000, max_threads_per_block=128, target="cuda")
    task = ansor.SearchTask(compute_dag=conv_task("cuda").compute_dag, target="cuda", hardware_params=hardware)
    policy = ansor.SketchPolicy(task, ansor.XGBModel(num_warmup_sample=16, seed=1), PARAMS, seed=2, verbose=0)
    for _ in range(some(3, 2)):
        inputs = [MeasureInput(task, state) for state in policy.ask(16)]
        results = [AnalyticalRunner(noise=0.2).run(inp, BUILT) for inp in inputs]
        assert len(inputs) == 16 and all(res.ok for res in results), [res.error_msg for res in results]
        policy.tell(inputs, results)


@pytest.mark.long
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.one_in(2)
def test_a_search_that_is_stuck_looks_next_to_its_best_program(target: str) -> None:
    """A quarter of the round are neighbours of the best program; in a round that follows a better one few are."""
    task = conv_task(target)
    params = {**PARAMS, "extra_sketch_rules": ""}
    policy = ansor.SketchPolicy(task, ansor.XGBModel(num_warmup_sample=8, seed=1), params, seed=2, verbose=0)
    inputs = [MeasureInput(task, state) for state in policy.ask(16)]
    results = [AnalyticalRunner().run(inp, BUILT) for inp in inputs]
    best = int(np.argmin([res.cost for res in results]))
    policy.tell(inputs, results)
    assert not policy.stuck
    parsed = policy.proposals.remember(inputs[best].state)
    assert parsed is not None
    variant, row = parsed
    near = {
        program_text(concrete(variant, other, task.target, task.hardware_params))
        for other in neighbours(variant.space, row)
    }
    worse = [MeasureInput(task, state) for state in policy.ask(16)]
    policy.tell(worse, [MeasureResult((1.0,), 0, "", 0.0, 0)] * len(worse))
    assert policy.stuck
    assert sum(program_text(state) in near for state in policy.ask(16)) >= 4
