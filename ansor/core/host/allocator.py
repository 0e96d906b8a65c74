"""How the C library treats memory that arrays leave behind."""

from __future__ import annotations

import numpy as np

_LARGEST = 31 << 20


def keep_freed_memory() -> None:
    """Make the C library keep what is freed instead of giving it back to the system, where it is glibc.

    A search makes and frees the same arrays of some megabytes for each group of a population, and fetching their
    pages anew takes up to half the time of features.  glibc raises the size from which it gives memory back when a
    large block is freed, to that of the block, up to 32 MiB (`mallopt(3)`, M_MMAP_THRESHOLD).  No page of this block
    is touched.
    """
    np.empty(_LARGEST, np.uint8)
