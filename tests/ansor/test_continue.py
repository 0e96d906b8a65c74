"""The same call on the same log goes on from it, in Python as on the command line; `resume=False` starts afresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import program_key

SMALL = {"evolutionary_search_population": 64, "evolutionary_search_num_iters": 1, "extra_sketch_rules": ""}


def task_of(*shape: int) -> ansor.SearchTask:
    hardware = ansor.HardwareParams(num_cores=2, target="c")
    return ansor.SearchTask("matmul", shape or (12, 8, 6), target="c", hardware_params=hardware)


def options(log: Path, trials: int = 8, **more: Any) -> ansor.TuningOptions:
    runner = AnalyticalRunner()
    callbacks = [ansor.RecordToFile(log)]
    return ansor.TuningOptions(trials, None, 8, 1, runner.builder(), runner, callbacks, **more)


def programs(log: Path) -> list[Any]:
    return [program_key(inp) for inp, _ in ansor.load_records(log)]


class Counting(ansor.XGBModel):
    """Counts what it was told before the search began."""

    told = 0

    def update(self, inputs: Any, results: Any) -> None:
        self.told = self.told or len(inputs)
        super().update(inputs, results)


@pytest.mark.parametrize("own", [True, False])
def test_the_same_call_goes_on(own: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.json"

    def call() -> Any:
        policy = ansor.SketchPolicy(task_of(), Counting(seed=1), SMALL, seed=4) if own else None
        task_of().tune(options(log), policy)
        return policy

    call()
    assert "loaded" not in capsys.readouterr().out
    again = call()
    assert f"loaded 8 measured programs of this task from {log}" in capsys.readouterr().out
    assert len(set(programs(log))) == len(programs(log)) == 16
    if own:
        assert again.cost_model.told == 8 and len(again.measured) == 16


def test_afresh(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.json"
    for resume in (True, False):
        task_of().tune(options(log, resume=resume), ansor.SketchPolicy(task_of(), Counting(seed=1), SMALL, seed=4))
    found = programs(log)
    assert found[:8] == found[8:] and "loaded" not in capsys.readouterr().out


def test_a_policy_that_was_given_a_log_keeps_to_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As TVM's tutorial resumes: the model and the policy are told by hand, and are not told twice."""
    log = tmp_path / "log.json"
    task_of().tune(options(log), ansor.SketchPolicy(task_of(), Counting(seed=1), SMALL, seed=4))
    model = Counting(seed=1)
    model.update_from_file(log)
    policy = ansor.SketchPolicy(
        task_of(), model, SMALL, seed=5, init_search_callbacks=[ansor.PreloadMeasuredStates(log)]
    )
    task_of().tune(options(log), policy)
    assert capsys.readouterr().out.count("loaded 8") == 1 and len(policy.measured) == 16
    task_of().tune(options(log, 4), policy)
    assert "loaded" not in capsys.readouterr().out and len(policy.measured) == 20


def test_records_of_other_tasks_and_new_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.json"
    task_of().tune(options(log), ansor.SketchPolicy(task_of(), None, SMALL, seed=4))
    capsys.readouterr()
    other = task_of(6, 4, 8)
    other.tune(options(log), ansor.SketchPolicy(other, None, SMALL, seed=4))
    assert "loaded 0 measured programs" in capsys.readouterr().out
    log.write_text("")
    task_of().tune(options(log), ansor.SketchPolicy(task_of(), None, SMALL, seed=4))
    assert "loaded" not in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.parametrize("resume", [True, False])
def test_a_scheduler_goes_on(resume: bool, tmp_path: Path) -> None:
    log, tasks = tmp_path / "log.json", [task_of(), task_of(6, 4, 8)]
    counts = []
    for _ in range(2):
        scheduler = ansor.TaskScheduler(tasks, callbacks=[], seed=3)
        scheduler.tune(options(log, 16, resume=resume), search_policy_params=SMALL)
        counts.append(sum(scheduler.task_trials))
    assert counts == [16, 32 if resume else 16]
    assert (len(set(programs(log))) == 32) == resume
