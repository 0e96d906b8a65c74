"""What a script needs and may not find: packages, a GPU, a file to write to; each is asked for in one sentence."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from types import TracebackType

from ansor.core.errors import TaskError
from ansor.core.host.hints import install, python
from codegen_cuda.driver.module import open_device
from codegen_cuda.program.errors import DeviceError
from te_lite.errors import InterpError, LowerError, TeError, require
from te_lite.expr.spelling import did_you_mean

PACKAGES = frozenset({
    "hypothesis", "matplotlib", "onnx", "onnxruntime", "onnxscript", "pycuda", "pytest", "ray", "scipy", "timm",
    "torch", "torchvision", "transformers",
})  # fmt: skip
"""What the extras in pyproject.toml bring, and scripts import."""


def require_packages(*names: str) -> None:
    """Raises TaskError, with the command that installs them, where packages are not installed."""
    lacking = [name for name in names if importlib.util.find_spec(name) is None]
    require(not lacking, TaskError, ", ".join(lacking), f"not installed; `{_pip(*lacking)}`")


def require_names(kind: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raises TaskError for a name that is not known, with the one that may be meant."""
    for name in names:
        law = f"{did_you_mean(name, known)}the names are {', '.join(known)}"
        require(name in known, TaskError, f"{kind} {name!r}", law)


def gpu(instead: str = "") -> str:
    """The GPU of this process, and its driver.  Raises DeviceError where there is none; `instead` needs none."""
    try:
        cuda = open_device().cuda
    except DeviceError as error:
        law = f"an NVIDIA GPU with its driver and PyCUDA (`{install('cuda')}`) is needed"
        why = str(error.__cause__ or error).splitlines()[0]
        raise DeviceError(f"target 'cuda': {law}{instead and f', or {instead}'}; here: {why}") from error
    return f"{cuda.Device(0).name()}, driver {cuda.get_driver_version()}"


def file_to_write(text: str) -> str:
    """The name of a file that can be written; its folder is made.  Raises ArgumentTypeError."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} must be a file, it is a folder")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r} needs a folder that cannot be made: {error}") from error
    if not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} must be in a folder that can be written to")
    return text


def path_to_read(text: str) -> Path:
    """A file or folder that is there.  Raises ArgumentTypeError."""
    if not Path(text).exists():
        raise argparse.ArgumentTypeError(f"{text!r} must be there, nothing is")
    return Path(text)


def sentence(error: BaseException) -> str | None:
    """What there is to say of an error that is no bug of a script: a missing package, or what a package refuses."""
    match error:
        case ModuleNotFoundError() if (name := (error.name or "").partition(".")[0]) in PACKAGES:
            return f"{name}: not installed; `{_pip(name)}`"
        case LowerError() | InterpError():
            return None
        case TeError():
            return str(error)
    return None


def say_what_is_missing() -> None:
    """Make the end of this process one sentence where a script imports, at its head, what is not installed."""
    sys.excepthook = _said


def _said(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    text = sentence(error) if isinstance(error, ModuleNotFoundError) else None
    if text is None:
        sys.__excepthook__(kind, error, trace)
    else:
        print(f"{Path(sys.argv[0]).stem}: {text}", file=sys.stderr)


def _pip(*names: str) -> str:
    return f"{python()} -m pip install {' '.join(names)}"
