"""The test file that docs/replacing_a_part.md shows runs in a folder of its own, by the command that stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "replacing_a_part.md").read_text()
MODEL = "import numpy as np\nimport ansor\nfrom ansor.cost_model.features import FEATURES\n\n\n"


def block_with(text: str) -> str:
    (found,) = [block for block in re.findall(r"^```\w+\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) if text in block]
    return str(found)


def run_elsewhere(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The command of the page, in a folder with a test file, with the repository in place of its example."""
    setting, *command = block_with("python -m pytest test_mine.py").split()
    name, _, path = setting.partition("=")
    assert path == "/path/of/the/repository" and command[0] == "python"
    return subprocess.run(
        [sys.executable, *command[1:], "-q", *options], cwd=folder, text=True, capture_output=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", name: str(ROOT)}, timeout=120, check=False,
    )  # fmt: skip


def test_a_suite_is_used_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(MODEL + block_with("class Linear("))
    (tmp_path / "test_mine.py").write_text(block_with("class TestLinear("))
    done = run_elsewhere(tmp_path, "-k", "finite or failures")
    assert done.returncode == 0 and re.search(r"^\d+ passed", done.stdout, re.MULTILINE), done.stdout + done.stderr


def test_a_suite_says_elsewhere_what_is_wrong(tmp_path: Path) -> None:
    """With the values of plain assertions, too, and without warnings."""
    (tmp_path / "test_mine.py").write_text(BROKEN)
    done = run_elsewhere(tmp_path, "-k", "left_alone or single_row or told_apart")
    assert "apply writes over the rows it is given; begin with rows.copy()" in done.stdout, done.stdout
    assert re.search(r"\(0, \d+\) == \(1, \d+\)", done.stdout) and "Warning" not in done.stdout, done.stdout


BROKEN = """
import pytest
from tests.conformance.mutation import MutationSuite
from tests.conformance.runner import BuilderSuite

class InPlace:
    name, weight = "in_place", 1.0

    def apply(self, rows, space, rng):
        rows[:, -1] += 1
        return (rows[:0] if len(rows) == 1 else rows), None

class TestInPlace(MutationSuite):
    @pytest.fixture
    def mutation(self):
        return InPlace()

class TestNothing(BuilderSuite):
    builds_nothing = True
"""
