"""Temporary folders that do not outlive their owner for long: what a dead run has left is swept by the next one.

A folder is called `ansor-KIND-...` and has a file `.owner` that its process keeps locked.  The kernel drops the lock
when the process, and every fork of it, is gone, however that came; then anybody who makes a folder of this kind for the
first time removes it, if it belongs to the same user.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

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
