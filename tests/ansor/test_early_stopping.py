"""A search ends of itself where its last rounds brought nothing better and its model expects nothing better."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cli.budget import check_budget, early_stopping, settle
from ansor.cli.main import _parser, main
from ansor.offline.analytical import AnalyticalRunner
from ansor.policy.early_stopping import EarlyStopping
from ansor.policy.effort import QUICK_SECONDS, QUICK_TRIALS
from ansor.records.notes import read_stopped
from tests.workloads import matmul

SMALL = {"evolutionary_search_population": 32, "evolutionary_search_num_iters": 0}


def results(*seconds: float) -> list[ansor.MeasureResult]:
    return [ansor.MeasureResult((s,), 0, "", 0.0, 0) for s in seconds]


def test_it_takes_barren_rounds_and_a_model_without_hope() -> None:
    promise = EarlyStopping(expected=1.0)
    promise.told(results(3.0, 2.0))
    promise.told(results(*[2.0] * 16))
    assert promise.text() == "", "one round is no sign"
    promise.told(results(*[1.99] * 16))
    assert "the last 32 trials brought nothing better by 1%" in promise.text()
    promise.expected = 1.2
    assert promise.text() == "", "the model has hope"
    promise.expected = 1.0
    promise.told(results(1.0))
    assert promise.text() == "", "there is a better program"


def test_without_a_model_or_a_program_nothing_is_given_up() -> None:
    promise = EarlyStopping()
    for _ in range(4):
        promise.told(results())
    promise.told(results(1.0))
    for _ in range(4):
        promise.told(results(*[1.0] * 16))
    assert promise.text() == ""


class NoHope(ansor.PythonBasedModel):
    """Thinks all programs alike."""

    reads_features = True

    def update(self, inputs: Any, results: Any) -> None:
        pass

    def predict_features(self, task: ansor.SearchTask, features: Any) -> Any:
        return np.ones(len(features))

    def predict(self, task: ansor.SearchTask, states: Sequence[Any]) -> Any:
        return np.ones(len(states))


def policy_of(task: ansor.SearchTask) -> ansor.SketchPolicy:
    return ansor.SketchPolicy(task, NoHope(), SMALL, seed=0, verbose=0)


def options(log: Path, trials: int, stopping: Any) -> ansor.TuningOptions:
    runner = AnalyticalRunner()
    return ansor.TuningOptions(
        trials, stopping, 16, 0, runner.builder(), runner, measure_callbacks=[ansor.RecordToFile(log)]
    )


@pytest.mark.long
def test_a_search_says_in_its_log_why_it_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, log = ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(8, 8, 8)), target="c"), tmp_path / "log.json"
    task.tune(options(log, 400, "auto"), search_policy=policy_of(task))
    assert 32 <= len(list(ansor.load_records(log))) < 400
    assert sum(line.startswith("# stopped ") for line in log.read_text().splitlines()) == 1
    page = str(tmp_path / "page.html")
    assert main(["log", str(log)]) == main(["report", str(log), "--output", page]) == 0
    assert "\n  a search of it stopped early: the last 32 trials brought nothing better" in capsys.readouterr().out
    assert "stopped early: the last 32 trials" in Path(page).read_text()


@pytest.mark.parametrize("line", ["{}", '{"key": 1, "target": "c", "reason": ""}', "[", '{"key": "a", "target": "x"}'])
def test_what_is_no_line_on_a_stop_is_passed_over(line: str) -> None:
    assert read_stopped(b"# stopped " + line.encode()) is None


@pytest.mark.long
def test_a_network_stops_when_all_its_tasks_have(tmp_path: Path) -> None:
    tasks = [ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(n, 8, 8)), target="c") for n in (8, 16)]
    scheduler = ansor.TaskScheduler(tasks, callbacks=[])
    scheduler.tune(options(tmp_path / "log.json", 800, "auto"), [policy_of(task) for task in tasks])
    assert sum(scheduler.task_trials) < 800 and scheduler.alive == ()
    assert (tmp_path / "log.json").read_text().count("# stopped ") == 2


def test_a_policy_that_cannot_say_so_is_refused(tmp_path: Path) -> None:
    class Silent:
        def search(self, *given: Any) -> None:
            raise AssertionError

    task = ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(8, 8, 8)), target="c")
    with pytest.raises(ansor.TaskError, match=r"needs a policy with a method nothing_more, got policy='Silent'"):
        task.tune(options(tmp_path / "log.json", 8, "auto"), search_policy=Silent())


@pytest.mark.parametrize(
    ("words", "trials", "seconds", "stopping"),
    [
        ("", 64, None, None),
        ("--effort full --seconds 5", 64, 5.0, None),
        ("--effort quick", 7 + 2 * QUICK_TRIALS, 2 * QUICK_SECONDS, "auto"),
        ("--effort quick --time-limit 3", 7 + 2 * QUICK_TRIALS, 3.0, "auto"),
        ("--effort quick --trials 50", 50, 2 * QUICK_SECONDS, "auto"),
        ("--effort none", 0, None, None),
    ],
)
def test_efforts(words: str, trials: int, seconds: float | None, stopping: str | None) -> None:
    args = _parser().parse_args(["tune", "matmul", *words.split()])
    check_budget(args)
    settle(args, tasks=2, done=7)
    assert (args.trials, args.time_limit, early_stopping(args)) == (trials, seconds, stopping)


@pytest.mark.parametrize("more", ["--trials 4", "--more 4", "--seconds 4"])
def test_no_effort_measures_nothing(more: str) -> None:
    args = _parser().parse_args(["tune", "matmul", "--effort", "none", *more.split()])
    with pytest.raises(ansor.TaskError, match="--effort none: measures nothing"):
        check_budget(args)
