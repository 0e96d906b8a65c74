"""A machine that is too busy to time programs on is told so, in a sentence."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import ansor
from ansor.cli import doctor as cli_doctor
from ansor.cli.main import main
from ansor.measure.noise import Noise, noise, unsteady, warning
from ansor.policy import task_actions
from tests.ansor.fake_measure import ReadyBuilder

QUIET = Noise((1e-3,) * 20, 2, 0.3)
BUSY = Noise((*[1e-3] * 10, *[4e-3] * 10), 2, 3.14)
SENTENCE = "the machine is busy: the same work took 1 ms to 4 ms (median 2.5 ms), load average 3.1 on 2 cores; "


def test_the_spread_decides() -> None:
    assert not QUIET.noisy and warning(QUIET) == ""
    assert BUSY.noisy and warning(BUSY).startswith(SENTENCE) and "\n" not in warning(BUSY)
    assert not Noise((*[1e-3] * 19, 9e-3), 2, 0.3).noisy
    steady = Noise(QUIET.figures, 2, 2.6)
    assert steady.noisy and "are those of a busy machine" in warning(steady) and not Noise(QUIET.figures, 4, 2.6).noisy
    assert Noise((1e-3, 1.5e-3), 1, 0.0).noisy and "0.0 on 1 core;" in warning(Noise((1e-3, 1.5e-3), 1, 0.0))


def test_it_looks_for_as_long_as_it_is_asked_to() -> None:
    ticks = itertools.count(0, 0.25)
    found = noise(1.0, lambda: next(ticks))
    assert found.figures == (0.25,) * 4 and found.spread == 0
    real = noise(0.02)
    assert len(real.figures) >= 2 and min(real.figures) > 0 and real.load >= 0


@pytest.mark.parametrize(("found", "head"), [(QUIET, "ok       quietness     the same"), (BUSY, "noisy    quietness")])
def test_doctor_says_how_quiet_it_is(
    found: Noise, head: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli_doctor, "noise", lambda: found)
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(head)


def test_figures_of_one_program_that_are_far_apart_are_not_ranked() -> None:
    assert unsteady([[1.0, 1.9], [], [5.0, 5.0]]) == ""
    law = "the figures of one program differ by a factor of 3.0, so that the ranking is not to be trusted"
    assert unsteady([[1.0, 1.9], [3.0, 1.0]]) == f"the machine was busy: {law}"


class Quick(ansor.LocalRunner):
    """Runs nothing."""

    def run(self, inp: object, built: object) -> ansor.MeasureResult:
        return ansor.MeasureResult((1e-3,), 0, "", 0.1, 1_700_000_000)

    def compare(self, inputs: object, builds: Sequence[object]) -> list[list[float]]:
        return [[] for _ in builds]


@pytest.mark.parametrize(
    ("target", "verbose", "trials", "said"), [("c", 1, 2, 1), ("c", 0, 2, 0), ("c", 1, 0, 0), ("cuda", 1, 2, 0)]
)
def test_a_search_on_the_processor_begins_with_a_look(
    target: str, verbose: int, trials: int, said: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], states: Callable[..., object],
) -> None:  # fmt: skip
    looks: list[Noise] = []
    monkeypatch.setattr(task_actions, "noise", lambda: looks.append(BUSY) or BUSY)
    monkeypatch.setattr("codegen_cuda.backend.CudaBackend.check", lambda self, target: None)
    task = ansor.SearchTask("matmul", (13, 11, 7), target=target)
    options = ansor.TuningOptions(trials, builder=ReadyBuilder(), runner=Quick(), verbose=verbose)
    task.tune(options, ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0))
    assert len(looks) == said and capsys.readouterr().out.count(SENTENCE) == said


def test_a_search_of_several_tasks_begins_with_a_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(task_actions, "noise", lambda: BUSY)
    task = ansor.SearchTask("matmul", (13, 11, 7), target="c")
    recorder = ansor.RecordToFile(tmp_path / "mine.json")
    options = ansor.TuningOptions(1, builder=ReadyBuilder(), runner=Quick(), verbose=1, measure_callbacks=[recorder])
    ansor.TaskScheduler([task], callbacks=[]).tune(options, "sketch.random")
    out = capsys.readouterr().out
    assert out.count(SENTENCE) == 1 and f"remeasure {recorder.filename}` later" in out
