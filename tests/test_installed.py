"""The package as users install it: an sdist, a wheel made of it, empty environments, the main job elsewhere.

Packages come from where pip finds them; where none can be had, the tests are skipped with what pip said.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.imports import PACKAGES, ROOT

OLDEST, *OTHERS = "3.10", "3.11", "3.12", "3.13"
VERSIONS = [pytest.param(OLDEST), *[pytest.param(version, marks=pytest.mark.slow) for version in OTHERS]]
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"


def clean() -> dict[str, str]:
    """The environment without what would lead back to the checkout."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def call(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=cwd, env=clean(), capture_output=True, text=True, check=False)


def done(*command: str | Path, cwd: Path) -> str:
    """What a command prints that must succeed."""
    result = call(*command, cwd=cwd)
    assert result.returncode == 0, f"{command}: {result.stdout}{result.stderr}"
    return result.stdout


def interpreters(version: str) -> Iterator[Path]:
    """Where a Python of this version may be."""
    roots = [Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"]
    yield from [p / "bin" / "python" for root in roots if root.is_dir() for p in sorted(root.glob(f"{version}.*"))]
    yield from [Path(folder) / f"python{version}" for folder in os.get_exec_path()]


def environment(folder: Path, version: str) -> Path:
    """The Python of an empty environment, with a pip of today; skips where there is none of this version."""
    code = "import sys, venv; print(*sys.version_info[:2], sep='.')"
    for python in interpreters(version):
        if python.exists() and call(python, "-c", code, cwd=folder).stdout.strip() == version:
            done(python, "-m", "venv", folder / version, cwd=folder)
            made = folder / version / "bin" / "python"
            call(*install(made), "--upgrade", "pip", cwd=folder)
            return made
    pytest.skip(f"there is no Python {version} here")


def install(python: Path) -> tuple[str | Path, ...]:
    """What installs packages; modules are compiled when they are imported, which most never are."""
    return python, "-m", "pip", "install", "--no-compile"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an sdist of the files of the checkout, and the wheel that is made of it."""
    place = tmp_path_factory.mktemp("built")
    python = environment(place, f"{sys.version_info[0]}.{sys.version_info[1]}")
    had = call(*install(python), "setuptools>=77", "wheel", cwd=place)
    if had.returncode != 0:
        pytest.skip(f"packages cannot be had here: {had.stderr.strip().splitlines()[-1]}")
    for name in (*PACKAGES, "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        (place / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        done("cp", "-r", ROOT / name, place / "source" / name, cwd=place)
    done(python, "-c", BUILD, place, cwd=place / "source")
    sdist = next(place.glob("*.tar.gz"))
    done(python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", sdist, "-w", place, cwd=place)
    return place


def files() -> set[str]:
    """All files of the packages, Python or not."""
    found = [p for package in PACKAGES for p in (ROOT / package).rglob("*") if p.is_file()]
    return {p.relative_to(ROOT).as_posix() for p in found if "__pycache__" not in p.parts}


@pytest.mark.long
def test_nothing_is_left_out(built: Path) -> None:
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        inside = {name for name in wheel.namelist() if ".dist-info/" not in name}
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert inside == files() and files() - packed == set()


SCRIPT = """
import sys
import numpy as np
import ansor, codegen_c, codegen_cuda, relay_lite as relay, te_lite as te, vta_sim
from codegen_cuda.emulation.emulator import run
from relay_lite.runtime.graph_executor import GraphModule
for module in (ansor, codegen_c, codegen_cuda, relay, te, vta_sim):
    assert module.__file__.startswith(sys.prefix), module.__file__
a, b, c = np.ones((8, 16), "float32"), np.ones((16, 4), "float32"), np.zeros((8, 4), "float32")
ansor.load_module("made")(a, b, c)
assert (c == 16).all()
y = np.zeros(4, "float32")
run('extern "C" __global__ void k(float *y) { y[threadIdx.x] = threadIdx.x; }', "k", 1, 4, [y])
assert y.tolist() == [0, 1, 2, 3]
mod, params = relay.testing.get_workload("mlp", batch_size=1)
net = GraphModule(relay.build(mod, target="c", params=params)["default"](ansor.cpu()))
net.run(data=np.zeros((1, 28, 28, 1), "float32"))
assert abs(net.get_output(0).numpy().sum() - 1) < 1e-3
print("right")
"""


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_the_main_job_in_an_empty_environment(built: Path, tmp_path: Path, version: str) -> None:
    """A user's day: install, look around, tune, show, export; then what needs files that are no Python."""
    python = environment(tmp_path, version)
    done(*install(python), next(built.glob("*.whl")), cwd=tmp_path)
    here, ansor = tmp_path / "job", python.parent / "ansor"
    here.mkdir()
    assert "C compiler" in done(ansor, "doctor", cwd=here)
    out = done(ansor, "tune", "matmul", "--shape", "8,4,16", "--trials", "4", "--log", "log.json", cwd=here)
    assert "best of log.json: matmul(8, 4, 16) for c" in out
    assert "C.op.axis" in done(ansor, "best", "log.json", "--print", "schedule", cwd=here)
    assert "libmatmul.so" in done(ansor, "export", "log.json", "made", cwd=here)
    assert done(python, "-c", SCRIPT, cwd=here).strip() == "right"
