"""The ways to cut a loop into tiles: all ordered factorisations of an extent, tabulated once.

A decision is then a row of a table.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

MAX_INNERMOST = 64


def divisors(n: int) -> list[int]:
    """The positive divisors of `n` in increasing order."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


@lru_cache(maxsize=512)
def factor_table(extent: int, parts: int, max_innermost: int = MAX_INNERMOST) -> np.ndarray:
    """All tuples of `parts` lengths whose product divides `extent`, the last at most `max_innermost`.

    Gives a read-only int64 array of shape (number of tuples, parts) in lexicographic order; the outermost loop of
    the split is the rest, extent / product.
    """
    suffixes: dict[tuple[int, int], np.ndarray] = {}

    def table(n: int, k: int) -> np.ndarray:
        if k == 0:
            return np.ones((1, 0), np.int64)
        if (n, k) not in suffixes:
            first = [d for d in divisors(n) if k > 1 or d <= max_innermost]
            blocks = [table(n // d, k - 1) for d in first]
            heads = np.repeat(np.array(first, np.int64), [len(b) for b in blocks])
            suffixes[n, k] = np.concatenate([heads[:, None], np.concatenate(blocks)], axis=1)
        return suffixes[n, k]

    out = table(extent, parts)
    out.flags.writeable = False
    return out
