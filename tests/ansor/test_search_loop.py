"""Whole searches without a device: what is learnt helps, what is asked for can run, and both ways to score agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.features import state_features
from ansor.measure.analytical import AnalyticalRunner
from ansor.measure.api import BuildResult, MeasureInput, MeasureResult
from ansor.measure.offline import NoBuilder
from ansor.population.concrete import concrete
from ansor.population.neighbours import neighbours
from ansor.proposals import program_text
from te_lite.state import State
from tests.ansor.search_case import PARAMS, TARGETS, conv_task

BUILT = BuildResult("", (), 0, "", 0.0)


class OddMachine:
    """A runner whose times nobody has a model of: exponentials of random weights on the sums of the features."""

    def __init__(self, rng: np.random.Generator, columns: int) -> None:
        self.weights = rng.standard_normal(columns) * (rng.random(columns) < 0.1)

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        sums = state_features(inp.state, inp.task.hardware_params).sum(axis=0, dtype=np.float64)
        return MeasureResult((1e-3 * float(np.exp(sums @ self.weights / 40)),), 0, "", 0.0, 0)

    def close(self) -> None:
        pass


def best_after(task: ansor.SearchTask, model: Any, runner: Any, trials: int, seed: int) -> float:
    measurer = ansor.ProgramMeasurer(NoBuilder(), runner, verbose=0)
    ansor.SketchPolicy(task, model, PARAMS, seed=seed, verbose=0).search(trials, None, 16, measurer)
    assert measurer.count == trials
    return measurer.best[task.workload_key].cost


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_learnt_helps(target: str) -> None:
    """The learning search finds faster programs on a machine that it was told nothing of than random search does."""
    task = conv_task(target)
    columns = state_features(task.compute_dag.init_state, task.hardware_params).shape[1]
    ratios = []
    for seed in range(3):
        runner = OddMachine(np.random.default_rng(seed), columns)
        models = [ansor.RandomModel(seed), ansor.XGBModel(num_warmup_sample=16, seed=seed)]
        random, learning = [best_after(task, model, runner, 64, seed) for model in models]
        ratios.append(random / learning)
    assert np.median(ratios) > 1.1 and min(ratios) > 0.9, ratios


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
    states = ansor.SketchPolicy(task, seed=9, verbose=0).ask(n)
    inputs = [MeasureInput(task, state) for state in states]
    return inputs, [AnalyticalRunner(noise=0.3).run(inp, BUILT) for inp in inputs]


@pytest.mark.parametrize("target", TARGETS)
def test_a_model_of_states_and_one_of_features_ask_for_the_same_programs(target: str) -> None:
    task = conv_task(target)
    model = ansor.XGBModel(num_warmup_sample=1, seed=1)
    model.update(*measured(task, 24))
    params = {**PARAMS, "evolutionary_search_population": 32}
    policies = [ansor.SketchPolicy(task, Trained(model, reads), params, seed=3, verbose=0) for reads in (True, False)]
    asked = [policy.ask(10) for policy in policies]
    assert asked[0] == asked[1] and len(set(asked[0])) == 10


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_asked_for_can_run(target: str) -> None:
    task = conv_task(target)
    policy = ansor.SketchPolicy(task, ansor.XGBModel(num_warmup_sample=16, seed=1), PARAMS, seed=2, verbose=0)
    for _ in range(3):
        inputs = [MeasureInput(task, state) for state in policy.ask(16)]
        results = [AnalyticalRunner(noise=0.2).run(inp, BUILT) for inp in inputs]
        assert len(inputs) == 16 and all(res.ok for res in results)
        policy.tell(inputs, results)


@pytest.mark.parametrize("target", TARGETS)
def test_a_search_that_is_stuck_looks_next_to_its_best_program(target: str) -> None:
    """A quarter of the round are neighbours of the best program; in a round that follows a better one few are."""
    task = conv_task(target)
    policy = ansor.SketchPolicy(task, ansor.XGBModel(num_warmup_sample=8, seed=1), PARAMS, seed=2, verbose=0)
    inputs = [MeasureInput(task, state) for state in policy.ask(16)]
    results = [AnalyticalRunner().run(inp, BUILT) for inp in inputs]
    best = int(np.argmin([res.cost for res in results]))
    policy.tell(inputs, results)
    assert not policy.stuck
    parsed = policy.proposals.remember(inputs[best].steps)
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
