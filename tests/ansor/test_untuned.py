"""What nobody searched for is measured once, as trial 0, and a best that is slower than it does not go unsaid."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cli import compare as cli_compare
from ansor.cli.main import main
from ansor.core.tasks.measure_values import Baseline
from ansor.measure.finals import Leader, finalists, near_after_all
from ansor.policy import default_schedule
from ansor.policy.default_schedule import default_state
from ansor.records.noted_records import baselines_of
from ansor.records.notes import DEFAULT, UNTUNED
from ansor.sketch.plain import untuned_state
from tests.ansor.default_programs import default_of
from tests.ansor.fake_measure import InTurns, tune
from tests.workloads import matmul


class Paired(InTurns):
    """The untuned program and the default schedule take so many seconds, in turns too, every other one 2 ms."""

    def __init__(self, untuned: float, default: float = 60e-3) -> None:
        super().__init__()
        self.untuned, self.default = untuned, default

    def seconds(self, inp: ansor.MeasureInput) -> float:
        known = {untuned_state(inp.task).steps: self.untuned, default_of(inp.task).steps: self.default}
        return known.get(inp.steps, 2e-3)

    def in_turns(self, k: int, inp: ansor.MeasureInput) -> float:
        return self.seconds(inp)


def default_steps(task: ansor.SearchTask) -> tuple[Any, ...]:
    state = default_state(task)
    assert state is not None
    return state.steps


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.json"


@pytest.mark.long
@pytest.mark.parametrize("target", ["c", "cuda"])
def test_they_come_first_are_no_trials_and_are_not_measured_again(
    target: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, runner = ansor.SearchTask(matmul, (16, 12, 20), target=target), Paired(50e-3)
    tune(task, log, runner)
    first = [default_steps(task), untuned_state(task).steps]
    assert [inp.steps for inp in runner.ran[:2]] == first and len(runner.ran) == 10
    assert "[0] default schedule: 60 ms\n[0] untuned: 50 ms\n" in capsys.readouterr().out
    records = list(ansor.load_records(log))
    assert len(records) == 8 and all(inp.steps for inp, _ in records)
    kept = baselines_of(log, task)
    assert [(inp.steps, res.cost) for inp, res in kept.values()] == [(first[0], 60e-3), (first[1], 50e-3)]
    for resume in (True, False):
        tune(task, log, runner, resume=resume)
        said = capsys.readouterr().out
        assert f"[0] default schedule: 60 ms, as {log} says\n[0] untuned: 50 ms, as {log} says\n" in said
    assert sum(inp.steps in first for inp in runner.ran) == 2
    assert [len(inputs) for inputs in runner.compared] == [5, 5, 5]


def test_a_gpu_runs_it_with_a_thread_for_each_element() -> None:
    task = ansor.SearchTask(matmul, (16, 12, 20), target="cuda")
    assert "blockIdx.x" in str(te.lower(untuned_state(task), task.compute_dag.tensors))
    assert untuned_state(ansor.SearchTask(matmul, (16, 12, 20), target="c")).steps == ()


def test_a_runner_that_cannot_compare_is_not_asked(matmul_task: ansor.SearchTask, log: Path) -> None:
    class Single(Paired):
        compare = None

    runner = Single(50e-3)
    tune(matmul_task, log, runner)
    assert len(runner.ran) == 8 and UNTUNED not in log.read_text() and DEFAULT not in log.read_text()


def test_a_log_that_has_only_the_untuned_one_gets_the_other(matmul_task: ansor.SearchTask, log: Path) -> None:
    """As logs were written before there was a default schedule in them."""
    tune(matmul_task, log, Paired(50e-3))
    log.write_text("".join(line for line in log.read_text().splitlines(True) if not line.startswith(DEFAULT)))
    runner = Paired(50e-3)
    tune(matmul_task, log, runner, trials=4)
    assert len(runner.ran) == 5 and runner.ran[0].steps == default_steps(matmul_task)
    assert list(baselines_of(log, matmul_task)) == [Baseline.UNTUNED, Baseline.DEFAULT]


def test_a_default_schedule_that_is_the_untuned_program_is_not_measured(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, runner = ansor.SearchTask(matmul, (16, 12, 20), target="cuda"), Paired(50e-3)
    monkeypatch.setattr(default_schedule, "default_states", lambda task: iter([untuned_state(task)]))
    assert default_state(task) is None
    monkeypatch.setattr(Paired, "seconds", lambda self, inp: 2e-3)
    tune(task, log, runner)
    assert len(runner.ran) == 9 and list(baselines_of(log, task)) == [Baseline.UNTUNED]


def test_the_default_schedule_is_the_first_that_lowers(
    matmul_task: ansor.SearchTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = default_schedule.default_states(matmul_task)

    def refusing(state: te.State, *rest: Any) -> te.LoweredFunc:
        if state.steps != second.steps:
            raise te.LowerError("refused")
        return te.lower(state, *rest)

    assert default_steps(matmul_task) == first.steps
    monkeypatch.setattr(default_schedule, "lower", refusing)
    assert default_steps(matmul_task) == second.steps
    monkeypatch.setattr(default_schedule, "default_states", lambda task: iter([first]))
    assert default_state(matmul_task) is None


@pytest.mark.parametrize(("columns", "unrolled"), [(32768, 16), (1024, 0)])
def test_wide_tiles_are_unrolled_a_little(columns: int, unrolled: int) -> None:
    """A thread of the larger product has 8 x 16 sums; the smaller one has too few of them for that."""
    tensors = matmul(128, columns, 16384)
    first = next(default_schedule.drawn_states(ansor.SearchTask(compute_dag=tensors, target="cuda -arch=sm_90")))
    assert max(stage.auto_unroll_max_step for stage in first.stages) == unrolled


def test_slower_than_untuned_is_said_and_the_untuned_program_is_the_best(
    matmul_task: ansor.SearchTask, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = Paired(1e-3)
    tune(matmul_task, log, runner)
    text = "slower than untuned: no program that was searched for is faster than the untuned one, which took 1 ms\n"
    assert text in capsys.readouterr().out
    assert matmul_task.best_state(log).steps == ()
    assert main(["best", str(log)]) == 0
    assert capsys.readouterr().out == "matmul(13, 11, 7) for c: 1 ms  0.0 GFLOP/s  (untuned)\n"
    assert main(["log", str(log)]) == 0
    out = capsys.readouterr().out
    assert "  untuned: 1 ms\n" in out and "in turns: 1 ms (1 ms to 1 ms in 3 figures)" in out
    assert [len(inputs) for inputs in runner.compared] == [5 + 1]


@pytest.mark.parametrize(("untuned", "near"), [(50e-3, 1), (1.5e-3, 2)])
def test_slower_than_the_default_schedule_is_said_and_that_is_the_best(
    untuned: float, near: int, matmul_task: ansor.SearchTask, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two baselines that no program is faster than the faster one is named."""
    runner = Paired(untuned, 1e-3)
    tune(matmul_task, log, runner)
    text = "slower than default: no program that was searched for is faster than the default schedule, which took 1 ms"
    out = capsys.readouterr().out
    assert f"{text}\n" in out and "the untuned one" not in out
    assert matmul_task.best_state(log).steps == default_steps(matmul_task)
    assert [len(inputs) for inputs in runner.compared] == [5 + near]
    assert main(["best", str(log)]) == 0
    assert capsys.readouterr().out == "matmul(13, 11, 7) for c: 1 ms  0.0 GFLOP/s  (default schedule)\n"
    assert main(["log", str(log)]) == 0
    out = capsys.readouterr().out
    took = "  best, export and apply_best take: 1 ms in turns, the default schedule\n"
    assert f"in 3 figures), the default schedule\n{took}  untuned: {1e3 * untuned:g} ms\n" in out
    assert "\n  default schedule: 1 ms\n" in out


