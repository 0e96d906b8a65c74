"""A compiled network as a folder: a manifest (JSON), sources, machine code, and the parameters as one `.npz` file.

Nothing in it is executed by reading it, and its machine code runs when the network is put on a device.  The manifest
lists the other files with their lengths and digests and ends with a digest of its own, so that whatever is missing, cut
or changed is noticed; it is written last, so that a folder without one is no network.  This is against accidents: who
can write the folder can make all of it agree (docs/security.md).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Array
from ..ir.param_dict import read_arrays, write_arrays

FORMAT, VERSION = "relay_lite network", 2
MANIFEST, PARAMS, SOURCES, BINARIES = "manifest.json", "params.npz", "source", "binary"
DIGEST = "sha256"
MOST_MANIFEST_BYTES = 1 << 28


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
        listed = {p.relative_to(folder).as_posix(): _listed(p.read_bytes()) for p in found}
        manifest = signed({"format": FORMAT, "version": VERSION, "files": listed, **files.facts})
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    except OSError as error:
        raise GraphError(f"export to {folder}: it cannot be written, {error.strerror}") from error


def read_folder(path: str | os.PathLike[str]) -> NetworkFiles:
    """Read what `write_folder` wrote.

    Raises GraphError, in one sentence, for a folder without a manifest, one of another version, and a file that is
    missing or is not what was written.
    """
    folder = Path(path)
    facts = _manifest(folder)
    found = {name: _content(folder, name, listed) for name, listed in facts["files"].items()}
    try:
        sources = {PurePosixPath(n).name: d.decode() for n, d in found.items() if n.startswith(f"{SOURCES}/")}
        arrays = read_arrays(io.BytesIO(found[PARAMS]))
    except UnicodeDecodeError as error:
        raise GraphError(f"network {folder}: a source is no text, {error}") from error
    except GraphError as error:
        raise GraphError(f"network {folder}: {PARAMS} cannot be read, {error}") from error
    binaries = {PurePosixPath(n).name: d for n, d in found.items() if n.startswith(f"{BINARIES}/")}
    return NetworkFiles(facts, sources, binaries, arrays)


def _listed(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), DIGEST: hashlib.sha256(data).hexdigest()}


def _content(folder: Path, name: str, listed: Mapping[str, Any]) -> bytes:
    """A file that is what the manifest says; one of another length is not read."""
    subject, length = f"network {folder}", listed["bytes"]
    file = folder / name
    require(file.is_file(), GraphError, subject, "a file is missing", file=name)
    size = file.stat().st_size
    require(size == length, GraphError, subject, f"{name} must have {length} bytes", got=size)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise GraphError(f"{subject}: {name} cannot be read, {error.strerror}") from error
    require(_listed(data) == listed, GraphError, subject, f"{name} is not what was exported, its digest is another")
    return data


def signed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts with their own digest."""
    return {**facts, DIGEST: hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}


def _manifest(folder: Path) -> dict[str, Any]:
    subject = f"network {folder}"
    require((folder / MANIFEST).is_file(), GraphError, subject, f"there is no {MANIFEST}, so it is no exported network")
    length = (folder / MANIFEST).stat().st_size
    require(length <= MOST_MANIFEST_BYTES, GraphError, subject, f"{MANIFEST} is too long", bytes=length)
    try:
        facts = json.loads(_text(folder / MANIFEST))
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{subject}: {MANIFEST} is not JSON: {error}") from error
    sound = isinstance(facts, dict) and facts.get("format") == FORMAT
    require(sound, GraphError, subject, f"{MANIFEST} is not that of a network")
    law = f"this release reads version {VERSION}; export the network again"
    require(facts.get("version") == VERSION, GraphError, subject, law, version=facts.get("version"))
    files = facts.get("files")
    sound = isinstance(files, dict) and PARAMS in files and all(_inside(n, k) for n, k in files.items())
    require(sound, GraphError, subject, f"{MANIFEST} must list files of the folder with their lengths")
    assert isinstance(facts, dict)
    whole = signed({name: value for name, value in facts.items() if name != DIGEST}) == facts
    require(whole, GraphError, subject, f"{MANIFEST} is not what was exported, its digest is another")
    return facts


def _inside(name: str, listed: Any) -> bool:
    """A plain name inside the folder, with a length and a digest."""
    place = PurePosixPath(name)
    sound = isinstance(listed, dict) and type(listed.get("bytes")) is int and isinstance(listed.get(DIGEST), str)
    return sound and name.isprintable() and not place.is_absolute() and ".." not in place.parts


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise GraphError(f"network {file.parent}: {file.name} cannot be read, {error}") from error
