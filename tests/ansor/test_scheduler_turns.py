"""Several tasks with one budget: baselines come first, and a task is known by its best few in turns at the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.policy import default_schedule
from ansor.records.best import history
from ansor.records.noted_records import baselines_of
from ansor.scheduler.restore import restore, settled
from ansor.sketch.plain import untuned_state
from tests.ansor.default_programs import default_of
from tests.ansor.fake_measure import InTurns, ReadyBuilder
from tests.workloads import matmul

UNTUNED = DEFAULT = 50e-3


class Lucky(InTurns):
    """Single figures are 1 to 2 ms by chance, in turns every program takes 3 ms and a bit; baselines take longer."""

    def __init__(self, untuned: float = UNTUNED, default: float = DEFAULT) -> None:
        super().__init__()
        self.untuned, self.default, self.luck = untuned, default, 1.0
        self.rng = np.random.default_rng(0)

    def _known(self, inp: ansor.MeasureInput) -> float | None:
        return self.untuned if is_untuned(inp) else self.default if is_default(inp) else None

    def seconds(self, inp: ansor.MeasureInput) -> float:
        return self._known(inp) or self.luck * self.rng.uniform(1e-3, 2e-3)

    def in_turns(self, k: int, inp: ansor.MeasureInput) -> float:
        return self._known(inp) or 3e-3 + k * 1e-5


def is_untuned(inp: ansor.MeasureInput) -> bool:
    return inp.steps == untuned_state(inp.task).steps


def is_default(inp: ansor.MeasureInput) -> bool:
    return inp.steps == default_of(inp.task).steps


@pytest.fixture(params=["c", "cuda"])
def tasks(request: pytest.FixtureRequest) -> list[ansor.SearchTask]:
    return [ansor.SearchTask(matmul, (16, n, 20), target=request.param) for n in (12, 24, 48)]


def run(tasks: Sequence[ansor.SearchTask], log: Path, runner: Any, trials: int, **kwargs: Any) -> ansor.TaskScheduler:
    scheduler = ansor.TaskScheduler(tasks, callbacks=kwargs.pop("callbacks", []), seed=1, **kwargs)
    options = ansor.TuningOptions(
        trials, 4, builder=ReadyBuilder(), runner=runner, measure_callbacks=[ansor.RecordToFile(log)], verbose=1
    )  # fmt: skip
    scheduler.tune(options, "sketch.random")
    return scheduler


@pytest.mark.long
def test_each_task_begins_with_what_nobody_searched_for_once(tasks: list[ansor.SearchTask], tmp_path: Path) -> None:
    log, runner = tmp_path / "log.json", Lucky()
    scheduler = run(tasks, log, runner, 12)
    for task in tasks:
        own = [inp for inp in runner.ran if inp.task is task]
        assert is_default(own[0]) and sum(map(is_default, own)) == 1
        assert is_untuned(own[1]) and sum(map(is_untuned, own)) == 1
        assert [res.cost for _, res in baselines_of(log, task).values()] == [DEFAULT, UNTUNED]
    assert sum(scheduler.task_trials) == 12 == len(list(ansor.load_records(log)))
    run(tasks, log, runner, 6)
    assert sum(map(is_untuned, runner.ran)) == sum(map(is_default, runner.ran)) == 3


def test_a_default_schedule_that_cannot_be_drawn_up_costs_its_own_task(
    tasks: list[ansor.SearchTask], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = default_schedule.default_states

    def fails_for_one(task: ansor.SearchTask) -> Iterator[te.State]:
        return whole(task) if task is not tasks[1] else iter([[][1]])

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(default_schedule, "default_states", fails_for_one)
    scheduler = run(tasks, tmp_path / "log.json", Lucky(), 12)
    assert list(scheduler.failures) == [1] and scheduler.alive == (0, 2) and sum(scheduler.task_trials) == 12


@pytest.mark.one_in(2)
def test_the_turns_decide_and_the_last_table_knows(
    tasks: list[ansor.SearchTask], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, runner = tmp_path / "log.json", Lucky()
    table = ansor.scheduler.callbacks.PrintTableInfo()
    scheduler = run(tasks, log, runner, 12, callbacks=[table])
    assert [len(inputs) for inputs in runner.compared] == [3, 3, 3]
    assert scheduler.best_costs == [3e-3] * 3
    for task, inputs in zip(tasks, runner.compared, strict=True):
        best, result = ansor.load_best_record(log, task.workload_key)
        assert best is not None and result is not None
        assert (best.steps, result.cost) == (inputs[0].steps, 3e-3)
    out = capsys.readouterr().out
    assert out.count("timed again in turns: best 3 ms") == 3
    assert "Estimated total latency: 9.000 ms\tTrials: 12" in out.split("[ Task Scheduler ]")[-1]


@pytest.mark.one_in(2)
def test_who_goes_on_with_the_log_knows_what_the_turns_said(tasks: list[ansor.SearchTask], tmp_path: Path) -> None:
    log, runner = tmp_path / "log.json", Lucky()
    run(tasks, log, runner, 12)
    records, costs = history(log)
    known = restore(records, tasks, 4)
    assert [s.trials for s in known] == [4, 4, 4] and max(s.cost for s in known) < 2e-3
    assert [s.cost for s in settled(known, costs, tasks)] == [3e-3] * 3
    again = ansor.TaskScheduler(tasks, callbacks=[])
    options = ansor.TuningOptions(0, builder=ReadyBuilder(), runner=runner, measure_callbacks=[ansor.RecordToFile(log)])
    again.tune(options, "sketch.random")
    assert again.best_costs == [3e-3] * 3


@pytest.mark.long
@pytest.mark.parametrize(("runner", "phrase"), [
    (Lucky(2e-3), "the untuned one"), (Lucky(default=2e-3), "the default schedule")
])  # fmt: skip
@pytest.mark.one_in(3)
def test_slower_than_what_needs_no_search_is_said_of_each_task(
    runner: Lucky, phrase: str, tasks: list[ansor.SearchTask], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scheduler = run(tasks, tmp_path / "log.json", runner, 12)
    text = f"no program that was searched for is faster than {phrase}, which took 2 ms"
    assert capsys.readouterr().out.count(text) == 3 and scheduler.best_costs == [2e-3] * 3


def test_what_needs_no_search_takes_part_after_a_lucky_figure(tasks: list[ansor.SearchTask], tmp_path: Path) -> None:
    """It was hopeless beside single figures, and is not beside those of the turns."""
    runner = Lucky(4e-3, 5e-3)
    runner.rng = np.random.default_rng(3)
    runner.luck = 1e-2
    scheduler = run(tasks[:1], tmp_path / "log.json", runner, 4)
    assert [len(inputs) for inputs in runner.compared] == [3, 3]
    assert is_default(runner.compared[1][1]) and is_untuned(runner.compared[1][2])
    assert scheduler.best_costs == [3e-3]
    best, result = ansor.load_best_record(tmp_path / "log.json", tasks[0].workload_key)
    assert best is not None and result is not None and result.cost == 3e-3
