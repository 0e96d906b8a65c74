"""The examples run as a user would run them, with small budgets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import small_searches

ROOT = Path(__file__).parent.parent
PATHS = os.pathsep.join(path or os.getcwd() for path in sys.path)


def run(script: str, folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        small_searches.command(ROOT / "examples" / script, *args),
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def records_in(log: Path) -> int:
    """The records of a log, which has lines about itself, too."""
    return sum(not line.startswith("#") for line in log.read_text().splitlines())


@pytest.mark.long
def test_tutorial_page(tmp_path: Path) -> None:
    done = run("tutorials/tune_conv2d_layer.py", tmp_path, ANSOR_TRIALS="6")
    assert done.returncode == 0, done.stderr
    for text in (
        "conv2d_nchw(nn, ff, yy, xx) += (pad_temp[nn, rc, (yy + ry), (xx + rx)]*kernel[ff, rc, ry, rx])",
        "Execution time of this operator:",
        "s[T_add].compute_inline()",
        "for (int64_t ",
        "Resume search:",
    ):
        assert text in done.stdout
    assert records_in(tmp_path / "conv2d.json") == 11


@pytest.mark.long
def test_two_layers(tmp_path: Path) -> None:
    done = run("tune_two_layers.py", tmp_path, ANSOR_TRIALS="4")
    assert done.returncode == 0, done.stderr
    assert "Both layers compute what NumPy does" in done.stdout
    assert done.stdout.count("[ Task Scheduler ]") >= 4
    assert "\tTrials: 8\t" in done.stdout and done.stdout.count("loaded 2 measured programs") == 2
    assert records_in(tmp_path / "two_layers.json") == 8
    assert (tmp_path / "two_layers.tsv").read_text().splitlines()[-1].endswith("\tTrials\t8")


SEAMS = {
    "custom_backend": "",
    "custom_callback": r"trial 1: [0-9.]+ us\n(trial \d+: [0-9.]+ us\n)+",
    "custom_cost_model": r"(told of 8 programs, the best takes [0-9.]+ us\n){2}",
    "custom_mutation": r"4 mutations: [0-9.]+ us\n5 mutations: [0-9.]+ us\n",
    "custom_policy": r"( +\d+ threads: [0-9.]+ us\n){5,}",
    "custom_runner": r"the shortest of 1: \d+ characters\nthe shortest of 40: \d+ characters\n",
    "custom_sketch_rule": r"[^=]*for j.0 \(None\)[^=]*= \.\.\.\n\nThe best of 20 programs:[^=]*C = \.\.\.\n+",
    "custom_step": r"Placeholder: A\nB peel: i.0\n(.*\n)*the same in the interpreter and in C\n",
    "custom_tuner": r"RandomTuner: [0-9.]+ GFLOPS with .*\nWalk: [0-9.]+ GFLOPS with .*\n",
}


WHOLE_SEARCHES = ("custom_cost_model", "custom_mutation")


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] if n in WHOLE_SEARCHES else []) for n in SEAMS]
)
def test_seams(name: str, tmp_path: Path) -> None:
    """A part of the search replaced, on a machine without a GPU."""
    done = run(f"seams/{name}.py", tmp_path, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(SEAMS[name], done.stdout), done.stdout


def test_every_seam_runs_here() -> None:
    assert {p.stem for p in (ROOT / "examples" / "seams").glob("*.py")} == set(SEAMS)


def test_no_gpu_is_one_sentence(tmp_path: Path) -> None:
    done = run("tutorials/tune_conv2d_layer.py", tmp_path, "cuda", ANSOR_TRIALS="2", CUDA_VISIBLE_DEVICES="")
    assert done.returncode != 0
    assert "target 'cuda' needs" in done.stderr.splitlines()[-1]
