"""Default programs that workers draw are those that this process draws, and nothing is lost with a worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing

import pytest

import ansor
from ansor.policy import drawn_ahead
from ansor.policy.default_schedule import drawn_of
from ansor.policy.drawn_ahead import DrawnAhead, Remembered
from te_lite.state import State
from tests.workloads import conv2d_nchw, matmul, softmax

TARGET = "cuda -arch=sm_90"


def tasks() -> list[ansor.SearchTask]:
    made = [matmul(64, 128, 96), conv2d_nchw(1, 14, 32, 16, 3, 1, 1), softmax(64, 300)]
    return [ansor.SearchTask(compute_dag=tensors, target=TARGET) for tensors in made]


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drawn_ahead, "FEWEST", 3)
        yield


@pytest.fixture(scope="module")
def found() -> Iterator[tuple[list[ansor.SearchTask], DrawnAhead]]:
    given = tasks()
    with closing(DrawnAhead(given, workers=2)) as ahead:
        yield given, ahead


@pytest.mark.parametrize("number", range(3))
def test_workers_draw_the_same_programs(number: int, found: tuple[list[ansor.SearchTask], DrawnAhead]) -> None:
    task = found[0][number]
    states = found[1].states(number)
    assert states is not None and [s.steps for s in states] == [s.steps for s in drawn_of(task)]
    assert all(s.dag is task.compute_dag for s in states)


@pytest.mark.parametrize("workers, count", [(1, 3), (2, 2)])
def test_little_work_starts_no_process(workers: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn_ahead, "WorkerPool", None)
    with closing(DrawnAhead(tasks()[:count], workers)) as ahead:
        assert ahead.states(0) is None


def test_a_worker_that_fails_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(drawn_ahead, "task_payload", lambda task: {"dag": ["no", "computation"], "target": TARGET})
    with closing(DrawnAhead(tasks(), workers=2)) as ahead, caplog.at_level(logging.INFO, "ansor"):
        assert ahead.states(1) is None
    assert "no worker drew its default program" in caplog.text


def test_programs_that_were_drawn_are_remembered() -> None:
    known, drawn = Remembered(most=2), 0

    def draw(task: ansor.SearchTask) -> list[State]:
        nonlocal drawn
        drawn += 1
        return [task.compute_dag.init_state]

    first, second, third = tasks()
    again = tasks()[0]
    for task in (first, second, again, third, first):
        (state,) = known.states(task, lambda task=task: draw(task))
        assert state.dag is task.compute_dag and first in known
    assert drawn == 3 and second not in known
    other = ansor.SearchTask(compute_dag=first.compute_dag, target="cuda -arch=sm_80")
    assert other not in known
