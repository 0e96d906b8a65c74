"""What a sentence tells people to type: commands as they are found here, packages that exist, and versions."""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCES = "from its sources"


def version_of(package: str) -> str:
    """The version of a package, or that it is used from its sources, where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return SOURCES


EXTRAS: dict[str, tuple[str, ...]] = {
    "cuda": ("pycuda", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime", "nvidia-cuda-cccl"),
    "onnx": ("onnx",),
    "cluster": ("ray",),
    "data": ("optuna",),
    "report": ("matplotlib", "jinja2"),
    "torch": ("torch",),
}
"""The packages of the extras in pyproject.toml: what can be installed whether this one was, or not."""

_run_first: list[str] = []


@contextmanager
def one_command() -> Iterator[None]:
    """While one command runs: what it is told to run first (`told_first`) is forgotten when it ends."""
    try:
        yield
    finally:
        _run_first.clear()


def told_first(module: str) -> None:
    """A module or file registered a target: whatever command is hinted at must run it first, too."""
    if module not in _run_first:
        _run_first.append(module)


def _short(path: str) -> str:
    """A path as it is typed here: relative where it lies below the current folder."""
    relative = os.path.relpath(path)
    return shlex.quote(path if relative.startswith("..") else relative)


def python() -> str:
    """The interpreter that runs this, as a command."""
    found = shutil.which("python")
    return "python" if found is not None and os.path.samefile(found, sys.executable) else _short(sys.executable)


def ansor(*words: str) -> str:
    """A line for the shell: the `ansor` command as it is found here (by name, path or as a module), and words."""
    first = [word for module in _run_first for word in ("--import", module)] if words else []
    return " ".join([_ansor(), *map(shlex.quote, [*words, *first])])


def _ansor() -> str:
    beside = Path(sys.executable).with_name("ansor")
    found = shutil.which("ansor")
    if Path(sys.argv[0]).name == "__main__.py" or not beside.exists():
        return f"{python()} -m ansor"
    return "ansor" if found is not None and os.path.samefile(found, beside) else _short(str(beside))


def install(extra: str) -> str:
    """The command that installs the packages of an extra."""
    return f"{python()} -m pip install {' '.join(EXTRAS[extra])}"
