"""Folders of files with a manifest (JSON) that lists the other files with their lengths and digests.

The manifest ends with a digest of its own, so that whatever is missing, cut or changed is noticed; it is written last,
so that a folder without one is nothing.  This is against accidents: who can write the folder can make all of it agree
(docs/security.md).  Nothing is executed by reading.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from te_lite.errors import TeError, require

from .file_names import path_of

MANIFEST, DIGEST = "manifest.json", "sha256"
MOST_MANIFEST_BYTES = 1 << 28


@dataclass(frozen=True)
class FolderKind:
    """What a folder holds: `format` and `version` stand in its manifest, it has the files `needed`.

    What is wrong with it is an `error`, which calls it a `noun`.
    """

    format: str
    version: int
    noun: str
    error: type[TeError]
    needed: tuple[str, ...] = ()

    def subject(self, folder: Path) -> str:
        """How errors call a folder that is read."""
        return f"{self.noun} {folder}"


def require_new(kind: FolderKind, path: str | os.PathLike[str]) -> None:
    """Raise the error of the kind, in one sentence, unless `path` is an empty folder or nothing yet."""
    folder = path_of(path, kind.error)
    try:
        free = not any(folder.iterdir()) if folder.is_dir() else not os.path.lexists(folder)
    except OSError as error:
        raise kind.error(f"export to {folder}: it cannot be read, {error.strerror}") from error
    law = (
        "the folder must be new or empty" if folder.is_dir() else "there is a file of this name, and a folder is needed"
    )
    require(free, kind.error, f"export to {folder}", law)


def write_sealed_folder(
    kind: FolderKind, path: str | os.PathLike[str], files: Mapping[str, bytes], facts: Mapping[str, Any]
) -> None:
    """Write files by name (with `/` for folders), then the manifest with the facts, which are JSON.

    Raises the error of the kind for a folder that is not new or empty, and one that cannot be written.
    """
    require_new(kind, path)
    folder = path_of(path, kind.error)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(data)
        listed = {name: _listed(data) for name, data in sorted(files.items())}
        manifest = signed({"format": kind.format, "version": kind.version, "files": listed, **facts})
        (folder / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
    except OSError as error:
        raise kind.error(f"export to {folder}: it cannot be written, {error.strerror}") from error


def read_sealed_folder(kind: FolderKind, path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest and the files by name.

    Raises the error of the kind, in one sentence, for a folder without a manifest, one of another version, and a file
    that is missing or is not what was written.
    """
    folder = path_of(path, kind.error)
    facts = _manifest(kind, folder)
    return facts, {name: _content(kind, folder, name, listed) for name, listed in facts["files"].items()}


def signed(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts with their own digest."""
    return {**facts, DIGEST: hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}


def _listed(data: bytes) -> dict[str, Any]:
    return {"bytes": len(data), DIGEST: hashlib.sha256(data).hexdigest()}


def _content(kind: FolderKind, folder: Path, name: str, listed: Mapping[str, Any]) -> bytes:
    """A file that is what the manifest says; one of another length is not read."""
    subject, length, error = kind.subject(folder), listed["bytes"], kind.error
    file = folder / name
    require(file.is_file(), error, subject, "a file is missing", file=name)
    size = file.stat().st_size
    require(size == length, error, subject, f"{name} must have {length} bytes", got=size)
    try:
        data = file.read_bytes()
    except OSError as found:
        raise error(f"{subject}: {name} cannot be read, {found.strerror}") from found
    require(_listed(data) == listed, error, subject, f"{name} is not what was exported, its digest is another")
    return data


def _manifest(kind: FolderKind, folder: Path) -> dict[str, Any]:
    subject, error = kind.subject(folder), kind.error
    law = f"there is no {MANIFEST}, so it is no exported {kind.noun}"
    require((folder / MANIFEST).is_file(), error, subject, law)
    length = (folder / MANIFEST).stat().st_size
    require(length <= MOST_MANIFEST_BYTES, error, subject, f"{MANIFEST} is too long", bytes=length)
    try:
        facts = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as found:
        raise error(f"{subject}: {MANIFEST} cannot be read, {found.strerror}") from found
    except (ValueError, RecursionError) as found:
        raise error(f"{subject}: {MANIFEST} is not JSON: {found}") from found
    sound = isinstance(facts, dict) and facts.get("format") == kind.format
    require(sound, error, subject, f"{MANIFEST} is not that of a {kind.noun}")
    law = f"this release reads version {kind.version}; export the {kind.noun} again"
    require(facts.get("version") == kind.version, error, subject, law, version=facts.get("version"))
    files = facts.get("files")
    sound = isinstance(files, dict) and set(kind.needed) <= set(files) and all(_inside(*f) for f in files.items())
    require(sound, error, subject, f"{MANIFEST} must list files of the folder with their lengths")
    whole = signed({name: value for name, value in facts.items() if name != DIGEST}) == facts
    require(whole, error, subject, f"{MANIFEST} is not what was exported, its digest is another")
    made: dict[str, Any] = facts
    return made


def _inside(name: str, listed: Any) -> bool:
    """A plain name inside the folder, with a length and a digest."""
    place = PurePosixPath(name)
    sound = isinstance(listed, dict) and type(listed.get("bytes")) is int and isinstance(listed.get(DIGEST), str)
    return sound and name.isprintable() and not place.is_absolute() and ".." not in place.parts
