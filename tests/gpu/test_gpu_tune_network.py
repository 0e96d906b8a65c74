"""Tuning whole networks on a GPU: the command, and the tutorial's page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ansor.cli.main import main
from tests.test_examples import PATHS, run

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)


def test_a_network_with_large_winograd_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ResNet-18 on small pictures: every task gets a trial, and the result is that of the reference."""
    monkeypatch.chdir(tmp_path)
    command = ["tune-network", "resnet-18", "--target", "cuda", "--image-size", "64", "--log", "log.json"]
    assert main([*command, "--trials", "30"]) == 0
    out = capsys.readouterr().out
    assert "results agree with the reference" in out and "(limit 1e-03)" in out and "too little" not in out
    assert re.search(r"Estimated total latency: [\d.]+ ms  Measured end to end: [\d.]+ ms  Difference", out)
    print(out[out.index("Execution time summary") :])


def test_tutorial_page(tmp_path: Path) -> None:
    small = {"ANSOR_IMAGE": "64", "ANSOR_TRIALS": "30", "PYTHONPATH": PATHS}
    done = run("tutorials/tune_network_cuda.py", tmp_path, "cuda", **small)
    assert done.returncode == 0, done.stderr
    assert "\tTrials: 32\t" in done.stdout and "Execution time summary:" in done.stdout
    print(done.stdout[done.stdout.index("Execution time summary") :][:200])
