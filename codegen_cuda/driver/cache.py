"""The store of compiled modules, and of the emulator's host, named by what they were made of.

Files are those of a `KernelStore`, and appear whole, so any number of processes of the user share a folder; a file that
is not what was written is made again.  The folder is `$CODEGEN_CUDA_CACHE`,
else `ansor/cuda` in the user's cache folder; `CODEGEN_CUDA_CACHE=off` keeps nothing.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ansor.core.files.kernel_store import KernelStore
from ansor.core.files.private_files import private_folder, user_cache
from te_lite import environment

from ..program.errors import CompileError


def cache_folder() -> Path | None:
    """The folder of compiled modules, or None when nothing is kept."""
    wanted = environment.CODEGEN_CUDA_CACHE.text
    if wanted == "off":
        return None
    return Path(wanted).expanduser() if wanted else user_cache("cuda")


def key_of(*parts: str) -> str:
    """A name made of everything that decides what is kept."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def kernel_store(made_by: Any) -> KernelStore | None:
    """Where modules and whole kernels are kept, or None when nothing is.

    Raises CompileError when the folder cannot be made, or others may write it.
    """
    folder = cache_folder()
    try:
        place = None if folder is None else private_folder(folder, CompileError, "kernel cache:")
    except OSError as e:
        raise CompileError(f"kernel cache: {folder} cannot be made, {e.strerror}; set CODEGEN_CUDA_CACHE") from e
    return None if place is None else KernelStore(place, made_by, CompileError)
