"""What a sentence tells people to type: commands that are found, packages that exist, names that are known."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansor.cli.main import main
from ansor.core.host import hints
from ansor.core.tasks.catalog import CATALOG
from relay_lite.testing.by_name import NETWORKS
from te_lite.expr.spelling import did_you_mean

ROOT = Path(__file__).parent.parent.parent


def extras() -> dict[str, set[str]]:
    """The names of the packages of each extra, as pyproject.toml has them."""
    text = (ROOT / "pyproject.toml").read_text()
    table = text.split("[project.optional-dependencies]")[1].split("\n[")[0]
    found = re.findall(r"^(\w+) = \[(.*?)\]$", table, re.MULTILINE | re.DOTALL)
    return {name: set(re.findall(r"\"([\w-]+)", body)) for name, body in found}


def test_what_is_to_be_installed_is_what_the_extras_have() -> None:
    for name, packages in hints.EXTRAS.items():
        assert set(packages) == extras()[name]


@pytest.mark.long
@pytest.mark.parametrize("started", ["module", "script"])
def test_the_hint_after_tuning_is_a_command_that_is_found(
    started: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `make tune` leaves it: nothing of the virtual environment is on PATH."""
    place = tmp_path / ".venv" / "bin"
    place.mkdir(parents=True)
    (place / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (place / "python").chmod(0o755)
    (place / "ansor").write_text(f"#!{sys.executable}\nfrom ansor.cli.main import run\nrun()\n")
    (place / "ansor").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(sys, "executable", str(place / "python"))
    argv0 = str(ROOT / "ansor" / "__main__.py") if started == "module" else str(place / "ansor")
    monkeypatch.setattr(sys, "argv", [argv0])
    command = hints.ansor()
    assert command == (".venv/bin/python -m ansor" if started == "module" else ".venv/bin/ansor")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(f"{command} best --help", shell=True, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "--print" in done.stdout
    monkeypatch.setenv("PATH", f"{place}:/usr/bin")
    assert hints.ansor() == ("python -m ansor" if started == "module" else "ansor")
    assert hints.install("onnx") == "python -m pip install onnx"


def test_words_are_quoted() -> None:
    assert shlex.split(hints.ansor("best", "my log.json"))[-2:] == ["best", "my log.json"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [("resnet18", "resnet-18"), ("ResNet_18", "resnet-18"), ("mobilenet-v2", "mobilenet_v2"), ("bert", "bert-base"),
     ("gpt-2", "gpt2"), ("squeezenet1.1", "squeezenet_v1.1"), ("zzz", None)],
)  # fmt: skip
def test_names_that_are_meant(name: str, meant: str | None) -> None:
    assert did_you_mean(name, NETWORKS) == ("" if meant is None else f"did you mean {meant}? ")


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["tune-network", "resnet18", "--trials", "0"], "did you mean resnet-18? networks are resnet-18, "),
        (["tune", "matmull"], "did you mean matmul? they are conv2d, "),
        (["tune", "conv2d-nhwc"], "did you mean conv2d_nhwc? they are conv2d, "),
        (["tune", "matmul", "--target", "cude"], "did you mean cuda? known targets are c, "),
    ],
)
def test_a_name_that_is_nearly_right(command: list[str], text: str, refused: Any) -> None:
    err = refused(command, text)
    assert all(name in err for name in CATALOG) or "networks" in err or "targets" in err


def test_a_missing_compiler_is_said_first(tmp_path, monkeypatch, capsys):  # type: ignore[no-untyped-def]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    for command in (["tune", "matmul", "--trials", "3"], ["tune-network", "mlp", "--trials", "3"]):
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert out == "" and err == (
            "ansor: C compiler: gcc or clang is not on PATH; install gcc, or name a compiler in CC\n"
        )
    assert list(tmp_path.iterdir()) == []
