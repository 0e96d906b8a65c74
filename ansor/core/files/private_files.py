"""Folders of our own: private ones, which nobody else can write, and temporary ones, which are swept.

What is loaded from a folder runs as the user, so whoever may write there may run code as the user: every cache of
compiled programs, and the token of a fleet, live in folders that pass `private_folder`.  A sealed file ends in the
digest of what stands before it; loaders of programs and of shared libraries do not look at what follows their sections.

A temporary folder is called `ansor-KIND-...` and has a file `.owner` that its process keeps locked.  The kernel drops
the lock when the process, and every fork of it, is gone, however that came; then anybody who makes a folder of this
kind for the first time removes it, if it belongs to the same user.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from functools import lru_cache
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


# ---------------------------------------------------------------------------------------------------- temporary folders


PREFIX = "ansor-"
OWNER = ".owner"


def scratch_folder(kind: str) -> tempfile.TemporaryDirectory[str]:
    """A new temporary folder of this process; `kind` is a word for people.  It goes with the object, or its process."""
    place = tempfile.gettempdir()
    _swept(place)
    folder = tempfile.TemporaryDirectory(prefix=f"{PREFIX}{kind}-", ignore_cleanup_errors=True)
    owner = os.open(Path(folder.name) / OWNER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with suppress(OSError):  # a file system without locks: nobody will sweep the folder
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
    weakref.finalize(folder, os.close, owner)
    return folder


@lru_cache(maxsize=8)
def _swept(place: str) -> int:
    """Sweep `place` once a process."""
    return sweep(place)


def sweep(place: str | os.PathLike[str]) -> int:
    """Remove the folders in `place` that dead processes of this user have left; gives their number."""
    count = 0
    for folder in Path(place).glob(f"{PREFIX}*"):
        if _is_left(folder):
            shutil.rmtree(folder, ignore_errors=True)
            count += 1
    return count


def _is_left(folder: Path) -> bool:
    """Whether `folder` is one of ours and nobody holds its lock."""
    try:
        facts = folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid():
            return False
        owner = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(owner)
