"""Banks of shared memory, and how often they are asked for what the threads of a warp read or write at once."""

from __future__ import annotations

from collections.abc import Iterable

BANK_BYTES = 4
BANKS = 32


def bank_conflicts(places: Iterable[int], nbytes: int) -> int:
    """How often the memory is asked for what the threads of a warp read or write at these bytes, `nbytes` each.

    Accesses of 8 and 16 bytes, and the rows of `ldmatrix`, are served in groups of 16 and of 8 threads; the result is
    that of the worst group, 1 where there is no conflict.  Threads that ask for the same word get it at once.
    """
    listed = list(places)
    group = BANKS * BANK_BYTES // max(nbytes, BANK_BYTES)
    worst = 1
    for first in range(0, len(listed), group):
        starts = listed[first : first + group]
        words = {(p + byte) // BANK_BYTES for p in starts for byte in range(0, nbytes, BANK_BYTES)}
        banks = [word % BANKS for word in words]
        worst = max(worst, *[banks.count(bank) for bank in banks])
    return worst
