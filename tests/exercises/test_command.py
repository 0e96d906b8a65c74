"""`ansor exercise`: starts, checks in a process with a time limit, hints, and remembers; nothing is overwritten."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansor.cli import exercise as cli_exercise
from ansor.cli.main import main as ansor_main
from exercises.core import child
from exercises.core.command import main
from exercises.core.exercise import catalogue, read_exercise
from exercises.core.progress import NAME, Progress, ProgressError, read_progress, write_progress

Printed = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_starter_is_copied_once(here: Path, capsys: Printed) -> None:
    assert main(["start", "window_sum"]) == 0
    file = here / "window_sum.py"
    assert file.read_text() == catalogue()["window_sum"].starter.read_text()
    file.write_text("mine")
    assert main(["start", "window_sum"]) == 2 and file.read_text() == "mine"
    assert "is there already, and is left alone" in capsys.readouterr().err


def test_checks_are_remembered(here: Path, capsys: Printed) -> None:
    main(["start", "split_guard"])
    assert main(["check", "split_guard"]) == 1
    told = capsys.readouterr().out
    assert "not yet. `split` still has its hole" in told and "ansor exercise hint split_guard" in told
    assert main(["check", "split_guard", str(catalogue()["split_guard"].solution)]) == 0
    assert main(["check", "split_guard"]) == 1, "what was solved stays solved"
    assert json.loads((here / NAME).read_text()) == {"tries": {"split_guard": 3}, "solved": ["split_guard"]}
    main(["list"])
    out = capsys.readouterr().out
    assert "split_guard" in out and "solved" in out and f"1 of {len(catalogue())} solved" in out


def test_bad_input_is_one_sentence(here: Path, capsys: Printed) -> None:
    for words, told in (
        (["check", "window_sums"], "is no exercise; window_sum?"),
        (["hint", "no such thing"], "`ansor exercise list` shows them"),
        (["check", "window_sum"], "`ansor exercise start window_sum` makes one"),
        (["start"], "are the actions"),
        (["start", "../window_sum"], "is no exercise"),
    ):
        assert main(words) == 2
        err = capsys.readouterr().err
        assert told in err and err.startswith("ansor exercise: ") and err.count("\n") == 1
    assert not (here / NAME).exists()


@pytest.mark.parametrize(
    "text", ["", "[]", '{"tries": {}}', '{"tries": {"a": "b"}, "solved": []}', '{"tries": 1, "solved": []}']
)
def test_a_foreign_file_of_progress_is_left_alone(here: Path, text: str, capsys: Printed) -> None:
    (here / NAME).write_text(text)
    with pytest.raises(ProgressError, match="no file of progress"):
        read_progress(here)
    assert main(["list"]) == 2 and (here / NAME).read_text() == text


def test_progress_comes_back(here: Path) -> None:
    progress = Progress().after("a", False).after("a", True).after("a", True).after("b", False)
    write_progress(here, progress)
    assert read_progress(here) == progress == Progress({"a": 3, "b": 1}, ("a",))


LOOP = "while True:\n    pass\n"


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def window_sum(x):\n    return x[0, 0] +\n", "line 2: SyntaxError"),
        ("def window_sum(x):\n    return y\n", "line 2: NameError: name 'y' is not defined"),
        ("def window_sum(x):\n    return x, x\n", "`window_sum` must give a tensor back"),
        ("def window_sum():\n    return 1\n", "the check cannot use what the file gives: TypeError"),
        ("print('hello')\nraise SystemExit(3)\n", "line 2: SystemExit: 3"),
        ("import os\nos._exit(0)\n", "ended with code 0 and without a verdict"),
        (LOOP, "it took longer than 2 seconds"),
    ],
)
def test_whatever_the_file_does_is_told(here: Path, text: str, told: str) -> None:
    (here / "answer.py").write_text(text)
    assert told in str(child.verdict_of_child("window_sum", here / "answer.py", limit=2 if text == LOOP else 60))


def test_a_starter_without_its_head_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text('"""Some day: this."""\n')
    with pytest.raises(ValueError, match="must begin with"):
        read_exercise(tmp_path / "bad.py")


def test_the_command_from_another_folder(here: Path) -> None:
    """Files of the learner that are named like modules change nothing."""
    (here / "exercises").mkdir()
    (here / "numpy.py").write_text("raise ImportError('not this one')\n")
    command = [sys.executable, str(cli_exercise.FOLDER), "hint", "window_sum"]
    done = subprocess.run(command, cwd=here, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "beginnings are there" in done.stdout, done.stderr


def test_ansor_hands_the_action_on(here: Path, capfd: Printed) -> None:
    assert ansor_main(["exercise", "start", "window_sum"]) == 0 and (here / "window_sum.py").is_file()
    assert ansor_main(["exercise", "check", "window_sum", "other.py"]) == 2
    assert "other.py: there is no such file" in capfd.readouterr().err


def test_an_installed_package_says_where_they_are(monkeypatch: pytest.MonkeyPatch, capsys: Printed) -> None:
    monkeypatch.setattr(cli_exercise, "FOLDER", Path("/nowhere/exercises"))
    assert ansor_main(["exercise", "list"]) == 2
    err = capsys.readouterr().err
    assert "the exercises: are in a checkout of the repository" in err and err.count("\n") == 1
