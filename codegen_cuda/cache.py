"""Compiled modules on disk, named by what they were made of.

One file a module: a line of JSON, then the cubin.  Files appear whole (written elsewhere, then renamed), so any
number of processes share a folder; a file that cannot be read is made again.  The folder is `$CODEGEN_CUDA_CACHE`,
else `ansor/cuda` in the user's cache folder; `CODEGEN_CUDA_CACHE=off` keeps nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path

from te_lite import environment

from .errors import CompileError


def cache_folder() -> Path | None:
    """The folder of compiled modules, or None when nothing is kept."""
    wanted = environment.CODEGEN_CUDA_CACHE.text
    if wanted == "off":
        return None
    if wanted:
        return Path(wanted).expanduser()
    base = environment.XDG_CACHE_HOME.text
    return (Path(base) if base else Path.home() / ".cache") / "ansor" / "cuda"


def key_of(*parts: str) -> str:
    """A name made of everything that decides what a module is."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:40]


def read(key: str) -> tuple[dict[str, str], bytes] | None:
    """The facts and the cubin kept under `key`; None when there are none."""
    folder = cache_folder()
    if folder is None:
        return None
    try:
        line, _, cubin = (folder / f"{key}.cubin").read_bytes().partition(b"\n")
        facts = json.loads(line)
    except (OSError, ValueError):
        return None
    sound = isinstance(facts, dict) and facts.get("sha256") == hashlib.sha256(cubin).hexdigest()
    return (facts, cubin) if sound else None


def write(key: str, facts: dict[str, str], cubin: bytes) -> None:
    """Keep a module.  Raises CompileError when the folder cannot be written."""
    folder = cache_folder()
    if folder is None:
        return
    line = json.dumps({**facts, "sha256": hashlib.sha256(cubin).hexdigest()}).encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=".new_")
        with os.fdopen(handle, "wb") as file:
            file.write(line + b"\n" + cubin)
        os.replace(name, folder / f"{key}.cubin")
    except OSError as e:
        raise CompileError(f"kernel cache: {folder} cannot be written, {e.strerror}; set CODEGEN_CUDA_CACHE") from e
