"""What a writer of the journal was told is stored, is on the disk: each file and each new name is synced in time.

The oracle is a list of what was written, synced, renamed and cut, in order.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.records import journal
from ansor.records.journal import append_lines, ensure_writable, replace_file

Event = tuple[str, str, int]


class Watched:
    """Notes `(what, name of the file, its bytes then)` of every call that changes or syncs a file."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def note(self, what: str, fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        self.events.append((what, "folder" if path.is_dir() else path.name, os.fstat(fd).st_size))

    def write(self, fd: int, data: bytes) -> int:
        written = os.write(fd, data)
        self.note("write", fd)
        return written

    def fsync(self, fd: int) -> None:
        os.fsync(fd)
        self.note("sync", fd)

    def ftruncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)
        self.note("cut", fd)

    def replace(self, old: str, new: Path) -> None:
        os.replace(old, new)
        self.events.append(("rename", Path(new).name, os.stat(new).st_size))

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    made = Watched()
    monkeypatch.setattr(journal, "os", made)
    return made


def test_lines_are_synced_after_they_are_written_and_before_anything_else(tmp_path: Path, watched: Watched) -> None:
    path = tmp_path / "log"
    append_lines(path, ["first"])
    watched.events.clear()
    for k, size in enumerate((12, 18), 1):
        append_lines(path, ["again"])
        assert watched.events[2 * (k - 1) :] == [("write", "log", size), ("sync", "log", size)]


def test_many_lines_are_one_write_and_one_sync(tmp_path: Path, watched: Watched) -> None:
    path = tmp_path / "log"
    ensure_writable(path)
    append_lines(path, ["a"] * 1000)
    of_file = [(what, size) for what, name, size in watched.events if name == "log"]
    assert of_file == [("write", 2000), ("sync", 2000)]


def test_the_name_of_a_new_file_is_synced(tmp_path: Path, watched: Watched) -> None:
    """A file whose folder was not synced may be gone after a power failure, with all that was in it."""
    append_lines(tmp_path / "log", ["a"])
    assert watched.events[-1][:2] == ("sync", "folder") and ("sync", "log", 2) in watched.events
    watched.events.clear()
    append_lines(tmp_path / "log", ["a"])
    assert all(name != "folder" for _, name, _ in watched.events)


def test_records_of_a_search_are_on_the_disk_when_the_callback_returns(
    tmp_path: Path, watched: Watched, record: Any
) -> None:
    log = ansor.RecordToFile(tmp_path / "log")
    for _ in range(3):
        inp, res = record()
        log.callback(None, [inp], [res])
        size = (tmp_path / "log").stat().st_size
        assert ("sync", "log", size) in watched.events


def test_a_torn_line_is_safe_elsewhere_before_it_is_cut_off(tmp_path: Path, watched: Watched) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"whole\ntorn")
    append_lines(path, ["next"])
    order = [(what, name) for what, name, _ in watched.events]
    assert order.index(("sync", "log.torn")) < order.index(("sync", "folder")) < order.index(("cut", "log"))
    assert ("sync", "log.torn", 5) in watched.events and watched.events[-1] == ("sync", "log", 11)


def test_a_file_is_replaced_by_one_that_is_on_the_disk(tmp_path: Path, watched: Watched) -> None:
    replace_file(tmp_path / "log", ["a", "b"])
    what = [(what, size) for what, name, size in watched.events if name != "folder"]
    assert what == [("sync", 4), ("rename", 4)] and watched.events[-1][:2] == ("sync", "folder")


@pytest.mark.parametrize("fails", ["write", "fsync"])
def test_what_could_not_be_stored_is_taken_back(
    tmp_path: Path, watched: Watched, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A writer that was told of a failure may write the line again: it must not be there twice."""
    path = tmp_path / "log"
    append_lines(path, ["kept"])

    def broken(*args: Any) -> int:
        if fails == "write":
            return os.write(args[0], args[1][:3])
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(watched, fails, broken)
    with pytest.raises(ansor.JournalError, match="cannot be written"):
        append_lines(path, ["lost"])
    assert path.read_bytes() == b"kept\n"
