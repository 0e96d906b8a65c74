"""Folders that nobody else can write, and files that tell whether they are what was written.

What is loaded from a folder runs as the user, so whoever may write there may run code as the user: every cache of
compiled programs, and the token of a fleet, live in folders that pass `private_folder`.  A sealed file ends in the
digest of what stands before it; loaders of programs and of shared libraries do not look at what follows their sections.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path

from te_lite import environment
from te_lite.errors import TeError, require

_MARK = b"\nsha256 "
_SEAL_BYTES = len(_MARK) + 2 * hashlib.sha256().digest_size


def user_cache(name: str) -> Path:
    """The folder `ansor/NAME` in the user's cache folder."""
    base = environment.XDG_CACHE_HOME.text
    return (Path(base) if base else Path.home() / ".cache") / "ansor" / name


def private_folder(path: Path, error: type[TeError], subject: str) -> Path:
    """The folder without links, made with mode 0700 when it is missing.

    Raises `error`, in one sentence, where somebody else may write it or rename it (see `require_private`), OSError when
    it cannot be made.
    """
    missing = [place for place in (path, *path.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(mode=0o700, exist_ok=True)
    whole = path.resolve(strict=True)
    require_private(whole, error, subject)
    return whole


def require_private(path: Path, error: type[TeError], subject: str) -> None:
    """Refuse a file or folder (given without links) that another user can change or replace, as ssh does.

    It must belong to this user and be writable by nobody else; the folders above it must belong to this user or to
    root, and be writable by others only where the sticky bit keeps these from renaming it (`/tmp`).  Raises `error`.
    """
    own = os.geteuid()
    for place in (path, *path.parents):
        found = place.stat()
        law = "it must belong to you" if place == path else "a folder above it must belong to you or to root"
        trusted = found.st_uid == own or (place != path and found.st_uid == 0)
        require(trusted, error, f"{subject} {path}", law, place=str(place), owner=found.st_uid, you=own)
        held = place != path and found.st_mode & stat.S_ISVTX
        law = f"others may write {'it' if place == path else place}, try chmod go-w {place}"
        mode = oct(stat.S_IMODE(found.st_mode))
        require(held or not found.st_mode & 0o022, error, f"{subject} {path}", law, mode=mode)


def write_whole(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file, for this user only, that appears at once and whole.  Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new_")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            os.fchmod(handle, mode)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def write_sealed(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write `data` and its digest.  Raises OSError."""
    write_whole(path, data + _seal(data), mode)


def read_sealed(path: Path) -> bytes | None:
    """What `write_sealed` wrote there; None for a file that is missing, cut, changed or not sealed."""
    try:
        whole = path.read_bytes()
    except OSError:
        return None
    data, seal = whole[:-_SEAL_BYTES], whole[-_SEAL_BYTES:]
    return data if seal == _seal(data) else None


def _seal(data: bytes) -> bytes:
    return _MARK + hashlib.sha256(data).hexdigest().encode()
