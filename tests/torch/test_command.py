"""`ansor tune-network --torch MODULE:FUNCTION` tunes a model of PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansor.cli.main import main

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
MODEL = """
import torch

def small():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(12, 9), torch.nn.GELU()).eval(), (torch.randn(5, 12),)

def branching():
    class Branching(torch.nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x
    return Branching().eval(), (torch.randn(3),)
"""


def test_a_function_that_gives_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "models_of_mine.py").write_text(MODEL)
    place, log = str(tmp_path / "models_of_mine.py"), str(tmp_path / "log.json")
    assert main(["tune-network", "--torch", f"{place}:small", "--trials", "3", "--log", log]) == 0
    assert "small-NHWC: results agree with the reference" in capsys.readouterr().out
    assert main(["tune-network", "--torch", f"{place}:branching"]) != 0
    assert "the model must be traceable by torch.export" in capsys.readouterr().err
