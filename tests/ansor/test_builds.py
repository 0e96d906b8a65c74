"""Builds that are begun before their turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ansor
from ansor.measure.builds import Builds
from ansor.scheduler.rounds import CONFIRMED
from tests.ansor.fake_measure import ReadyBuilder

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
    assert [r.filename for r in builds.results([a])] == ["program 3"]


class Comparing:
    """Programs take as long as they have steps; says how many were built when the first ones are compared."""

    def __init__(self, builder: ReadyBuilder) -> None:
        self.builder, self.built = builder, list[int]()

    def run(self, inp: Any, built: Any) -> ansor.MeasureResult:
        return ansor.MeasureResult((1e-3 * len(inp.steps),), 0, "", 0.1, 0)

    def compare(self, inputs: Any, builds: Any) -> list[list[float]]:
        self.built.append(len(self.builder.builds))
        return [[1e-3 * len(inp.steps)] for inp in inputs]

    def close(self) -> None:
        pass


def test_the_finalists_of_all_tasks_are_built_before_the_first_turns(
    matmul_task: ansor.SearchTask, states: States
) -> None:
    builder = ReadyBuilder()
    runner = Comparing(builder)
    measurer = ansor.ProgramMeasurer(builder, runner, verbose=0)
    inputs = [ansor.MeasureInput(matmul_task, state) for state in states(6)]
    measurer.measure(matmul_task, None, inputs)
    measurer.build_finalists(matmul_task, CONFIRMED)
    assert len(builder.builds) == 6 + CONFIRMED
    assert measurer.confirm(matmul_task, CONFIRMED) is not None and runner.built == [6 + CONFIRMED]
