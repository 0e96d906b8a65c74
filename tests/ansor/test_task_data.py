"""Inputs and right outputs of a task that are made ahead, in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor.measure.channel import task_payload
from ansor.measure.jobs import Workbench
from ansor.measure.task_data import INPUT_SEED, TaskData
from ansor.measure.workers import Workshop
from tests.workloads import matmul


@pytest.fixture
def data() -> Iterator[TaskData]:
    workshop = Workshop()
    made = TaskData(workshop)
    yield made
    made.close()
    workshop.close()


@pytest.fixture
def task() -> ansor.SearchTask:
    return ansor.SearchTask(matmul, (16, 12, 20), target="cuda")


def files(data: TaskData, task: ansor.SearchTask) -> dict[str, np.ndarray]:
    """The arrays that are there when the data may be made by the caller."""
    payload = task_payload(task)
    with data.made_once(payload["task"]):
        found = data.folder(task, payload).glob("*.npy")
        return {path.name: np.load(path, allow_pickle=False) for path in found}


def test_what_is_made_ahead_is_what_a_runner_makes(data: TaskData, task: ansor.SearchTask, tmp_path: Path) -> None:
    for _ in range(2):
        data.ahead(task, 60)
    found = files(data, task)
    Workbench().do({**task_payload(task), "op": "data", "directory": str(tmp_path), "seed": INPUT_SEED})
    assert sorted(found) == sorted(path.name for path in tmp_path.iterdir()) and len(found) == 5
    for name, array in found.items():
        np.testing.assert_array_equal(array, np.load(tmp_path / name, allow_pickle=False))


def test_what_is_not_made_in_time_is_left_to_the_runner(data: TaskData, task: ansor.SearchTask) -> None:
    data.ahead(task, 1e-6)
    assert files(data, task) == {}


def test_nobody_waits_for_data_when_the_processes_are_stopped(data: TaskData, task: ansor.SearchTask) -> None:
    others = [ansor.SearchTask(matmul, (16, 12, n), target="cuda") for n in range(1, 9)]
    for one in [*others, task]:
        data.ahead(one, 60)
    data.close()
    files(data, task)


@pytest.mark.timeout(120)
def test_a_local_runner_runs_with_data_that_were_made_ahead() -> None:
    task = ansor.SearchTask(matmul, (16, 12, 20), target="c")
    builder, runner = ansor.LocalBuilder(60, n_parallel=1), ansor.LocalRunner(60, number=1, min_repeat_ms=0)
    runner.prepare(task)
    inp = ansor.MeasureInput(task, task.compute_dag.init_state)
    result = runner.run(inp, builder.submit(inp).result())
    runner.prepare(task)
    runner.close()
    builder.close()
    assert result.ok, result.error_msg
