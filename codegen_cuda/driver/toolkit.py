"""Locations of the CUDA toolkit: the NVRTC library, and the folders with CUDA's headers.

Looked at in this order: the wheels of the running Python (`nvidia-cuda-nvrtc`, `nvidia-cuda-runtime`), the toolkit of
`CUDA_HOME` or `CUDA_PATH`, that of the `nvcc` on PATH, /usr/local/cuda, and the libraries that the linker knows.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from te_lite import environment

_LIBRARIES = ("libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so")


def _wheels() -> Iterator[Path]:
    """The folders of NVIDIA's wheels, each with `lib` and `include` inside."""
    spec = importlib.util.find_spec("nvidia")
    for place in spec.submodule_search_locations or () if spec else ():
        yield from sorted(Path(place).glob("*/"), reverse=True)


def _toolkits() -> Iterator[Path]:
    for variable in (environment.CUDA_HOME, environment.CUDA_PATH):
        if variable.text:
            yield Path(variable.text)
    nvcc = shutil.which("nvcc")
    if nvcc:
        yield Path(nvcc).resolve().parent.parent
    yield Path("/usr/local/cuda")


def nvrtc_candidates() -> Iterator[str]:
    """What to try to load as NVRTC, best first."""
    for root in (*_wheels(), *_toolkits()):
        for folder in ("lib", "lib64"):
            for name in _LIBRARIES:
                if (root / folder / name).exists():
                    yield str(root / folder / name)
    yield from _LIBRARIES


def sanitizer_path() -> str | None:
    """The compute-sanitizer command: that of a toolkit, or the one on PATH; or None."""
    for root in _toolkits():
        if (root / "bin" / "compute-sanitizer").exists():
            return str(root / "bin" / "compute-sanitizer")
    return shutil.which("compute-sanitizer")


@lru_cache(maxsize=1)
def include_folders() -> tuple[str, ...]:
    """The folders to search for `cuda_fp16.h` and what it includes; empty when it is not installed.

    Looked for once a process.
    """
    for root in (*_wheels(), *_toolkits()):
        folder = root / "include"
        if (folder / "cuda_fp16.h").exists():
            inner = folder / "cccl"
            return (str(folder), str(inner)) if inner.exists() else (str(folder),)
    return ()
