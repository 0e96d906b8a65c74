"""`ansor remeasure`: the best programs of a log once more, in turns."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.cli import remeasure as cli_remeasure
from ansor.cli.main import main
from ansor.measure import BuildResult
from ansor.measure.noise import Noise
from ansor.records.confirmed import SettledReader
from tests.ansor.fake_measure import ReadyBuilder

FIGURES = {0: [5e-3, 9e-3, 5e-3], 1: [3e-3, 2e-3, 3e-3], 2: [4e-3] * 3}


class Runner(ansor.LocalRunner):
    """Program 3 of the log is wrong here; in turns program 1 is the fastest."""

    places: dict[Any, int]

    def run(self, inp: ansor.MeasureInput, built: BuildResult) -> ansor.MeasureResult:
        if self.places[inp.steps] == 3:
            return ansor.MeasureResult((1e10,), 5, "output C: is off", 0.1, 1_700_000_000)
        return ansor.MeasureResult((1e-3,), 0, "", 0.1, 1_700_000_000)

    def compare(self, inputs: Sequence[ansor.MeasureInput], builds: Sequence[BuildResult]) -> list[list[float]]:
        return [FIGURES[self.places[inp.steps]] for inp in inputs]


@pytest.fixture
def log(
    tmp_path: Path, matmul_task: ansor.SearchTask, states: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Path:
    inputs = [ansor.MeasureInput(matmul_task, state) for state in states(5)]
    results = [ansor.MeasureResult(((k + 1) * 1e-4,), 0, "", 0.1, 1_700_000_000) for k in range(5)]
    other = ansor.SearchTask("matmul", (4, 4, 4), target="c")
    inputs.append(ansor.MeasureInput(other, other.compute_dag.init_state))
    results.append(results[0])
    path = tmp_path / "log.json"
    ansor.RecordToFile(path).callback(None, inputs, results)
    monkeypatch.setattr(Runner, "places", {inp.steps: k for k, inp in enumerate(inputs[:5])}, raising=False)
    monkeypatch.setattr(cli_remeasure, "LocalRunner", Runner)
    monkeypatch.setattr(cli_remeasure, "LocalBuilder", ReadyBuilder)
    monkeypatch.setattr(cli_remeasure, "noise", lambda: Noise((1e-3, 4e-3), 2, 1.0))
    return path


def test_the_best_few_in_turns_with_their_spread(
    log: Path, matmul_task: ansor.SearchTask, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["remeasure", str(log), "--best", "4", "--workload", matmul_task.workload_key]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("the machine is busy: ") and lines[0].endswith("; wait for a quiet machine")
    assert lines[1:] == [
        "matmul(13, 11, 7) for c",
        "  trial 4           WRONG_ANSWER: output C: is off   believed so far 400 us",
        "  trial 2           3 ms (2 ms to 3 ms in 3 figures)   believed so far 200 us",
        "  trial 3           4 ms (4 ms to 4 ms in 3 figures)   believed so far 300 us",
        "  trial 1           5 ms (5 ms to 9 ms in 3 figures)   believed so far 100 us",
        f"the figures are in {log}; best, apply_best and export go by the last that a quiet machine gave",
    ]
    reader = SettledReader(log)
    assert len(list(reader)) == 4 and len(reader.outranked) == 5
    inp, res = ansor.load_best_record(log, matmul_task.workload_key)
    assert inp is not None and res is not None and (res.cost, Runner.places[inp.steps]) == (3e-3, 1)
    assert len(list(ansor.load_records(log))) == 6


def test_figures_far_apart_are_said_to_be(
    log: Path, matmul_task: ansor.SearchTask, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["remeasure", str(log), "--best", "3", "--workload", matmul_task.workload_key]
    assert main(words) == 0 and "differ by a factor" not in capsys.readouterr().out
    best = ansor.load_best_record(log, matmul_task.workload_key)[1]
    monkeypatch.setitem(FIGURES, 0, [1e-3, 30e-3, 1e-3])
    assert main(words) == 0
    assert "  the machine was busy: the figures of one program differ by a factor of 30.0, " in capsys.readouterr().out
    again = ansor.load_best_record(log, matmul_task.workload_key)[1]
    assert best is not None and again is not None and best.cost == again.cost


@pytest.mark.parametrize(("words", "code", "sentence"), [
    (["--best", "0"], 2, "--best: a number of at least 1 is needed, got 0"),
    (["--workload", "conv"], 1, "has no workload 'conv'; its workloads are matmul"),
    (["--devices", "?"], 2, "--devices: all, or numbers separated by commas are needed"),
])  # fmt: skip
def test_what_is_refused(log: Path, words: list[str], code: int, sentence: str, refused: Any) -> None:
    refused(["remeasure", str(log), *words], sentence, code)


def test_logs_that_cannot_be_used(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed, empty = tmp_path / "log.json.gz", tmp_path / "empty"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    empty.write_text("")
    for path, code, sentence in ((packed, 3, "is packed by gzip"), (empty, 1, "holds no valid record")):
        assert main(["remeasure", str(path)]) == code
        assert sentence in capsys.readouterr().err


def test_a_workload_of_which_nothing_runs_fails(
    log: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], matmul_task: ansor.SearchTask
) -> None:
    monkeypatch.setattr(Runner, "places", dict.fromkeys(Runner.places, 3))
    assert main(["remeasure", str(log), "--workload", matmul_task.workload_key]) == 1
    assert capsys.readouterr().out.count("WRONG_ANSWER") == 5


@pytest.mark.long
def test_programs_of_a_search_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(tmp_path / "log.json")
    assert main(["tune", "matmul", "--shape", "24,20,36", "--trials", "4", "--log", log, "--verbose", "0"]) == 0
    capsys.readouterr()
    assert main(["remeasure", log, "--best", "2"]) == 0
    assert capsys.readouterr().out.count(" in 5 figures)") == 2
