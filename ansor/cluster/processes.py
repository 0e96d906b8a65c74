"""The processes below this one: an engine that was stopped may leave helpers that take seconds to notice it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

Processes = dict[int, str]
POLL_SECONDS = 0.02


def _parent_and_start(pid: int) -> tuple[int, str]:
    """The parent of a process, and when it started in the kernel's own unit.  Raises OSError when there is none."""
    after_name = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return int(after_name[1]), after_name[19]


def descendants() -> Processes:
    """The number and the start of every process below this one."""
    known: dict[int, tuple[int, str]] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                known[int(place.name)] = _parent_and_start(int(place.name))
    found: Processes = {}
    level = {os.getpid()}
    while level:
        level = {pid for pid, (parent, _) in known.items() if parent in level and pid not in found}
        found |= {pid: known[pid][1] for pid in level}
    return found


def end(processes: Processes, patience: float) -> None:
    """Kill those of the processes that do not end by themselves within `patience` seconds."""
    deadline = time.monotonic() + patience
    while _left(processes) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    for pid in _left(processes):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _left(processes: Processes) -> list[int]:
    """Those that still run; a number that another process has by now does not count, nor does one that is dead."""
    left = []
    for pid, start in processes.items():
        with suppress(OSError):
            alive = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            if alive and _parent_and_start(pid)[1] == start:
                left.append(pid)
    return left
