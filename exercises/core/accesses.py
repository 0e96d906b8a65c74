"""What the accesses of a lowered program cost: lines fetched through a cache, banks asked, lines of a warp."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from ansor.viz.accesses import Access, accesses
from ansor.viz.banks import bank_conflicts

__all__ = ["Access", "accesses", "conflicts", "lines_fetched", "lines_of_warp"]


def lines_fetched(found: list[Access], lines: int, line_bytes: int = 64) -> int:
    """How many lines are fetched when the accesses of one statement go through a cache that keeps `lines` of them.

    The cache drops the line that was used longest ago.
    """
    streams = [a.indices() * np.dtype(a.buffer.dtype).itemsize // line_bytes for a in found]
    cache: OrderedDict[tuple[int, int], None] = OrderedDict()
    fetched = 0
    for turn in np.stack(streams, axis=1).tolist():
        for key in enumerate(turn):
            fetched += key not in cache
            cache[key] = None
            cache.move_to_end(key)
            if len(cache) > lines:
                cache.popitem(last=False)
    return fetched


def conflicts(access: Access) -> int:
    """How often a bank of shared memory is asked at once by the threads of a warp."""
    size = np.dtype(access.buffer.dtype).itemsize
    return bank_conflicts((access.of_warp() * size).tolist(), size)


def lines_of_warp(access: Access, line_bytes: int = 128) -> int:
    """How many lines of global memory the threads of a warp touch at once."""
    return len(np.unique(access.of_warp() * np.dtype(access.buffer.dtype).itemsize // line_bytes))
