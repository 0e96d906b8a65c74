"""What the control groups of Linux leave to this process, as containers and batch systems set them: cores and bytes.

A group is within others, and the least of their limits holds.  Both versions of the files are read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path("/")


@cache
def group_cores(root: Path = ROOT) -> int | None:
    """The cores that the groups' share of time amounts to, rounded up; None without a limit.  Read once a process."""
    shares = []
    for folder in _folders(root, "cpu"):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        quota, period = quota or _text(folder / "cpu.cfs_quota_us"), period or _text(folder / "cpu.cfs_period_us")
        if quota.isdecimal() and period.isdecimal() and int(period) > 0:
            shares.append(max(1, math.ceil(int(quota) / int(period))))
    return min(shares, default=None)


@cache
def group_memory(root: Path = ROOT) -> int | None:
    """The bytes that the groups may have; None without a limit.  Read once a process."""
    texts = [_text(f / name) for f in _folders(root, "memory") for name in ("memory.max", "memory.limit_in_bytes")]
    return min([int(text) for text in texts if text.isdecimal()], default=None)


def _folders(root: Path, controller: str) -> Iterator[Path]:
    """Where the groups of this process keep a controller's files, the innermost first."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        parts = PurePosixPath(path).parts[1:]
        for n in range(len(parts), -1, -1):
            yield (root / "sys/fs/cgroup" / names).joinpath(*parts[:n])


def _text(file: Path) -> str:
    """What a file holds; nothing where there is none."""
    try:
        return file.read_text().strip()
    except OSError:
        return ""
