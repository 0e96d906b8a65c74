"""A task whose search fails costs itself alone: it is reported with a file that repeats it, and the others go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.cli.main import main
from ansor.offline.analytical import AnalyticalRunner
from ansor.policy import sketch_policy
from ansor.policy.search_failure import SearchFailed
from ansor.scheduler import make_search_policies
from relay_lite.tuning import cli
from te_lite.printing.dag_json import dag_from_json
from tests.ansor.conftest import matmul

PARAMS = {"evolutionary_search_population": 24, "evolutionary_search_num_iters": 1, "extra_sketch_rules": ""}
WAYS = ("ask", "tell")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tasks_on(target: str) -> list[ansor.SearchTask]:
    hardware = ansor.HardwareParams(num_cores=2, target="c") if target == "c" else None
    return [ansor.SearchTask(matmul, (n, 11, 7), target=target, hardware_params=hardware) for n in (13, 17, 29)]


def broken(*_: Any) -> Any:
    return [][1]


def options(trials: int, log: Path, runner: AnalyticalRunner) -> ansor.TuningOptions:
    return ansor.TuningOptions(
        trials, num_measures_per_round=4, builder=runner.builder(), runner=runner, verbose=0,
        measure_callbacks=[ansor.RecordToFile(log)],
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.one_in(3)
def test_the_other_tasks_go_on(
    target: str, way: str, here: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = tasks_on(target)
    policies = make_search_policies("default", PARAMS, tasks, 4, 0, seed=1)
    monkeypatch.setattr(policies[1], way, broken)
    scheduler = ansor.TaskScheduler(tasks, strategy="round-robin", callbacks=[], seed=1)
    scheduler.tune(options(24, here / "log.json", AnalyticalRunner()), policies)
    assert list(scheduler.failures) == [1]
    assert scheduler.alive == (0, 2) and scheduler.ct == 24
    counted = {k: sum(i.task.workload_key == t.workload_key for i, _ in ansor.load_records("log.json"))
               for k, t in enumerate(tasks)}  # fmt: skip
    assert min(counted[0], counted[2]) >= 8 and sum(counted.values()) == sum(scheduler.task_trials) == 24
    if way == "ask":
        assert counted[1] == 0
    assert "its search failed, IndexError: list index out of range" in caplog.text


def test_the_report_repeats_the_task(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure has one file, however often it happens, and that holds the computation as data."""
    task = tasks_on("c")[0]
    runner = AnalyticalRunner()
    for _ in range(2):
        policy = ansor.SketchPolicy(task, ansor.RandomModel(0), PARAMS, seed=7, verbose=0)
        monkeypatch.setattr(policy, "ask", broken)
        with pytest.raises(SearchFailed, match="please attach it to an issue") as caught:
            task.tune(options(4, here / "log.json", runner), policy)
    (path,) = here.glob("ansor_failure_*.json")
    assert caught.value.report == path and caught.value.exit_code == 5
    report = json.loads(path.read_text())
    assert dag_from_json(report["computation"]).workload_key() == task.compute_dag.workload_key()
    assert report["seed"] == 7 and "return [][1]" in report["traceback"]
    assert report["task"] == task.facts().to_json()


def test_what_measuring_refuses_ends_the_run(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise ansor.JournalError("log.json: no space is left")

    tasks = tasks_on("c")
    policies = make_search_policies("default", PARAMS, tasks, 4, 0, seed=1)
    monkeypatch.setattr(policies[0], "tell", full)
    with pytest.raises(ansor.JournalError, match="no space"):
        ansor.TaskScheduler(tasks, callbacks=[]).tune(options(24, here / "log.json", AnalyticalRunner()), policies)
    assert not list(here.glob("ansor_failure_*"))


@pytest.mark.slow
def test_a_network_gets_the_default_schedule(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command goes on to the end, and its exit status says that a search failed."""
    monkeypatch.setattr(cli, "MIN_REPEAT_MS", 1)
    whole = sketch_policy.generate_sketches

    def fails_for_one(dag: Any, *rest: Any, **more: Any) -> Any:
        if dag.tensors[-1].shape[-1] == 10:
            raise ZeroDivisionError("division by zero")
        return whole(dag, *rest, **more)

    monkeypatch.setattr(sketch_policy, "generate_sketches", fails_for_one)
    assert main(["tune-network", "mlp", "--trials", "4", "--log", "log.json", "--seed", "3"]) == 5
    said = capsys.readouterr()
    assert "results agree with the reference" in said.out
    assert "its search failed, ZeroDivisionError: division by zero" in said.err
    assert "it got the default schedule" in said.err and len(list(here.glob("ansor_failure_*.json"))) >= 1
