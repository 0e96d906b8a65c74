"""A compiled network as a folder: a manifest (JSON), sources, machine code, and the parameters as one `.npz` file.

Nothing in it is executed by reading it.  The manifest lists the other files with their lengths, so that a missing or
cut one is noticed; it is written last, so that a folder without one is no network.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Array
from ..ir.param_dict import write_arrays

FORMAT, VERSION = "relay_lite network", 1
MANIFEST, PARAMS, SOURCES, BINARIES = "manifest.json", "params.npz", "source", "binary"


@dataclass(frozen=True)
class NetworkFiles:
    """`facts` is JSON; sources are texts and binaries bytes by file name; `arrays` the parameters by name."""

    facts: Mapping[str, Any]
    sources: Mapping[str, str]
    binaries: Mapping[str, bytes]
    arrays: Mapping[str, Array]


def write_folder(path: str | os.PathLike[str], files: NetworkFiles) -> None:
    """Write all files into a new or empty folder.  Raises GraphError when it is not empty, or cannot be written."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        require(not any(folder.iterdir()), GraphError, f"export to {folder}", "the folder must be new or empty")
        for name in (SOURCES, BINARIES):
            (folder / name).mkdir()
        for name, text in files.sources.items():
            (folder / SOURCES / name).write_text(text, encoding="utf-8")
        for name, code in files.binaries.items():
            (folder / BINARIES / name).write_bytes(code)
        with open(folder / PARAMS, "wb") as file:
            write_arrays(file, files.arrays)
        found = sorted(p for p in folder.rglob("*") if p.is_file())
        lengths = {p.relative_to(folder).as_posix(): p.stat().st_size for p in found}
        manifest = {"format": FORMAT, "version": VERSION, "files": lengths, **files.facts}
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    except OSError as error:
        raise GraphError(f"export to {folder}: it cannot be written, {error.strerror}") from error


def read_folder(path: str | os.PathLike[str]) -> NetworkFiles:
    """Read what `write_folder` wrote.

    Raises GraphError, in one sentence, for a folder without a manifest, one of another version, and a file that is
    missing or has another length.
    """
    folder = Path(path)
    facts = _manifest(folder)
    for name, length in facts["files"].items():
        file = folder / name
        require(file.is_file(), GraphError, f"network {folder}", "a file is missing", file=name)
        size = file.stat().st_size
        require(size == length, GraphError, f"network {folder}", f"{name} must have {length} bytes", got=size)
    return NetworkFiles(
        facts,
        {PurePosixPath(n).name: _text(folder / n) for n in facts["files"] if n.startswith(f"{SOURCES}/")},
        {PurePosixPath(n).name: (folder / n).read_bytes() for n in facts["files"] if n.startswith(f"{BINARIES}/")},
        _arrays(folder),
    )


def _manifest(folder: Path) -> dict[str, Any]:
    subject = f"network {folder}"
    require((folder / MANIFEST).is_file(), GraphError, subject, f"there is no {MANIFEST}, so it is no exported network")
    try:
        facts = json.loads(_text(folder / MANIFEST))
    except ValueError as error:
        raise GraphError(f"{subject}: {MANIFEST} is not JSON: {error}") from error
    sound = isinstance(facts, dict) and facts.get("format") == FORMAT
    require(sound, GraphError, subject, f"{MANIFEST} is not that of a network")
    law = f"this release reads version {VERSION}; export the network again"
    require(facts.get("version") == VERSION, GraphError, subject, law, version=facts.get("version"))
    files = facts.get("files")
    sound = isinstance(files, dict) and PARAMS in files and all(_inside(n, k) for n, k in files.items())
    require(sound, GraphError, subject, f"{MANIFEST} must list files of the folder with their lengths")
    assert isinstance(facts, dict)
    return facts


def _inside(name: str, length: Any) -> bool:
    """A plain name inside the folder, with a length."""
    place = PurePosixPath(name)
    return isinstance(length, int) and not place.is_absolute() and ".." not in place.parts


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GraphError(f"network {file.parent}: {file.name} cannot be read, {error}") from error


def _arrays(folder: Path) -> dict[str, Array]:
    try:
        with np.load(folder / PARAMS, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise GraphError(f"network {folder}: {PARAMS} cannot be read, {error}") from error