def test_a_faster_best_says_nothing(
    matmul_task: ansor.SearchTask, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune(matmul_task, log, Paired(3e-3))
    assert "slower than" not in capsys.readouterr().out
    assert matmul_task.best_state(log).steps not in ((), default_steps(matmul_task))


@pytest.mark.parametrize("which", Baseline)
def test_a_baseline_counts_before_anything_was_confirmed(
    which: Baseline, matmul_task: ansor.SearchTask, log: Path
) -> None:
    inp = ansor.MeasureInput(matmul_task, matmul_task.compute_dag.init_state)
    ansor.RecordToFile(log).baseline(None, which, inp, ansor.MeasureResult((1e-3,), 0, "", 0.1, 1_700_000_000))
    assert matmul_task.best_state(log).steps == ()
    with log.open("a") as file:
        for kind in (UNTUNED, DEFAULT):
            file.write(kind + '{"record": {"i": 3}}\n' + kind + "[]\n")
    assert {found: res.cost for found, (_, res) in baselines_of(log, matmul_task).items()} == {which: 1e-3}


def leader(seconds: float, number: int, inp: ansor.MeasureInput) -> Leader:
    return seconds, number, inp


def test_who_is_timed_again(matmul_task: ansor.SearchTask, states: Any) -> None:
    inputs = [ansor.MeasureInput(matmul_task, state) for state in states(8)]
    own = [leader(1e-3 * (k + 1), k + 1, inp) for k, inp in enumerate(inputs[:5])]
    logged = [leader(9e-3, 0, inputs[6]), leader(1.5e-3, 0, inputs[7]), leader(1e-3, 0, inputs[0])]
    untuned = leader(2.9e-3, 0, ansor.MeasureInput(matmul_task, matmul_task.compute_dag.init_state))
    default = leader(2.8e-3, 0, inputs[5])
    chosen = finalists(own, logged, [untuned, default], 5)
    assert [(cost, number) for cost, number, _ in chosen[:5]] == [
        (1e-3, 1), (1.5e-3, 0), (2e-3, 2), (3e-3, 3), (4e-3, 4)
    ]  # fmt: skip
    assert [cost for cost, _, _ in chosen[5:]] == [9e-3, 2.9e-3, 2.8e-3]
    assert finalists(own, [], [leader(3.1e-3, 0, untuned[2]), default], 5) == [*own, default]
    assert finalists(own, [], [leader(1e-3, 0, inputs[0])], 5) == own
    assert finalists([], [], [untuned, default], 5) == []
    assert near_after_all([own[0], untuned], own[0], [untuned, default]) == [default]
    assert near_after_all([own[0]], leader(0.9e-3, 1, inputs[0]), [untuned, default]) == []


@pytest.mark.long
def test_the_comparison_says_it_too(
    matmul_task: ansor.SearchTask, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    tune(matmul_task, log, Paired(3e-3), 4)
    figures = {"best": [2e-3], "untuned": [1e-3], "numpy": [1e-3]}
    monkeypatch.setattr(cli_compare, "timed_in_turns", lambda runs, rounds: figures)
    monkeypatch.setattr(cli_compare, "far_apart", lambda factor: False)  # it does not really take so long
    cli_compare.compare(matmul_task, log, np.random.default_rng(0))
    assert "slower than untuned: the best program of the log takes longer" in capsys.readouterr().out
    for runner, text in (
        (Paired(1e-3), "untuned: the best program of the log is the untuned one"),
        (Paired(3e-3, 5e-4), "default: the best program of the log is the default schedule"),
    ):
        log.unlink()
        tune(matmul_task, log, runner, 4)
        cli_compare.compare(matmul_task, log, np.random.default_rng(0))
        assert f"slower than {text}\n" in capsys.readouterr().out
