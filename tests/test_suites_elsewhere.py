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


def test_a_suite_is_used_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "my_model.py").write_text(MODEL + block_with("class Linear("))
    (tmp_path / "test_mine.py").write_text(block_with("class TestLinear("))
    setting, *command = block_with("python -m pytest test_mine.py").split()
    name, _, path = setting.partition("=")
    assert path == "/path/of/the/repository" and command[0] == "python"
    done = subprocess.run(
        [sys.executable, *command[1:], "-q", "-k", "finite or failures"], cwd=tmp_path, text=True, capture_output=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", name: str(ROOT)}, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and re.search(r"^\d+ passed", done.stdout, re.MULTILINE), done.stdout + done.stderr
