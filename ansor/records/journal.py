"""An append-only file of lines that survives crashes, concurrent writers and full disks.

Writing: `O_APPEND` under an exclusive `flock`; when the last line is a torn fragment of a crashed writer it is moved
to `NAME.torn` first, so that it can never glue itself to the next line; one `write` and one `fsync` per call, the
folder synced too after a new file; a write that comes up short is taken back.  Reading: line by line in bounded
memory, whatever the file holds.
"""

from __future__ import annotations

import errno
import fcntl
import gzip
import json
import os
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from te_lite.errors import require

from ..core.errors import JournalError
from ..core.files.file_names import path_of

MAX_LINE = 1 << 20
PACKED = b"\x1f\x8b"
RECORD = b'{"i'
"""How records begin, those of templates too."""
LOCK_SECONDS = 60.0
"""A lock is held for one write; whoever has it longer is stopped or stuck."""


def _cannot(path: Path, verb: str, error: OSError) -> JournalError:
    return JournalError(f"{path}: cannot be {verb}: {os.strerror(error.errno or errno.EIO)}")


def ensure_writable(path: str | os.PathLike[str]) -> None:
    """Raise JournalError where nothing can be added to a file, or none can be made; nothing is made here."""
    path = path_of(path, JournalError)
    _require_plain_name(path)
    try:
        if not path.exists():
            return _require_place(path.parent)
        fd = _opened(path, os.O_RDWR | os.O_APPEND)
        try:
            _require_unpacked(fd, path)
        finally:
            os.close(fd)
    except OSError as error:
        raise _cannot(path, "written", error) from error


def _require_place(folder: Path) -> None:
    """Raise OSError for a folder that cannot be written, or made."""
    there = next(one for one in (folder, *folder.absolute().parents) if os.path.lexists(one))
    if not there.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if not os.access(there, os.W_OK | os.X_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def require_log(path: str | os.PathLike[str]) -> None:
    """Raise JournalError for a file that holds lines, but none of records: what is appended would spoil it."""
    path = path_of(path, JournalError)
    _require_plain_name(path)
    if not path.is_file():
        return
    others = False
    for _, line in scan_lines(path):
        if line is not None and line.startswith(RECORD):
            return
        others |= line is None or not (line.startswith(b"#") or line.strip() == b"")
    law = "holds other things than records, which would be appended to it; name another file"
    require(not others, JournalError, str(path), law)


def _opened(path: Path, flags: int) -> int:
    """A descriptor of a log; what is no file, such as a pipe that nobody writes to, is refused and not waited for.

    Devices may be written to, reading them might never end.  Raises OSError, and JournalError for what is no file.
    """
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o644)
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode) or (flags & os.O_RDWR and stat.S_ISCHR(mode)):
        return fd
    os.close(fd)
    raise JournalError(f"{path}: a log must be a file, and this is {_KINDS.get(stat.S_IFMT(mode), 'none')}")


