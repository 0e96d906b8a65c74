"""The store of compiled modules, and of the emulator's host, named by what they were made of.

One file a module: a line of JSON, then the cubin, then their digest.  Files appear whole, so any number of processes
of the user share a folder; a file that is not what was written is made again.  The folder is `$CODEGEN_CUDA_CACHE`,
else `ansor/cuda` in the user's cache folder; `CODEGEN_CUDA_CACHE=off` keeps nothing.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from ansor.core.files.kernel_store import KernelStore
from ansor.core.files.private_files import private_folder, read_sealed, user_cache, write_sealed
from te_lite import environment

from ..program.errors import CompileError


def cache_folder() -> Path | None:
    """The folder of compiled modules, or None when nothing is kept."""
    wanted = environment.CODEGEN_CUDA_CACHE.text
    if wanted == "off":
        return None
    return Path(wanted).expanduser() if wanted else user_cache("cuda")


def key_of(*parts: str) -> str:
    """A name made of everything that decides what a module is."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def read(key: str) -> tuple[dict[str, str], bytes] | None:
    """The facts and the cubin kept under `key`; None when there are none, or the file is not what was written.

    Raises CompileError when somebody else may write the folder.
    """
    folder = cache_folder()
    if folder is None:
        return None
    try:
        line, _, cubin = (read_sealed(_private(folder) / f"{key}.cubin") or b"").partition(b"\n")
        facts = json.loads(line)
    except (OSError, ValueError):
        return None
    return (facts, cubin) if isinstance(facts, dict) else None


def write(key: str, facts: dict[str, str], cubin: bytes) -> None:
    """Keep a module.  Raises CompileError when the folder cannot be written, or others may write it."""
    folder = cache_folder()
    if folder is None:
        return
    try:
        write_sealed(_private(folder) / f"{key}.cubin", json.dumps(facts).encode() + b"\n" + cubin)
    except OSError as e:
        raise CompileError(f"kernel cache: {folder} cannot be written, {e.strerror}; set CODEGEN_CUDA_CACHE") from e


def kernel_store(made_by: Any) -> KernelStore | None:
    """Where whole kernels are kept, or None when nothing is.  Raises as `write` does."""
    folder = cache_folder()
    try:
        return None if folder is None else KernelStore(_private(folder), made_by, CompileError)
    except OSError as e:
        raise CompileError(f"kernel cache: {folder} cannot be made, {e.strerror}; set CODEGEN_CUDA_CACHE") from e


def _private(folder: Path) -> Path:
    return private_folder(folder, CompileError, "kernel cache:")
