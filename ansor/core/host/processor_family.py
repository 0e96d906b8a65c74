"""What this processor can do, and by that its family: how long its vectors are."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

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
