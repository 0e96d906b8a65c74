"""This process on its machine: what control groups leave to it, its processor, and memory that it gives back.

A control group is within others, and the least of their limits holds.  Both versions of the files are read.
"""

from __future__ import annotations

import gc
import math
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

import numpy as np

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


VECTOR_BYTES = {"avx512vl": 64, "avx512": 64, "avx2": 32, "neon": 16, "sse": 16}
"""The bytes of a vector, by family."""


@lru_cache(maxsize=1)
def cpu_flags() -> frozenset[str]:
    """What the processor can do, by the names of /proc/cpuinfo; read once a process."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return frozenset()
    for line in info.read_text(errors="replace").splitlines():
        if line.startswith("flags"):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def host_family() -> str:
    """The family of this processor, one of `VECTOR_BYTES`."""
    flags = cpu_flags()
    if "avx512f" in flags:
        return "avx512vl" if "avx512vl" in flags else "avx512"
    if "avx2" in flags:
        return "avx2"
    return "neon" if platform.machine() in ("aarch64", "arm64") else "sse"


CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
"""Where Linux describes the caches of a core."""


@lru_cache
def second_cache_bytes(caches: Path = CACHES) -> int | None:
    """The bytes of the second-level cache of a core, as the system says (in KiB: "2048K"); None where it does not."""
    for folder in sorted(caches.glob("index*")):
        level, size = folder / "level", folder / "size"
        if level.exists() and size.exists() and level.read_text().strip() == "2":
            text = size.read_text().strip()
            return int(text[:-1]) * 1024 if text[:-1].isdecimal() and text.endswith("K") else None
    return None


# --------------------------------------------------------------------------------------------------------------- memory


_LARGEST = 31 << 20


def keep_freed_memory() -> None:
    """Make the C library keep what is freed instead of giving it back to the system, where it is glibc.

    A search makes and frees the same arrays of some megabytes for each group of a population, and fetching their
    pages anew takes up to half the time of features.  glibc raises the size from which it gives memory back when a
    large block is freed, to that of the block, up to 32 MiB (`mallopt(3)`, M_MMAP_THRESHOLD).  No page of this block
    is touched.
    """
    np.empty(_LARGEST, np.uint8)


@contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cycles of garbage inside; it goes on behind, where it went on before.

    Each full search walks all objects of the process, which takes 0.1 s, and the many small objects of a round make it
    run about once in each.  A round leaves some thousand objects in cycles; they are found after it.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
