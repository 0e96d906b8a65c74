"""Policies in processes of their own: the same search as in one, and whatever goes wrong there is told here."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.errors import MeasureError
from ansor.measure.forks import Forks
from ansor.offline.analytical import AnalyticalRunner
from ansor.scheduler import policy_processes
from ansor.scheduler.policies import make_search_policies
from ansor.scheduler.policy_processes import PolicyFailed, chosen_processes, in_processes
from tests.ansor.fake_measure import Heard
from tests.workloads import matmul

SMALL = {"evolutionary_search_population": 24, "evolutionary_search_num_iters": 1, "extra_sketch_rules": ""}
SIZES = ((16, 12, 20), (16, 24, 20))


def tasks_of() -> list[ansor.SearchTask]:
    own = ansor.SearchTask(compute_dag=te.ComputeDAG(softmax()), target="cuda")
    return [*[ansor.SearchTask(matmul, sizes, target="cuda") for sizes in SIZES], own]


def softmax() -> list[te.Tensor]:
    x = te.placeholder((8, 32), name="x")
    return [x, te.topi.nn.softmax(x)]


class Comparing(AnalyticalRunner):
    """Compares, too, so that the default schedule is measured."""

    def compare(self, inputs: Sequence[ansor.MeasureInput], builds: Sequence[Any]) -> list[list[float]]:
        return [[1e-3 * len(inp.steps)] * 3 for inp in inputs]


def tune(
    processes: int, log: Path, trials: int, runner: type[AnalyticalRunner] = AnalyticalRunner,
    early_stopping: str | None = None,
) -> tuple[ansor.TaskScheduler, Heard]:  # fmt: skip
    heard = Heard()
    scheduler = ansor.TaskScheduler(tasks_of(), callbacks=[], seed=4)
    options = ansor.TuningOptions(
        trials, early_stopping, 4, 0, AnalyticalRunner.builder(), runner(),
        measure_callbacks=[ansor.RecordToFile(log), heard],
    )  # fmt: skip
    scheduler.tune(options, search_policy_params=SMALL, policy_processes=processes)
    return scheduler, heard


@pytest.mark.long
def test_a_seed_decides_the_search_in_however_many_processes(tmp_path: Path) -> None:
    """Twice on the same log: it goes on where that ends, and nothing is measured twice."""
    runs = []
    for processes in (0, 2):
        log = tmp_path / f"{processes}"
        first, heard = tune(processes, log, 20)
        again, more = tune(processes, log, 4)
        runs.append((first.progress, heard.found, again.progress, more.found))
        records = [(inp.task.workload_key, inp.steps) for inp, _ in ansor.load_records(log)]
        assert len(records) == 24 == len(set(records)) == sum(again.task_trials)
        text = log.read_text()
        assert text.count("# predicted ") > 9 and text.count("# round ") == 9
    assert runs[0] == runs[1]
    assert list(runs[0][1]) == [tasks_of()[k].workload_key for k in (0, 2, 1)], "one of each kind comes first"


def test_a_policy_that_fails_in_its_process_costs_its_own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(self: Any, n: int, whole: Any = ansor.SketchPolicy.ask) -> Any:
        return whole(self, n) if "matmul" in self.task.workload_key else 1 / 0

    monkeypatch.setattr(ansor.SketchPolicy, "ask", ask)
    monkeypatch.chdir(tmp_path)
    scheduler, _ = tune(2, tmp_path / "log", 12, Comparing)
    assert list(scheduler.failures) == [2] and scheduler.task_trials[2] == 0 and sum(scheduler.task_trials) == 12
    report = scheduler.failures[2].report.read_text()
    assert "ZeroDivisionError: division by zero" in str(scheduler.failures[2]) and "1 / 0" in report


def test_what_learning_raises_in_the_end_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(self: Any, *told: Any, whole: Any = ansor.SketchPolicy.tell) -> None:
        if "matmul" not in self.task.workload_key:
            raise ValueError("in the end")
        whole(self, *told)

    monkeypatch.setattr(ansor.SketchPolicy, "tell", tell)
    monkeypatch.chdir(tmp_path)
    scheduler, _ = tune(2, tmp_path / "log", 3)
    assert list(scheduler.failures) == [2] and scheduler.task_trials == [1, 1, 1]
    assert "ValueError: in the end" in str(scheduler.failures[2])


def test_a_process_that_dies_judging_costs_its_own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing_more(self: Any) -> str:
        if "matmul" not in self.task.workload_key:
            os.kill(os.getpid(), signal.SIGKILL)
        return ""

    monkeypatch.setattr(ansor.SketchPolicy, "nothing_more", nothing_more)
    monkeypatch.chdir(tmp_path)
    scheduler, _ = tune(3, tmp_path / "log", 24, early_stopping="auto")
    assert list(scheduler.failures) == [2] and "process has ended" in str(scheduler.failures[2])
    assert sum(scheduler.task_trials) == 24


@pytest.fixture
def policies() -> list[Any]:
    return make_search_policies("sketch.xgb", SMALL, tasks_of()[:2], 4, 0, seed=1)


def test_what_a_search_uses_comes_with_its_first_programs(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody waits for what the process thinks about afterwards, for another task."""
    policies = make_search_policies("sketch.xgb", SMALL, tasks_of()[:2], 4, 1, seed=1)
    with in_processes(policies, 1) as (one, other):
        one.foresee(2)
        other.foresee(2)
        one.announce(AnalyticalRunner())
        assert other._foreseen[0].data is None and one.known()
        one.announce(AnalyticalRunner())
        assert capsys.readouterr().out.count("runner AnalyticalRunner") == 1
        assert len(one.candidates(2)) == len(other.candidates(2)) == 2 and other.known()
        other.announce(AnalyticalRunner())
        assert capsys.readouterr().out.count("runner AnalyticalRunner") == 1


