"""What workers make of tasks is what this process makes, and nothing is lost with a worker."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

import ansor
from ansor.core.device.backend import backend
from ansor.policy import made_ahead
from ansor.policy.default_schedule import default_states, drawn_of
from ansor.policy.made_ahead import Made, MadeAhead, Remembered, Wish
from te_lite.errors import TeError
from te_lite.extensions import using
from te_lite.lowering.lower import lower
from te_lite.schedule.state import State
from tests.workloads import conv2d_nchw, matmul, softmax

TARGET = "cuda -arch=sm_90"


def tasks() -> list[ansor.SearchTask]:
    made = [matmul(64, 128, 96), conv2d_nchw(1, 14, 32, 16, 3, 1, 1), softmax(64, 300)]
    return [ansor.SearchTask(compute_dag=tensors, target=TARGET) for tensors in made]


def wishes() -> list[Wish]:
    return [Wish(task, f"kernel_{k}", TARGET) for k, task in enumerate(tasks())]


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(made_ahead, "LEAST", 2.5)
        yield


@pytest.fixture(scope="module")
def found() -> Iterator[tuple[list[Wish], MadeAhead]]:
    given = wishes()
    drawn = tuple([state.steps for state in drawn_of(given[1].task)])
    again = [replace(given[1], drawn=drawn, name="known"), replace(given[0], recorded=drawn[0], name="wrong")]
    plain = replace(given[2], recorded=given[2].task.compute_dag.init_state.steps, name="recorded")
    given += [*again, plain]
    with closing(MadeAhead(workers=2)) as ahead:
        for wish in given:
            ahead.add(wish)
        yield given, ahead


def made_here(wish: Wish, states: list[State]) -> tuple[str, object]:
    """Source and facts of the first of some programs that the target takes."""
    networks = backend("cuda").networks
    assert networks is not None
    for state in states:
        try:
            func = lower(state, wish.task.compute_dag.tensors, wish.name)
            networks.accept(func, TARGET)
            code = networks.code(func, TARGET)
            return code.source, (code.scratch, code.facts)
        except TeError:
            continue
    raise AssertionError("no program is taken")


@pytest.mark.parametrize("number", range(3))
def test_workers_draw_and_write_the_same_programs(number: int, found: tuple[list[Wish], MadeAhead]) -> None:
    wish = found[0][number]
    made = found[1].made(wish)
    drawn = [state.steps for state in drawn_of(wish.task)]
    assert made is not None and made.kernel is not None and made.drawn
    assert list(made.drawn) == drawn[: len(made.drawn)]
    written = made.kernel.source, (made.kernel.scratch, made.kernel.facts)
    assert written == made_here(wish, list(default_states(wish.task))) and made.kernel.name == wish.name


def test_all_programs_are_drawn_where_no_kernel_is_made() -> None:
    given = [replace(wish, asked=None) for wish in wishes()]
    with closing(MadeAhead(workers=2)) as ahead:
        for wish in given:
            ahead.add(wish)
        made = ahead.made(given[0])
    assert made is not None and made.kernel is None and made.drawn is not None
    assert list(made.drawn) == [state.steps for state in drawn_of(given[0].task)]


def test_known_programs_are_not_drawn_again(found: tuple[list[Wish], MadeAhead]) -> None:
    first, known = [found[1].made(found[0][k]) for k in (1, 3)]
    assert first is not None and first.kernel is not None
    assert known is not None and known.kernel is not None and known.drawn is None
    assert known.kernel.source == first.kernel.source.replace("kernel_1", "known")


def test_only_a_recorded_program_is_tried(found: tuple[list[Wish], MadeAhead]) -> None:
    """One of another computation has no kernel: who asks makes it himself, and is told why not."""
    wrong, plain = [found[1].made(found[0][k]) for k in (4, 5)]
    assert wrong is None or (wrong.kernel is None and wrong.drawn is None)
    assert plain is not None and plain.kernel is not None and plain.drawn is None
    wish = found[0][5]
    assert plain.kernel.source == made_here(wish, [wish.task.compute_dag.init_state])[0]


@pytest.mark.parametrize("workers, count", [(1, 3), (2, 2)])
def test_little_work_starts_no_process(workers: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_ahead, "WorkerPool", None)
    given = wishes()[:count]
    with closing(MadeAhead(workers)) as ahead:
        for wish in [*given, *given]:  # what is wished for twice is made once
            ahead.add(wish)
        assert ahead.made(given[0]) is None


def test_a_worker_that_fails_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(made_ahead, "task_payload", lambda task: {"dag": ["no", "computation"], "target": TARGET})
    given = wishes()
    with closing(MadeAhead(workers=2)) as ahead, caplog.at_level(logging.INFO, "ansor"):
        for wish in given:
            ahead.add(wish)
        assert ahead.made(given[1]) is None
    assert "no worker made its default program" in caplog.text


def test_what_is_dropped_is_made_by_nobody() -> None:
    given = [*wishes(), *[replace(wish, name=f"again_{k}") for k, wish in enumerate(wishes())]]
    with closing(MadeAhead(workers=2)) as ahead:
        for wish in given:
            ahead.add(wish)
        ahead.drop(given[-1])  # before anything is begun, which changes nothing
        assert isinstance(ahead.made(given[0]), Made)
        ahead.drop(given[-1])
        made = ahead.made(given[-1])
        assert made is None or made.kernel is not None  # unless it was begun already


def test_programs_that_were_drawn_are_remembered() -> None:
    known = Remembered(most=2)
    first, second, third = tasks()
    again = tasks()[0]
    for task in (first, second, again, third):
        known.keep(task, (task.compute_dag.init_state.steps,))
    assert known.programs(first) == (first.compute_dag.init_state.steps,) == known.programs(again)
    assert known.programs(second) is None and known.programs(third) is not None
    other = ansor.SearchTask(compute_dag=first.compute_dag, target="cuda -arch=sm_80")
    assert known.programs(other) is None


def test_what_is_made_follows_the_extensions_in_use() -> None:
    """Neither what is remembered nor a worker that was started before has programs of extensions that are left out."""
    task = ansor.SearchTask(compute_dag=matmul(64, 128, 96), target="c")
    with using("none"):
        wish = Wish(task)
        key, job, own = wish.key, wish.job(), [state.steps for state in drawn_of(task)]
    assert Wish(task).key != key
    assert list(Made.of(made_ahead.answer(job), "").drawn or ()) == own
    assert list(Made.of(made_ahead.answer(Wish(task).job()), "").drawn or ()) != own
