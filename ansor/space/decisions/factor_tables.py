"""Values that only go together in some ways, all of them tabulated once: factorisations of an extent, and points.

A decision is then a row of a table.  An extent with few divisors (197, 27) has hardly any: there the lengths may
divide a slightly longer extent instead (200, 28), and the last tile runs over the edge (`te_lite/bounds/overrun.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from .draw import Index, Mask, Matrix, below

MAX_INNERMOST = 64
TILE_SIZES = (4, 8, 16, 32, 64)
"""An extent has few divisors where none is within a factor of sqrt(2) of one of these, up to itself."""
LONG, EVEN = 256, 16
"""Nor has a long one that `EVEN` does not divide: tiles of tiles (1000 = 8 x 125) are odd numbers of threads."""

ROUNDED_TO = (2, 4, 8, 16, 32, 64)
MOST_OFTEN = 4.0


def divisors(n: int) -> list[int]:
    """The positive divisors of `n` in increasing order."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def has_few_divisors(extent: int) -> bool:
    """Whether some size of a tile has no divisor of `extent` near it."""
    if extent >= LONG and extent % EVEN:
        return True
    near = [any(d * d <= 2 * t * t <= 4 * d * d for d in divisors(extent)) for t in TILE_SIZES if t <= extent]
    return not all(near)


def padded_extents(extent: int, most: float) -> tuple[int, ...]:
    """What tiles of `extent` may divide: itself, and where it has few divisors, longer ones by up to `most` of it."""
    if not has_few_divisors(extent):
        return (extent,)
    rounded = {-(-extent // m) * m for m in ROUNDED_TO}
    return (extent, *sorted(e for e in rounded if extent < e <= (1 + most) * extent))


def covered(extents: Sequence[int], inner: int) -> int:
    """The first of `extents` that tiles of `inner` points divide; the least multiple of `inner` where none is."""
    return next((e for e in extents if e % inner == 0), -(-extents[0] // inner) * inner)


@lru_cache(maxsize=512)
def tile_table(extents: tuple[int, ...], parts: int, max_innermost: int = MAX_INNERMOST) -> np.ndarray:
    """The rows of the tables of several extents, each once: read-only int64 [number of tuples, parts]."""
    if len(extents) == 1:
        return factor_table(extents[0], parts, max_innermost)
    out = np.unique(np.concatenate([factor_table(e, parts, max_innermost) for e in extents]), axis=0)
    out.flags.writeable = False
    return out


@lru_cache(maxsize=512)
def tile_weights(extents: tuple[int, ...], parts: int, max_innermost: int = MAX_INNERMOST) -> np.ndarray:
    """How often the rows of `tile_table` are drawn, relatively: read-only float64 [number of tuples].

    Each of the extents is covered equally often: of the rows of 49, 50 and 52 the first has but a tenth.  No row is
    drawn more than `MOST_OFTEN` times as often as if all were drawn alike: of a prime there are but the trivial ones.
    """
    table = tile_table(extents, parts, max_innermost)
    out = np.ones(len(table))
    if len(extents) > 1:
        of = np.array([extents.index(covered(extents, inner)) for inner in table.prod(axis=1).tolist()])
        counts = np.bincount(of)
        out = np.minimum(len(table) / (np.count_nonzero(counts) * counts[of]), MOST_OFTEN)
    out.flags.writeable = False
    return out


def draw_tiles(
    extents: tuple[int, ...], parts: int, max_innermost: int, n: int, rng: np.random.Generator
) -> np.ndarray:
    """`n` rows of `tile_table`, drawn by `tile_weights`: int64 [n, parts]."""
    table = tile_table(extents, parts, max_innermost)
    if len(extents) == 1:
        rows: np.ndarray = table[rng.integers(len(table), size=n)]
        return rows
    edges = np.cumsum(tile_weights(extents, parts, max_innermost))
    rows = table[np.searchsorted(edges, rng.random(n) * edges[-1], side="right").clip(max=len(table) - 1)]
    return rows


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


# --------------------------------------------------------------------------------------------------------------- points


class PointTable:
    """Different points, int64 [n, width]; n is at least 1.  Tables are compared as objects: make each once."""

    def __init__(self, points: Matrix) -> None:
        self.points: Matrix = np.unique(points, axis=0)
        self.points.flags.writeable = False

    @cached_property
    def _strides(self) -> Index:
        """What numbers the points, in the order of the table, as digits of one number."""
        sizes = self.points.max(axis=0) + 1
        return np.append(np.cumprod(sizes[:0:-1])[::-1], 1).astype(np.int64)

    @cached_property
    def _keys(self) -> Index:
        keys: Index = self.points @ self._strides
        return keys

    def holds(self, rows: Matrix) -> Mask:
        """Which rows, int64 [m, width], are points: bool [m]."""
        found: Mask = (self.points[self.place(rows)] == rows).all(axis=1)
        return found

    def place(self, rows: Matrix) -> Index:
        """The places of rows in the table, int64 [m], if they are in it."""
        clipped = np.clip(rows, 0, self.points.max(axis=0))
        place: Index = np.minimum(np.searchsorted(self._keys, clipped @ self._strides), len(self.points) - 1)
        return place

    def draw(self, n: int, rng: np.random.Generator) -> Matrix:
        """`n` points, all equally likely: int64 [n, width]."""
        drawn: Matrix = self.points[rng.integers(len(self.points), size=n)]
        return drawn

    @cached_property
    def _near(self) -> tuple[Index, Index]:
        """The points that differ from each in one column: their places one list after the other, and its ends."""
        lists = [np.flatnonzero((self.points != point).sum(axis=1) == 1) for point in self.points]
        return np.concatenate(lists), np.cumsum([0, *map(len, lists)])

    def near(self, row: Index) -> Matrix:
        """The points that differ from a point in one column: int64 [m, width]."""
        places, ends = self._near
        at = int(self.place(row[None])[0])
        found: Matrix = self.points[places[ends[at] : ends[at + 1]]]
        return found

    def moved(self, rows: Matrix, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        """For each point one that differs in one column, all equally likely, and whether there is one."""
        places, ends = self._near
        at = self.place(rows)
        counts = ends[at + 1] - ends[at]
        other = places[np.minimum(ends[at] + below(counts, rng), len(places) - 1)] if len(places) else at
        some: Mask = counts > 0
        return np.where(some[:, None], self.points[other], rows), some
