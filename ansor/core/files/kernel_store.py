"""Compiled kernels on disk: one that was made, and proven, by the code of today is not made again.

A file is named by all that decides what is in it: what the caller says of the kernel, how it was made (compiler, flags,
processor), and the text of the packages that made it, the verifier among them.  So whatever lies in a store came from a
program that this verifier has proven.  The files are sealed, in folders that nobody else can write
(`private_files.py`): one that was cut or changed is none, and its kernel is made again.
"""

from __future__ import annotations

import hashlib
import importlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from te_lite.errors import TeError, require

from .private_files import read_sealed, write_sealed

SUFFIX = ".kernel"


@dataclass(frozen=True)
class KernelStore:
    """The kernels in `folder`, which is private (`private_folder`).

    `made_by` is JSON: what decides machine code beside the program that it is made of.  `error` is what is raised where
    a file cannot be written.
    """

    folder: Path
    made_by: Any
    error: type[TeError]

    def place(self, *facts: Any) -> Path:
        """The file of the kernel that `facts`, which are JSON, decide."""
        name = hashlib.sha256(json.dumps([self.made_by, facts]).encode()).hexdigest()[:40]
        return self.folder / f"{name}{SUFFIX}"

    def read(self, place: Path) -> bytes | None:
        """What `write` wrote there; None for a file that is missing, or something else."""
        return read_sealed(place)

    def write(self, place: Path, data: bytes) -> None:
        """Keep `data` there."""
        try:
            write_sealed(place, data)
        except OSError as e:
            raise self.error(f"kernel store {self.folder}: it cannot be written, {e.strerror}") from e


@lru_cache(maxsize=64)
def source_digest(package: str) -> str:
    """The digest of the Python files of a package and the models in it, read once a process.

    Raises TeError for a package without any.
    """
    folder = Path(importlib.import_module(package).__file__ or "").parent
    found = sorted([*folder.rglob("*.py"), *folder.rglob("*.ubj")])
    law = "its Python files are needed, since they decide what is made of a program"
    require((folder / "__init__.py") in found, TeError, f"package {package}", law, folder=str(folder))
    digest = hashlib.sha256()
    for path in found:
        data = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(data)}\n".encode() + data)
    return digest.hexdigest()
