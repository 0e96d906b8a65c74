"""The micro-op cache: the kernels that lie in the micro-op memory, and their places.

Places are handed out one after the other and from the beginning again when the end is reached; kernels that are
overwritten are forgotten.  What is loaded during a launch is kept in a log that only grows, so an earlier load still
finds its micro-ops after a later one took their place.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from ..isa.uop import Uops
from .uop_kernel import UopKernel


class UopCache:
    """The micro-op memory of `depth` places during one launch after another."""

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self.clear()

    def clear(self) -> None:
        """Forget all: every launch loads its kernels anew."""
        self._end = 0
        self._place: dict[Hashable, tuple[int, int]] = {}
        self._log: list[Uops] = []
        self._logged = 0

    @property
    def logged(self) -> int:
        """Micro-ops in the log."""
        return self._logged

    def find(self, key: Hashable) -> int | None:
        """Where a kernel lies, or None."""
        place = self._place.get(key)
        return None if place is None else place[0]

    def insert(self, key: Hashable, kernel: UopKernel) -> tuple[int, int]:
        """Make room for a kernel: where it will lie, and where its micro-ops begin in the log."""
        size = len(kernel.uops)
        # a kernel is never cut in two: where the rest of the memory is too small for it, it goes to the beginning
        begin = self._end if self._end + size <= self._depth else 0
        self._end = begin + size
        self._place = {k: p for k, p in self._place.items() if p[1] <= begin or p[0] >= self._end}
        self._place[key] = (begin, self._end)
        start = self._logged
        self._log.append(kernel.uops)
        self._logged += size
        return begin, start

    def image(self) -> Uops:
        """The log, uint32 [logged]."""
        return np.concatenate([np.zeros(0, np.uint32), *self._log])