def test_a_process_that_is_killed_is_told_in_a_sentence(policies: list[Any]) -> None:
    with in_processes(policies, 1) as (one, other):
        assert len(one.candidates(2)) == 2
        os.kill(one.process._child.process.pid, signal.SIGKILL)
        for _ in range(2):
            with pytest.raises(PolicyFailed, match="process has ended"):
                other.candidates(2)


def test_nothing_that_learning_raises_is_lost(policies: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what news of others raise, and not what the results of one round do when those of another are told."""

    def raises(inputs: Sequence[Any], _: Any) -> None:
        time.sleep(0.2)
        raise ValueError(f"told of {len(inputs)}")

    monkeypatch.setattr(policies[0], "tell", raises)
    monkeypatch.setattr(policies[1], "tell_of_others", raises)
    with in_processes(policies, 1) as (one, other):
        inputs = one.candidates(5)
        results = [ansor.MeasureResult((1e-3,), 0, "", 1.0, 0)] * 5
        one.tell(inputs[:3], results[:3])
        one.tell(inputs[3:], results[3:])
        for told in (3, 2):
            with pytest.raises(PolicyFailed, match=f"ValueError: told of {told}"):
                one.settle(math.inf)
        with pytest.raises(PolicyFailed, match="ValueError: told of "):
            other.candidates(1)


@pytest.mark.timeout(30)
def test_neither_side_waits_until_the_other_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have more to say than a channel holds; one that is stopped reads nothing, and gives no answer."""
    much = "x" * 400_000
    process = policy_processes._Process(Forks(lambda message, _: {"size": len(message["told"]), "asked": much})())
    try:
        answers = [process.say({"told": much}) for _ in range(4)]
        assert [answer.result()["size"] for answer in answers] == [len(much)] * 4
        monkeypatch.setattr(policy_processes, "MOST_SECONDS", 0.1)
        os.kill(process._child.process.pid, signal.SIGSTOP)
        with pytest.raises(PolicyFailed, match="gave no answer"):
            process.say({"told": much}).result()
    finally:
        process.end()


def test_what_passes_a_search_passes_from_its_process(policies: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: int) -> Any:
        raise MeasureError("no more")

    monkeypatch.setattr(policies[0], "ask", refuses)
    with in_processes(policies, 1) as (one, other), pytest.raises(MeasureError, match=r"^no more$"):
        assert other.candidates(1)
        one.candidates(2)


def test_processes_end_with_the_search(policies: list[Any]) -> None:
    with pytest.raises(KeyboardInterrupt), in_processes(policies, 2) as apart:
        pids = [one.process._child.process.pid for one in apart]
        apart[0].foresee(4)
        raise KeyboardInterrupt
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_how_many_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_processes, "usable_cores", lambda: 12)
    assert [chosen_processes(n, 24) for n in (None, 0, 3, 99)] == [12, 0, 3, 24] and chosen_processes(None, 1) == 0
    monkeypatch.setattr(policy_processes, "usable_cores", lambda: 2)
    assert chosen_processes(None, 24) == 0 and chosen_processes(np.int64(2).item(), 24) == 2
    for wrong in (-1, True, "2"):
        with pytest.raises(ansor.TaskError, match="policy_processes: it must be an integer of at least 0, or None"):
            chosen_processes(wrong, 2)  # type: ignore[arg-type]
