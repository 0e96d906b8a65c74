"""Builds that are begun before their turn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ansor
import te_lite as te
from ansor.measure.builds import Builds
from ansor.records.best import ranked_records
from ansor.scheduler.rounds import CONFIRMED, Rounds
from tests.ansor.fake_measure import ReadyBuilder
from tests.workloads import matmul

States = Callable[..., list[Any]]


def test_each_program_is_built_once_for_each_time_it_is_asked_for(
    matmul_task: ansor.SearchTask, states: States
) -> None:
    builder = ReadyBuilder()
    builds = Builds(builder)
    a, b, c = [ansor.MeasureInput(matmul_task, state) for state in states(3)]
    builds.begin([a, b])
    builds.begin([b])
    assert len(builder.builds) == 2
    assert [r.filename for r in builds.results([b, c, a])] == ["program 1", "program 2", "program 0"]
    assert [r.filename for r in builds.results([a, a])] == ["program 3", "program 4"]


class Comparing:
    """Programs take as long as they have steps; says how many were built when the first ones are compared."""

    def __init__(self, builder: ReadyBuilder) -> None:
        self.builder, self.built, self.programs = builder, list[int](), list[set[Any]]()

    def run(self, inp: Any, built: Any) -> ansor.MeasureResult:
        return ansor.MeasureResult((1e-3 * len(inp.steps),), 0, "", 0.1, 0)

    def compare(self, inputs: Any, builds: Any) -> list[list[float]]:
        self.built.append(len(self.builder.builds))
        self.programs.append({inp.steps for inp in inputs})
        return [[1e-3 * len(inp.steps)] for inp in inputs]

    def close(self) -> None:
        pass


def test_the_finalists_of_all_tasks_are_built_before_the_first_turns() -> None:
    tasks = [ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(n, 8, 8)), target="cuda -arch=sm_90") for n in (16, 32)]
    policies = [ansor.SketchPolicy(task, params={"extra_sketch_rules": ""}, seed=0, verbose=0) for task in tasks]
    builder = ReadyBuilder()
    runner = Comparing(builder)
    measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
    rounds = Rounds(tasks, policies, measurer)
    for task, policy in zip(tasks, policies, strict=True):
        inputs = [ansor.MeasureInput(task, state) for state in policy.sample_initial_population()[:5]]
        measurer.measure(task, None, inputs)
    before = len(builder.builds)
    assert all(cost is not None for cost in rounds.confirmed())
    assert runner.built == [before + 2 * CONFIRMED.least] * 2


def test_what_was_queued_before_the_end_is_built_again_after_it(matmul_task: ansor.SearchTask, states: States) -> None:
    """The files of a builder are gone when it is closed, and a program is nobody's finalist after a reset."""
    inputs = [ansor.MeasureInput(matmul_task, state) for state in states(6)]
    for end in (ansor.ProgramMeasurer.close, ansor.ProgramMeasurer.reset):
        builder = ReadyBuilder()
        runner = Comparing(builder)
        measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
        measurer.measure(matmul_task, None, inputs)
        measurer.build_finalists(matmul_task, CONFIRMED)
        end(measurer)
        measurer.in_turns(inputs[:2], runner)
        assert len(builder.builds) == len(inputs) + CONFIRMED.least + 2


def test_nothing_is_built_for_turns_that_will_not_be(matmul_task: ansor.SearchTask, states: States) -> None:
    builder = ReadyBuilder()
    measurer = ansor.ProgramMeasurer(builder, Comparing(builder), verbose=0)
    measurer.build_finalists(matmul_task)
    measurer.measure(matmul_task, None, [ansor.MeasureInput(matmul_task, states(1)[0])])
    measurer.build_finalists(matmul_task)
    assert len(builder.builds) == 1 and measurer.confirm(matmul_task) is None


@pytest.mark.parametrize("others", [0, 3])
def test_a_log_is_read_for_finalists_where_it_has_programs_of_other_runs(
    matmul_task: ansor.SearchTask, states: States, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """What this run measured is known without it."""
    log, runner, read = tmp_path / "log", Comparing(ReadyBuilder()), list[Path]()
    inputs = [ansor.MeasureInput(matmul_task, state) for state in states(9)]
    recorder = ansor.RecordToFile(log)
    if others:
        recorder.callback(None, inputs[6:], [ansor.MeasureResult((1e-6,), 0, "", 0.1, 1_700_000_000)] * others)

    def reading(path: Path, whole: Any = ranked_records) -> Any:
        read.append(path)
        return whole(path)

    monkeypatch.setattr("ansor.measure.measurer.ranked_records", reading)
    measurer = ansor.ProgramMeasurer(runner.builder, runner, [recorder], verbose=0)
    measurer.measure(matmul_task, None, inputs[:6])
    best = measurer.confirm(matmul_task, CONFIRMED)
    assert best is not None and read == [log] * (others > 0)
    assert (runner.programs[0] >= {inp.steps for inp in inputs[6:]}) == (others > 0)
