"""A check in a process of its own: what the learner wrote may crash, or never end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from .exercise import HOME
from .verdict import verdict

LIMIT = 120
"""Seconds that a check may take."""


def judge(name: str, path: Path, out: Path) -> None:
    """In the child: write the verdict on a file as JSON."""
    out.write_text(json.dumps({"wrong": verdict(name, path)}))


def verdict_of_child(name: str, path: Path, limit: float = LIMIT) -> str | None:
    """As `verdict`, in a child process that is killed with all that it started after `limit` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "verdict.json"
        command = [sys.executable, str(HOME), "judge", name, str(path.resolve()), str(out)]
        child = subprocess.Popen(command, start_new_session=True)
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            return f"it took longer than {limit:g} seconds: is there a loop that does not end?"
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        if not out.is_file():
            return f"the process that ran it ended with code {child.returncode} and without a verdict"
        wrong: str | None = json.loads(out.read_text())["wrong"]
        return wrong
