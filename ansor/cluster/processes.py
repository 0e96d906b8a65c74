"""The processes of an engine: one that was stopped or killed may leave helpers that take seconds to notice it."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

Processes = dict[int, str]
POLL_SECONDS = 0.02


class _Facts(NamedTuple):
    """What the kernel says of a process: `start` is in a unit of its own, `state` is a letter."""

    state: str
    parent: int
    session: int
    start: str


def _facts(pid: int) -> _Facts:
    """Raises OSError when there is no such process."""
    after_name = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return _Facts(after_name[0], int(after_name[1]), int(after_name[3]), after_name[19])


def start_of(pid: int) -> str | None:
    """When a process started, which with its number names it for good; None when there is none."""
    try:
        return _facts(pid).start
    except OSError:
        return None


def _all() -> dict[int, _Facts]:
    known = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                known[int(place.name)] = _facts(int(place.name))
    return known


def tree_of(leader: int) -> Processes:
    """Every process of the session that `leader` began, and every process below one of these, but for `leader`."""
    known = _all()
    found: Processes = {}
    level = {leader} | {pid for pid, facts in known.items() if facts.session == leader}
    while level:
        found |= {pid: known[pid].start for pid in level if pid in known and pid != leader}
        level = {pid for pid, facts in known.items() if facts.parent in level and pid not in found and pid != leader}
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
            facts = _facts(pid)
            if facts.state != "Z" and facts.start == start:
                left.append(pid)
    return left
