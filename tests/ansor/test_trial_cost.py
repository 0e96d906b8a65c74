"""What a trial moves between host and device, how often it runs, and what it leaves behind for the next one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.measure import jobs
from ansor.measure.channel import task_payload
from ansor.measure.jobs import JobFailure, Workbench
from tests.ansor.counting_backend import BESTS, COUNTS, CheckingDevice
from tests.workloads import matmul

CHECKS_ITSELF, CANNOT_CHECK = 0, 1


class Bench:
    """A worker in this process with the data of tasks."""

    def __init__(self, place: Path, device: int) -> None:
        self.place, self.device = place, device
        self.workbench = Workbench()

    def prepare(self, task: ansor.SearchTask) -> list[str]:
        payload = {**task_payload(task), "backend": "tests.ansor.counting_backend"}
        folder = self.place / payload["task"]
        folder.mkdir(exist_ok=True)
        job = {**payload, "op": "prepare", "directory": str(folder), "seed": 1, "device": self.device}
        held: list[str] = self.workbench.do(job)["held"]
        return held

    def run(self, task: ansor.SearchTask, word: str = "good") -> dict[str, int]:
        """What a trial of a program counts.  Raises JobFailure."""
        (self.place / "fault.json").write_text(f'"{word}"')
        COUNTS.clear()
        self.workbench.do({
            "op": "run", "task": task_payload(task)["task"], "directory": str(self.place), "packed": [], "number": 3,
            "repeat": 1, "min_repeat_ms": 0, "flush": False,
        })  # fmt: skip
        return dict(COUNTS)


@pytest.fixture
def bench(tmp_path: Path) -> Callable[[int], Bench]:
    COUNTS.clear()
    BESTS.clear()
    return lambda device: Bench(tmp_path, device)


def task_of(n: int) -> ansor.SearchTask:
    return ansor.SearchTask(compute_dag=matmul(n, 11, 7), target="c")


def test_a_right_program_moves_nothing_between_host_and_device(bench: Any) -> None:
    """Once a task: two inputs, an output, copies of the inputs, and three arrays of bounds go up."""
    one, task = bench(CHECKS_ITSELF), task_of(13)
    one.prepare(task)
    assert COUNTS["put"] == 3 + 2 + 3 and COUNTS["get"] == 0
    for _ in range(5):
        assert one.run(task) == {"run": 2, "fill": 1, "within": 2, "same": 2}


def test_only_what_is_wrong_is_copied_to_the_host(bench: Any) -> None:
    one, task = bench(CHECKS_ITSELF), task_of(13)
    one.prepare(task)
    with pytest.raises(JobFailure, match=r"^output C: 1 element is wrong of 143, the worst at \(0, 0\)"):
        one.run(task, "wrong")
    assert COUNTS == {"run": 1, "fill": 1, "within": 1, "same": 2, "get": 1}
    with pytest.raises(JobFailure, match="input A: the program has written to it"):
        one.run(task, "scribble_late")
    assert (COUNTS["get"], COUNTS["write"], COUNTS["put"]) == (1, 1, 0)


def test_a_device_that_cannot_check_is_looked_at_on_the_host(bench: Any) -> None:
    """Poison up; the output down before and after it is timed, and the inputs down."""
    one, task = bench(CANNOT_CHECK), task_of(13)
    one.prepare(task)
    assert COUNTS["put"] == 3
    assert one.run(task) == {"run": 2, "write": 1, "get": 4}


@pytest.mark.parametrize("why", ["dtype", "memory"])
def test_what_the_device_cannot_judge_or_hold_is_looked_at_on_the_host(
    bench: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why == "dtype":
        monkeypatch.setattr(CheckingDevice, "judges", lambda self, dtype: False)
    else:
        monkeypatch.setattr(CheckingDevice, "free", 2 * (4 * (13 * 7 + 7 * 11) + 2 * 4 * 13 * 11) - 1)
    one, task = bench(CHECKS_ITSELF), task_of(13)
    one.prepare(task)
    assert one.run(task) == {"run": 2, "write": 1, "get": 4}


@pytest.mark.parametrize("device", [CHECKS_ITSELF, CANNOT_CHECK])
@pytest.mark.parametrize("word", ["wrong", "wrong_later", "scribble", "wrong_scribble"])
def test_no_fault_is_recorded_as_right_or_spoils_the_next_program(bench: Any, device: int, word: str) -> None:
    """Also one that is right at first and wrong in the runs that are timed."""
    one, task = bench(device), task_of(13)
    one.prepare(task)
    for _ in range(2):
        with pytest.raises(JobFailure) as caught:
            one.run(task, word)
        assert caught.value.error_no == ansor.measure.MeasureErrorNo.WRONG_ANSWER
        one.run(task)


def test_the_best_time_is_that_of_the_task(bench: Any) -> None:
    one, first, second = bench(CHECKS_ITSELF), task_of(13), task_of(5)
    for task, seconds in ((first, 2e-3), (first, 5e-3), (second, 7e-3), (first, 1e-3), (second, 1e-2), (first, 1)):
        one.prepare(task)
        one.run(task, f"good {seconds}")
    assert [None if b == float("inf") else b for b in BESTS] == [None, 2e-3, None, 2e-3, 7e-3, 1e-3]


def test_the_data_of_tasks_are_kept_while_there_is_room(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were used last stay."""
    tasks = [task_of(n) for n in (13, 14, 15)]
    sizes = [4 * (n * 7 + 7 * 11) + 2 * 4 * n * 11 for n in (13, 14, 15)]
    names = [task_payload(t)["task"] for t in tasks]
    monkeypatch.setattr(jobs, "KEPT_BYTES", sum(sizes) - 1)
    one = bench(CHECKS_ITSELF)
    assert one.prepare(tasks[0]) == names[:1] and one.prepare(tasks[1]) == names[:2]
    one.run(tasks[0])
    assert one.prepare(tasks[2]) == [names[0], names[2]]
    one.run(tasks[2])
    monkeypatch.setattr(jobs, "KEPT_BYTES", 0)
    assert one.prepare(tasks[1]) == [names[1]]


def test_inputs_are_drawn_once_a_task(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another worker reads what the first one drew."""
    task = task_of(13)
    bench(CHECKS_ITSELF).prepare(task)

    def drawn(*_: Any) -> None:
        raise AssertionError("inputs were drawn again")

    monkeypatch.setattr(jobs, "random_inputs", drawn)
    monkeypatch.setattr(jobs, "accepted_values", drawn)
    second = bench(CANNOT_CHECK)
    second.prepare(task)
    second.run(task)


def test_inputs_of_stored_dtypes_come_back_as_they_were(tmp_path: Path) -> None:
    """Drawn ones, and those that a task gives; files know no such dtypes."""
    import te_lite as te

    x = te.placeholder((5, 3), "bfloat16", name="x")
    dag = te.ComputeDAG([x, te.compute((5, 3), lambda i, j: x[i, j], name="y")])
    made, _ = jobs._task_data(dag, tmp_path, 7, "strict")
    given = tmp_path / "given"
    given.mkdir()
    np.save(given / "0.npy", made[0])
    for folder in (tmp_path, given):
        again, right = jobs._task_data(dag, folder, 8, "strict")
        assert made[0].dtype == again[0].dtype == np.dtype("bfloat16")
        assert made[0].tobytes() == again[0].tobytes()
        assert (right[1].low == made[0].astype("float32")).all()