_KINDS = {
    stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a directory", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}  # fmt: skip


def _lock(fd: int, path: Path) -> None:
    """Lock a file for this process alone.  Raises JournalError when another one keeps it for `LOCK_SECONDS`."""
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                law = f"another process has kept it locked for {LOCK_SECONDS:g} s"
                raise JournalError(f"{path}: cannot be written: {law}") from error
            time.sleep(0.002)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """A descriptor of the file that `path` names now, locked for this process alone."""
    while True:
        fd = _opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            _lock(fd, path)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    yield fd
                    return
        finally:
            os.close(fd)


def _require_unpacked(fd: int, path: Path) -> None:
    law = "is packed by gzip, and records cannot be appended; unpack it, or write another log"
    packed = stat.S_ISREG(os.fstat(fd).st_mode) and os.pread(fd, 2, 0) == PACKED
    require(not packed, JournalError, str(path), law)


def _require_plain_name(path: Path) -> None:
    """Raise JournalError for a new log under the name of a packed file, which readers of the name would not unpack."""
    new = not path.exists() or (path.is_file() and path.stat().st_size == 0)
    if path.suffix == ".gz" and new:
        law = f"would be packed by gzip, and records cannot be appended; name the log {path.with_suffix('')}"
        raise JournalError(f"{path}: {law}")


def append_lines(path: str | os.PathLike[str], lines: Sequence[str], first: Sequence[str] = ()) -> None:
    """Append whole lines (given without newline) and wait until they are on the disk; missing folders are made.

    Raises JournalError when they cannot be stored; then none of them is in the file.
    """
    path = path_of(path, JournalError)
    _require_plain_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as fd:
            _require_unpacked(fd, path)
            end = _repair_tail(fd, path)
            data = "".join(line + "\n" for line in [*(first if end == 0 else ()), *lines]).encode()
            try:
                if os.write(fd, data) != len(data):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(fd)
                if end == 0:
                    _sync_folder(path)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(fd, end)
                raise
    except OSError as error:
        raise _cannot(path, "written", error) from error


def _sync_folder(path: Path) -> None:
    """Wait until the name of a new file is on the disk."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _repair_tail(fd: int, path: Path) -> int:
    """Make the file end in a newline, and give its length: complete a whole last line, move a torn one away."""
    size = os.fstat(fd).st_size
    if size == 0 or os.pread(fd, 1, size - 1) == b"\n":
        return size
    start = _last_line_start(fd, size)
    if size - start <= MAX_LINE and _is_whole(os.pread(fd, size - start, start)):
        os.write(fd, b"\n")
        return size + 1
    with open(path.with_name(path.name + ".torn"), "ab") as torn:
        for offset in range(start, size, MAX_LINE):
            torn.write(os.pread(fd, min(MAX_LINE, size - offset), offset))
        torn.write(b"\n")
        torn.flush()
        os.fsync(torn.fileno())
    _sync_folder(path)
    os.ftruncate(fd, start)
    return start


def _last_line_start(fd: int, size: int) -> int:
    end = size
    while end > 0:
        start = max(0, end - 65536)
        found = os.pread(fd, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _is_whole(fragment: bytes) -> bool:
    """A JSON object that only lacks its newline: a torn one lacks the closing bracket as well."""
    try:
        return isinstance(json.loads(fragment), dict)
    except (ValueError, RecursionError):
        return False


def scan_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, bytes | None]]:
    """`(line number from 1, line without newline)`; None stands for a line longer than MAX_LINE.

    Raises JournalError when the file cannot be read.
    """
    path = path_of(path, JournalError)
    try:
        with open(_opened(path, os.O_RDONLY), "rb") as raw, _unpacked(raw) as f:
            number = 0
            while line := f.readline(MAX_LINE + 1):
                number += 1
                if len(line) <= MAX_LINE or line.endswith(b"\n"):
                    yield number, line.rstrip(b"\r\n")
                    continue
                while line and not line.endswith(b"\n"):
                    line = f.readline(MAX_LINE)
                yield number, None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise JournalError(f"{path}: cannot be read: it is packed, and damaged: {error}") from error
    except OSError as error:
        raise _cannot(path, "read", error) from error


def _unpacked(raw: BufferedReader) -> BufferedReader | gzip.GzipFile:
    """The bytes of a file; of one that gzip packed, whatever its name, those inside."""
    return gzip.GzipFile(fileobj=raw, mode="rb") if raw.peek(2)[:2] == PACKED else raw


def replace_file(path: str | os.PathLike[str], lines: Sequence[str]) -> None:
    """Replace a file as a whole: readers see the old one or the new one.  One whose name ends in `.gz` is packed.

    Raises JournalError when that fails.
    """
    path = path_of(path, JournalError)
    scratch = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fd, scratch = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(fd, "wb") as f:
            data = "".join(line + "\n" for line in lines).encode()
            f.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
            f.flush()
            os.fsync(f.fileno())
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
        _sync_folder(path)
    except OSError as error:
        if scratch:
            with suppress(OSError):
                os.unlink(scratch)
        raise _cannot(path, "written", error) from error
