"""The untuned program is measured once, as trial 0, and a best that is slower than it does not go unsaid."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cli import compare as cli_compare
from ansor.cli.main import main
from ansor.measure.finals import FINALISTS, Leader, finalists
from ansor.records.notes import UNTUNED
from ansor.records.untuned import untuned_of
from ansor.sketch.plain import untuned_state
from tests.ansor.fake_measure import ReadyBuilder
from tests.workloads import matmul


class Paired:
    """The untuned program takes `untuned` seconds, in turns too, every other one 2 ms."""

    def __init__(self, untuned: float) -> None:
        self.untuned = untuned
        self.ran: list[ansor.MeasureInput] = []
        self.compared: list[int] = []

    def _seconds(self, inp: ansor.MeasureInput) -> float:
        return self.untuned if inp.steps == untuned_state(inp.task).steps else 2e-3

    def run(self, inp: ansor.MeasureInput, built: Any) -> ansor.MeasureResult:
        self.ran.append(inp)
        return ansor.MeasureResult((self._seconds(inp),), 0, "", 0.1, 1_700_000_000)

    def compare(self, inputs: Sequence[ansor.MeasureInput], builds: Sequence[Any]) -> list[list[float]]:
        self.compared.append(len(inputs))
        return [[self._seconds(inp)] for inp in inputs]

    def close(self) -> None:
        pass


def tune(task: ansor.SearchTask, log: Path, runner: Any, trials: int = 8, resume: bool = True) -> None:
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0)
    recorder = ansor.RecordToFile(log)
    options = ansor.TuningOptions(
        trials, builder=ReadyBuilder(), runner=runner, measure_callbacks=[recorder], resume=resume
    )
    task.tune(options, search_policy=policy)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.json"


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_it_comes_first_is_no_trial_and_is_not_measured_again(
    target: str, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, runner = ansor.SearchTask(matmul, (16, 12, 20), target=target), Paired(50e-3)
    tune(task, log, runner)
    assert runner.ran[0].steps == untuned_state(task).steps and len(runner.ran) == 9
    assert "[0] untuned: 50 ms\n" in capsys.readouterr().out
    records = list(ansor.load_records(log))
    assert len(records) == 8 and all(inp.steps for inp, _ in records)
    kept = untuned_of(log, task)
    assert kept is not None and (kept[0].steps, kept[1].cost) == (runner.ran[0].steps, 50e-3)
    for resume in (True, False):
        tune(task, log, runner, resume=resume)
        assert f"[0] untuned: 50 ms, as {log} says\n" in capsys.readouterr().out
    assert sum(inp.steps == runner.ran[0].steps for inp in runner.ran) == 1
    assert runner.compared == [5, 5, 5]


def test_a_gpu_runs_it_with_a_thread_for_each_element() -> None:
    task = ansor.SearchTask(matmul, (16, 12, 20), target="cuda")
    assert "blockIdx.x" in str(te.lower(untuned_state(task), task.compute_dag.tensors))
    assert untuned_state(ansor.SearchTask(matmul, (16, 12, 20), target="c")).steps == ()


def test_a_runner_that_cannot_compare_is_not_asked(matmul_task: ansor.SearchTask, log: Path) -> None:
    class Single(Paired):
        compare = None

    runner = Single(50e-3)
    tune(matmul_task, log, runner)
    assert len(runner.ran) == 8 and UNTUNED not in log.read_text()


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
    assert "  untuned: 1 ms\n" in out and "in turns: 1 ms (1 ms to 1 ms in 1 figures)" in out
    assert runner.compared == [5]


def test_a_faster_best_says_nothing(
    matmul_task: ansor.SearchTask, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune(matmul_task, log, Paired(3e-3))
    assert "slower than untuned" not in capsys.readouterr().out
    assert matmul_task.best_state(log).steps


def test_the_untuned_program_counts_before_anything_was_confirmed(matmul_task: ansor.SearchTask, log: Path) -> None:
    inp = ansor.MeasureInput(matmul_task, matmul_task.compute_dag.init_state)
    ansor.RecordToFile(log).untuned(None, inp, ansor.MeasureResult((1e-3,), 0, "", 0.1, 1_700_000_000))
    assert matmul_task.best_state(log).steps == ()
    with log.open("a") as file:
        file.write(UNTUNED + '{"record": {"i": 3}}\n' + UNTUNED + "[]\n")
    kept = untuned_of(log, matmul_task)
    assert kept is not None and kept[1].cost == 1e-3


def leader(seconds: float, number: int, inp: ansor.MeasureInput) -> Leader:
    return seconds, number, inp


def test_who_is_timed_again(matmul_task: ansor.SearchTask, states: Any) -> None:
    inputs = [ansor.MeasureInput(matmul_task, state) for state in states(8)]
    own = [leader(1e-3 * (k + 1), k + 1, inp) for k, inp in enumerate(inputs[:5])]
    logged = [leader(9e-3, 0, inputs[6]), leader(1.5e-3, 0, inputs[7]), leader(1e-3, 0, inputs[0])]
    untuned = leader(2.9e-3, 0, ansor.MeasureInput(matmul_task, matmul_task.compute_dag.init_state))
    chosen = finalists(own, logged, untuned)
    assert [(cost, number) for cost, number, _ in chosen[:FINALISTS]] == [
        (1e-3, 1), (1.5e-3, 0), (2e-3, 2), (3e-3, 3), (4e-3, 4)
    ]  # fmt: skip
    assert [cost for cost, _, _ in chosen[FINALISTS:]] == [9e-3, 2.9e-3]
    assert finalists(own, [], leader(3.1e-3, 0, untuned[2])) == own
    assert finalists([], [], untuned) == []


def test_the_comparison_says_it_too(
    matmul_task: ansor.SearchTask, log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    tune(matmul_task, log, Paired(3e-3), 4)
    figures = {"best": [2e-3], "untuned": [1e-3], "numpy": [1e-3]}
    monkeypatch.setattr(cli_compare, "timed_in_turns", lambda runs, rounds: figures)
    cli_compare.compare(matmul_task, log, np.random.default_rng(0))
    assert "slower than untuned: the best program of the log takes longer" in capsys.readouterr().out
