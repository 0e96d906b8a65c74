"""The parts that `examples/seams` replaces pass the suites of their kind, as a part of your own should."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.sketch.rule import SketchRule
from examples.seams import custom_step
from te_lite import ComputeDAG
from te_lite.schedule.state import State
from te_lite.schedule.step import Step
from tests.ansor.sketch_cases import matmul
from tests.conformance.callback import MeasureCallbackSuite
from tests.conformance.cost_model import CostModelSuite, measured
from tests.conformance.mutation import MutationSuite
from tests.conformance.policy import PolicySuite
from tests.conformance.runner import BuilderSuite, RunnerSuite
from tests.conformance.sketch_rule import SketchRuleSuite
from tests.conformance.step import StepSuite
from tests.conformance.tuner import TunerSuite

__all__ = ["measured"]

SEAMS = Path(__file__).parent.parent / "examples" / "seams"


def seam(name: str) -> ModuleType:
    """The example of this name, not run."""
    spec = importlib.util.spec_from_file_location(f"seams_{name}", SEAMS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestCostModel(CostModelSuite):
    @pytest.fixture
    def model(self) -> Any:
        return seam("custom_cost_model").ManyThreads()


class TestMutation(MutationSuite):
    target = "cuda"

    @pytest.fixture
    def mutation(self) -> Any:
        return seam("custom_mutation").SwapLengths()


class TestSketchRule(SketchRuleSuite):
    @pytest.fixture
    def rule(self) -> SketchRule:
        rule: SketchRule = seam("custom_sketch_rule").rule
        return rule

    def workloads(self) -> Mapping[str, ComputeDAG]:
        return {"matmul": ComputeDAG(matmul(12, 20, 16))}


class TestStep(StepSuite):
    @pytest.fixture
    def kind(self) -> type[Step]:
        kind: type[Step] = custom_step.Peel
        return kind

    @pytest.fixture
    def program(self) -> State:
        state: State = custom_step.scheduled()
        return state


class TestPolicy(PolicySuite):
    """It knows one workload, with eleven programs."""

    example = seam("custom_policy")

    def make(self, task: ansor.SearchTask, seed: int) -> Any:
        return self.example.HillClimbing(task)

    @pytest.fixture
    def task(self) -> ansor.SearchTask:
        dag = te.ComputeDAG([self.example.A, self.example.B])
        return ansor.SearchTask(compute_dag=dag, target="cuda -model=T4")

    @pytest.fixture
    def tiny(self, task: ansor.SearchTask) -> ansor.SearchTask:
        return task


class TestTuner(TunerSuite):
    def make(self, task: Any, rng: np.random.Generator) -> Any:
        return seam("custom_tuner").Walk(task, rng=rng)


class TestRunner(RunnerSuite):
    example = seam("custom_runner")

    @pytest.fixture
    def builder(self) -> Any:
        return self.example.TextBuilder()

    @pytest.fixture
    def runner(self) -> Any:
        return self.example.TextRunner()


class TestBuilder(BuilderSuite):
    @pytest.fixture
    def builder(self) -> Any:
        return seam("custom_runner").TextBuilder()


class TestCallback(MeasureCallbackSuite):
    @pytest.fixture
    def callback(self) -> Any:
        return seam("custom_callback").History()

    def heard(self, callback: Any) -> int:
        return int(callback.trials)


def test_every_seam_has_a_suite() -> None:
    """A target is tried as a whole in tests/relay_lite/test_new_target.py."""
    text = Path(__file__).read_text()
    names = {path.stem for path in SEAMS.glob("*.py")} - {"custom_backend"}
    assert [name for name in sorted(names) if f'seam("{name}")' not in text and f"import {name}" not in text] == []
