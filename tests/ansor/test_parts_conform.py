"""Policies, runners, builders and callbacks of the package pass the suites of their kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.core.tasks.measure_values import MeasureInput, MeasureResult
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.offline.replay import ReplayRunner
from tests.conformance.callback import MeasureCallbackSuite
from tests.conformance.policy import PolicySuite
from tests.conformance.runner import BuilderSuite, RunnerSuite

SMALL = {"evolutionary_search_population": 48, "evolutionary_search_num_iters": 1}


class Simple:
    """A cost model that likes short programs."""

    def update(self, inputs: Any, results: Any) -> None: ...

    def predict(self, task: Any, states: Any) -> np.ndarray:
        return np.array([-float(len(s.steps)) for s in states])


@pytest.mark.slow
class TestSketchPolicy(PolicySuite):
    def make(self, task: ansor.SearchTask, seed: int) -> ansor.SketchPolicy:
        return ansor.SketchPolicy(task, Simple(), SMALL, seed=seed, verbose=0)


class TestRandomSearch(PolicySuite):
    def make(self, task: ansor.SearchTask, seed: int) -> ansor.SketchPolicy:
        return ansor.SketchPolicy(task, ansor.RandomModel(seed), seed=seed, verbose=0)


@pytest.mark.long
class TestLearningSearch(PolicySuite):
    def make(self, task: ansor.SearchTask, seed: int) -> ansor.SketchPolicy:
        return ansor.SketchPolicy(task, ansor.XGBModel(seed=seed), SMALL, seed=seed, verbose=0)


class TestEmptyPolicy(PolicySuite):
    def make(self, task: ansor.SearchTask, seed: int) -> ansor.EmptyPolicy:
        return ansor.EmptyPolicy(task)


class TestLocalRunner(RunnerSuite):
    @pytest.fixture
    def builder(self) -> ansor.LocalBuilder:
        return ansor.LocalBuilder(n_parallel=1)

    @pytest.fixture
    def runner(self) -> ansor.LocalRunner:
        return ansor.LocalRunner(min_repeat_ms=0, devices="all")


class TestAnalyticalRunner(RunnerSuite):
    @pytest.fixture
    def runner(self) -> AnalyticalRunner:
        return AnalyticalRunner()


class TestReplayRunner(RunnerSuite):
    replays = True

    @pytest.fixture
    def runner(self, inputs: list[MeasureInput]) -> ReplayRunner:
        known = [(inp, MeasureResult((1e-3 * k,), 0, "", 2.0, 7)) for k, inp in enumerate(inputs, 1)]
        return ReplayRunner(known, missing="fail")


class TestLocalBuilder(BuilderSuite):
    @pytest.fixture
    def builder(self) -> ansor.LocalBuilder:
        return ansor.LocalBuilder(n_parallel=2)


class TestNoBuilder(BuilderSuite):
    builds_nothing = True

    @pytest.fixture
    def builder(self) -> NoBuilder:
        return NoBuilder()


class TestRecordToFile(MeasureCallbackSuite):
    @pytest.fixture
    def callback(self, tmp_path: Path) -> ansor.RecordToFile:
        return ansor.RecordToFile(tmp_path / "log")

    def heard(self, callback: ansor.RecordToFile) -> int:
        return len(list(ansor.load_records(callback.filename)))
