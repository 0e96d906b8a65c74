"""What trials are spent on: how many measure programs for all sizes, which of these come first, and at which points."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ansor
from ansor.core.tasks.measure_values import MeasureResult
from ansor_ext.open_sizes import measure
from ansor_ext.open_sizes.measure import Measuring
from ansor_ext.open_sizes.measured import Steps
from ansor_ext.open_sizes.task import OpenTask, opened_of
from tests.ansor_ext.open_sizes.test_open_task import case, task_of, tiled
from tests.nonempty import nonempty

POINTS = (1, 2, 4, 8, 24)
SEARCHED = (1, 4, 24)


def test_a_third_of_many_trials_half_of_few() -> None:
    told = {trials: opened_of(trials, 3, 6) for trials in (0, 1, 2, 6, 12, 18, 30, 150, 216, 1000)}
    assert told == {0: 0, 1: 1, 2: 1, 6: 3, 12: 6, 18: 6, 30: 10, 150: 50, 216: 72, 1000: 72}


class Machine:
    """Programs take the seconds that a table has for their rows in a part and a size; calls are kept."""

    check_correctness = True

    def __init__(self, seconds: Mapping[int, Mapping[int, float]]) -> None:
        self.seconds, self.calls = seconds, list[tuple[int, int]]()

    def run(self, inp: Any, built: Any) -> MeasureResult:
        part, n = inp.steps[0].lengths[0], inp.task.compute_dag.tensors[0].shape[0]
        self.calls.append((part, n))
        return MeasureResult((self.seconds[part][n],), 0, "", 1.0, 1)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Parts of one row are best for one row, parts of eight from four on; parts of two are worse everywhere."""
    stub = SimpleNamespace(at=lambda values, folder: None)
    monkeypatch.setattr(measure, "BUILT", {"c": lambda *given: stub})
    one = {n: 1e-6 * n for n in POINTS}
    return Machine({
        1: one, 8: {n: 2e-6 if n == 1 else 0.5e-6 * n for n in POINTS}, 2: {n: 3e-6 * n for n in POINTS},
        4: {n: 4e-6 * n for n in POINTS},
    })  # fmt: skip


def spent(task: OpenTask, machine: Machine, log: Path, trials: int) -> list[tuple[int, int]]:
    """Measurements of programs for all sizes, where searches of fixed sizes found `best` first."""
    best: dict[int, tuple[int, ...]] = {1: (1, 2), 4: (2, 8), 24: (8, 4)}
    for n, parts in best.items():
        for k, part in enumerate(parts):
            result = MeasureResult((1e-5 * (k + 1),), 0, "", 1.0, 1)
            ansor.save_records(log, [ansor.MeasureInput(task.tasks[n,], steps=tiled(task, part))], [result])
    measuring = Measuring(task.compute_dag, task.tasks, {}, [], machine, log.parent, trials, math.inf)  # type: ignore[arg-type]
    task._measure(measuring, log)
    assert len(machine.calls) == len({*machine.calls}) == trials - measuring.left
    return machine.calls


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> OpenTask:
    monkeypatch.setattr(OpenTask, "_defaults", lambda self: [])
    found = task_of(case(), POINTS)
    assert [t.compute_dag.tensors[0].shape[0] for t in found.searched] == [*SEARCHED]
    return found


def test_the_greatest_and_the_least_size_come_first(task: OpenTask, machine: Machine, tmp_path: Path) -> None:
    """Both are measured where fixed sizes were searched, then those that are kept at the others, then more programs."""
    calls = spent(task, machine, tmp_path / "log.json", 100)
    assert calls[:6] == [(part, n) for part in (8, 1) for n in SEARCHED]
    assert {*calls[6:10]} == {(part, n) for part in (8, 1) for n in (2, 8)}
    assert [*dict.fromkeys([part for part, _ in calls[10:]])] == [2, 4]
    assert all((part, n) not in calls for part in (2, 4) for n in nonempty({*POINTS} - {*SEARCHED}))


def test_the_last_trials_are_spent_too(task: OpenTask, machine: Machine, tmp_path: Path) -> None:
    assert spent(task, machine, tmp_path / "log.json", 7)[:6] == [(part, n) for part in (8, 1) for n in SEARCHED]
    machine.calls.clear()
    assert spent(task, machine, tmp_path / "other.json", 4) == [*[(8, n) for n in SEARCHED], (1, 1)]


def test_a_program_alone_is_measured_everywhere(
    task: OpenTask, machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone: list[Steps] = [tiled(task, 8)]
    monkeypatch.setattr(OpenTask, "_candidates", lambda self, log: iter(alone))
    assert sorted(spent(task, machine, tmp_path / "log.json", 100)) == [(8, n) for n in POINTS]
