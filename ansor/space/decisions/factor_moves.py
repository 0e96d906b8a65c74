"""Factors moved between the lengths of tiles, for many programs at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .decision import Tile
from .draw import Index, Mask, Matrix, below, pick
from .factor_tables import divisors


@dataclass(frozen=True)
class FactorMoves:
    """What is needed to move factors, tabulated for the tiles that leave a choice.

    Position 0 of a tile is its outermost length, the rest, which has no column; positions beyond its innermost are
    padding.  `columns` [tiles, positions] holds -1 where there is none; so does `extents` [tiles, most of them], whose
    first column is an extent of every tile.  The divisors > 1 of `values[v]`, in
    increasing order, are `divisors[starts[v] : starts[v + 1]]`; `keys` is `v * stride + divisor`.
    """

    columns: Index
    extents: Index
    innermost: Index
    limits: Index
    values: Index
    starts: Index
    divisors: Index
    keys: Index
    stride: int

    def ways(self, lengths: Index, most: Index) -> tuple[Index, Index]:
        """For each length the place of its first divisor > 1, and how many are at most `most` (of the same shape)."""
        v = np.searchsorted(self.values, lengths)
        first = self.starts[v]
        limit = v * self.stride + np.minimum(most, self.stride - 1)
        return first, np.searchsorted(self.keys, limit, side="right") - first

    def outermost(self, tile: Index, inner: Index) -> Index:
        """The turns of the outermost loop over tiles of `inner` points, in the first extent that they divide."""
        extents = self.extents[tile]
        divided = (extents > 0) & (extents % inner[:, None] == 0)
        found: Index = extents[np.arange(len(inner)), np.argmax(divided, axis=1)] // inner
        return found


def _leaves_choice(tile: Tile) -> bool:
    """Some factor of the tile can be moved whatever its lengths are."""
    return any(e > 1 and (tile.parts > 1 or divisors(e)[1] <= tile.max_innermost) for e in tile.extents)


@lru_cache(maxsize=256)
def factor_moves(tiles: tuple[Tile, ...]) -> FactorMoves | None:
    """The table of some tiles; None when none of them leaves a choice."""
    tiles = tuple([t for t in tiles if _leaves_choice(t)])
    if not tiles:
        return None
    columns = np.full((len(tiles), 1 + max(t.parts for t in tiles)), -1, np.int64)
    for k, t in enumerate(tiles):
        columns[k, 1 : 1 + t.parts] = np.arange(t.first, t.first + t.parts)
    extents = np.full((len(tiles), max(len(t.extents) for t in tiles)), -1, np.int64)
    for k, t in enumerate(tiles):
        extents[k, : len(t.extents)] = t.extents
    values = sorted({d for t in tiles for e in t.extents for d in divisors(e)})
    lists = [divisors(v)[1:] for v in values]
    stride = values[-1] + 1
    return FactorMoves(
        columns=columns,
        extents=extents,
        innermost=np.array([t.parts for t in tiles], np.int64),
        limits=np.array([t.max_innermost for t in tiles], np.int64),
        values=np.array(values, np.int64),
        starts=np.cumsum([0, *map(len, lists)], dtype=np.int64),
        divisors=np.array([d for ds in lists for d in ds], np.int64),
        keys=np.array([v * stride + d for v, ds in enumerate(lists) for d in ds], np.int64),
        stride=stride,
    )


def move_factors(tiles: tuple[Tile, ...], rows: Matrix, rng: np.random.Generator) -> tuple[Matrix, Mask]:
    """Moves a divisor > 1 of one length of a tile to another length of it; the outermost length takes part.

    Tile, the pair of lengths and the divisor are drawn uniformly among those that keep the innermost length within
    its limit.  (TVM takes the next length of a random permutation, which favours none either.)
    """
    table = factor_moves(tiles)
    if table is None:
        return rows.copy(), np.zeros(len(rows), np.bool_)
    n = np.arange(len(rows))
    tile = rng.integers(len(table.columns), size=len(rows))
    columns, innermost = table.columns[tile], table.innermost[tile]
    lengths = np.where(columns >= 0, rows[n[:, None], columns], 1)
    lengths[:, 0] = table.outermost(tile, lengths.prod(axis=1))
    room = table.limits[tile] // lengths[n, innermost]
    source, target = _pair(table, lengths, innermost, room, rng)
    most = np.where(target == innermost, room, lengths[n, source])
    first, ways = table.ways(lengths[n, source], most)
    factor = table.divisors[first + below(ways, rng)]
    lengths[n, source] //= factor
    lengths[n, target] *= factor
    out = rows.copy()
    at, position = np.nonzero(columns >= 0)
    out[at, columns[at, position]] = lengths[at, position]
    return out, np.ones(len(rows), np.bool_)


def _pair(
    table: FactorMoves, lengths: Index, innermost: Index, room: Index, rng: np.random.Generator
) -> tuple[Index, Index]:
    """A source and a target position for each row of `lengths`."""
    n, positions = lengths.shape
    place = np.arange(positions)
    can_give = lengths > 1
    fits_inside = table.ways(lengths, np.broadcast_to(room[:, None], lengths.shape))[1] > 0
    is_innermost = place == innermost[:, None]
    can_take = place <= innermost[:, None]
    possible = can_give[:, :, None] & can_take[:, None, :] & (place[:, None] != place)
    possible &= fits_inside[:, :, None] | ~is_innermost[:, None, :]
    pair = pick(possible.reshape(n, -1), rng)
    return pair // positions, pair % positions
