"""A function that was edited after it was tuned: its old records are not taken for records of the new one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.cli.main import main
from ansor.cli.user_code import run_module, workload_key

CODE = """
import ansor
import te_lite as te

@ansor.register_workload
def edited(n):
    a, b = te.placeholder((n, 4), name="A"), te.placeholder((4, 8), name="B")
    k = te.reduce_axis((0, 4), name="k")
    return [a, b, te.compute((n, 8), lambda i, j: te.sum({product}, axis=k), name="{name}")]
"""
THEN, NOW = "a[i, k] * b[k, j]", "(a[i, k] + a[i, k]) * (b[k, j] * 0.5)"
ROOT = Path(__file__).parent.parent.parent
DIFFERENCE = (
    "`C(i, j) += (A[i, k]*B[k, j])`, where the registered function now gives"
    " `C(i, j) += ((A[i, k] + A[i, k])*(B[k, j]*0.5f))`"
)
SKIPPED = f"6 records of edited(6) skipped: they are of {DIFFERENCE}; without the function (no --import of it)"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The log of the workload as it was, tuned with a backend for which every program takes a millisecond."""
    folder = tmp_path_factory.mktemp("tuned")
    before = ansor.register_backend("c", "tests.ansor.faulty_backend")
    try:
        with pytest.MonkeyPatch.context() as patch:
            (folder / "script").write_text("good")
            patch.setenv("FAULTS", str(folder))
            patch.chdir(folder)
            patch.setattr(sys, "path", list(sys.path))
            write(folder, THEN)
            assert main(tune()) == 0
            return (folder / "edited.json").read_text()
    finally:
        ansor.register_backend("c", before)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: Any, tuned: str) -> Path:
    """A folder with a workload that was tuned, and then edited."""
    faults(["good"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "edited.json").write_text(tuned)
    write(tmp_path, NOW)
    return tmp_path


def write(folder: Path, product: str, name: str = "C") -> None:
    (folder / "mine_edited.py").write_text(CODE.format(product=product, name=name))
    sys.modules.pop("mine_edited", None)


def tune(*more: str) -> list[str]:
    return ["tune", "mine_edited.py:edited", "--args", "6", "--trials", "6", "--verbose", "0", "--seed", "0", *more]


@pytest.mark.parametrize("command", ["best", "export", "remeasure", "log"])
def test_old_records_are_skipped_with_a_sentence(
    command: str, place: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    capsys.readouterr()
    more = ["out"] if command == "export" else []
    code = main([command, "edited.json", *more, "--import", "mine_edited.py"])
    said = "".join(capsys.readouterr()) + caplog.text
    assert SKIPPED in said
    assert code != 0 and not Path("out").exists()


@pytest.mark.long
def test_without_the_function_the_log_is_as_it_was(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    run = subprocess.run(
        [sys.executable, "-m", "ansor", "best", "edited.json", "--print", "c"], capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert run.returncode == 0 and "C[6, 8] float32" in run.stdout and "edited(6) for c: 1 ms" in run.stdout


@pytest.mark.long
@pytest.mark.parametrize("more", [[], ["--no-resume"]])
def test_the_log_is_not_written_to(more: list[str], place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("edited.json").read_bytes()
    assert main(tune(*more)) != 0
    assert "edited.json: has records of edited(6) already: they are of `C(i, j)" in capsys.readouterr().err
    assert Path("edited.json").read_bytes() == before
    assert main(tune("--log", "new.json")) == 0
    assert len(list(ansor.load_records("new.json"))) == 6


def test_a_scheduler_does_not_write_to_it_either(place: Path) -> None:
    run_module("mine_edited.py")
    task = ansor.SearchTask(workload_key=workload_key("mine_edited:edited", "6"), target="c")
    options = ansor.TuningOptions(6, measure_callbacks=[ansor.RecordToFile("edited.json")], verbose=0)
    with pytest.raises(ansor.TaskError, match=r"has records of edited\(6\) already"):
        ansor.TaskScheduler([task]).tune(options)


@pytest.mark.long
def test_records_after_another_description_are_read(place: Path) -> None:
    """Two logs of one key in one file: each description is for the records behind it."""
    assert main(tune("--log", "new.json")) == 0
    both = Path("edited.json").read_text() + Path("new.json").read_text()
    Path("both.json").write_text(both + Path("edited.json").read_text())
    assert len(list(ansor.load_records("both.json"))) == 6
    reader = ansor.RecordReader("both.json")
    assert len(list(reader)) == 6 and "12 records of edited(6) skipped" in reader.complaint()


def test_what_only_has_other_names_is_the_same(place: Path) -> None:
    write(place, THEN, "Result")
    run_module("mine_edited.py")
    assert len(list(ansor.load_records("edited.json"))) == 6 and main(tune("--trials", "8")) == 0
    assert len(list(ansor.load_records("edited.json"))) == 8
