"""Ctrl-C while the command is still being imported: no traceback, and the exit code that it has later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SLOW = "import pathlib, time\npathlib.Path('importing').touch()\ntime.sleep(60)\n"


def interrupted(command: list[str], here: Path) -> tuple[int, str]:
    """The exit code and the error stream of a command that gets Ctrl-C while it imports NumPy."""
    (here / "numpy.py").write_text(SLOW)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(ROOT)])}
    process = subprocess.Popen(
        [sys.executable, *command], env=env, cwd=here, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    end = time.monotonic() + 60
    while not (here / "importing").exists() and time.monotonic() < end:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    return process.returncode, err


@pytest.mark.parametrize("command", [["-m", "ansor", "tune", "matmul"], ["ansor", "doctor"]])
def test_the_command_ends_quietly(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "ansor").write_text("from ansor.cli.main import run\nrun()\n")
    assert interrupted(command, tmp_path) == (130, "")


def test_another_program_is_left_as_it_is(tmp_path: Path) -> None:
    """It says where it was: a module in C that is interrupted while it is imported says so by an ImportError."""
    code, err = interrupted(["-c", "import ansor", "-m", "ansor"], tmp_path)
    assert code not in (0, 130) and err.startswith("Traceback")
