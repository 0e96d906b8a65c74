"""Small changes of many programs at once: every mutation is a few array operations on a decision matrix.

A mutation takes rows of one space and gives changed copies, with a mask of the rows it did change.  `mutate` deals
rows out to mutations by their weights and deals again what was not changed or is not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np

from ..space.choices import ChoiceKind, Matrix, Space, Tile
from ..space.decisions.draw import Index, Mask, below, pick, roulette
from ..space.decisions.factor_tables import divisors

ATTEMPTS = 4


class Mutation(Protocol):
    """One way to change programs; a mutation of one's own needs nothing but these three."""

    @property
    def name(self) -> str: ...

    @property
    def weight(self) -> float:
        """How often it is chosen, relative to the others."""

    def apply(self, rows: Matrix, space: Space, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        """Changed copies of `rows` (int64 [n, width]), valid in `space`, and which of them differ (bool [n])."""


def mutate(
    rows: Matrix,
    space: Space,
    mutations: Sequence[Mutation],
    rng: np.random.Generator,
    allowed: Callable[[Matrix], Mask] | None = None,
) -> tuple[Matrix, Mask]:
    """Every row changed by one mutation, drawn by weight: int64 [n, width], and which rows were changed: bool [n].

    A row that its mutation leaves as it is, or turns into one that is not `allowed`, is dealt again, `ATTEMPTS`
    times; a mutation that changes none of its rows is not asked again.
    """
    out = rows.copy()
    waiting = np.arange(len(rows))
    weights = np.array([m.weight for m in mutations], np.float64)
    for _ in range(ATTEMPTS):
        if not len(waiting) or not weights.any():
            break
        chosen = roulette(weights, len(waiting), rng)
        changed, done = rows[waiting], np.zeros(len(waiting), np.bool_)
        for m, mutation in enumerate(mutations):
            mine = np.flatnonzero(chosen == m)
            if len(mine):
                changed[mine], done[mine] = mutation.apply(rows[waiting[mine]], space, rng)
                weights[m] *= done[mine].any()
        if allowed is not None and done.any():
            done[done] = allowed(changed[done])
        out[waiting[done]] = changed[done]
        waiting = waiting[~done]
    was_changed = np.ones(len(rows), np.bool_)
    was_changed[waiting] = False
    return out, was_changed


# ------------------------------------------------------------------------------------------------ tile sizes


@dataclass(frozen=True)
class Moves:
    """What is needed to move factors, tabulated for the tiles of a space that leave a choice.

    Position 0 of a tile is its outermost length, the rest, which has no column; positions beyond its innermost are
    padding.  `columns` [tiles, positions] holds -1 where there is none.  The divisors > 1 of `values[v]`, in
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


def _leaves_choice(tile: Tile) -> bool:
    """Some factor of the tile can be moved whatever its lengths are."""
    return tile.extent > 1 and (tile.parts > 1 or divisors(tile.extent)[1] <= tile.max_innermost)


@lru_cache(maxsize=256)
def moves_of(space: Space) -> Moves | None:
    """The table of a space; None when no tile leaves a choice."""
    tiles = [t for t in space.tiles if _leaves_choice(t)]
    if not tiles:
        return None
    columns = np.full((len(tiles), 1 + max(t.parts for t in tiles)), -1, np.int64)
    for k, t in enumerate(tiles):
        columns[k, 1 : 1 + t.parts] = np.arange(t.first, t.first + t.parts)
    values = sorted({d for t in tiles for d in divisors(t.extent)})
    lists = [divisors(v)[1:] for v in values]
    stride = values[-1] + 1
    return Moves(
        columns=columns,
        extents=np.array([t.extent for t in tiles], np.int64),
        innermost=np.array([t.parts for t in tiles], np.int64),
        limits=np.array([t.max_innermost for t in tiles], np.int64),
        values=np.array(values, np.int64),
        starts=np.cumsum([0, *map(len, lists)], dtype=np.int64),
        divisors=np.array([d for ds in lists for d in ds], np.int64),
        keys=np.array([v * stride + d for v, ds in enumerate(lists) for d in ds], np.int64),
        stride=stride,
    )


@dataclass(frozen=True)
class MoveFactor:
    """Moves a divisor > 1 of one length of a tile to another length of it; the outermost length takes part.

    Tile, the pair of lengths and the divisor are drawn uniformly among those that keep the innermost length within
    its limit.  (TVM takes the next length of a random permutation, which favours none either.)
    """

    weight: float
    name: str = "tile sizes"

    def apply(self, rows: Matrix, space: Space, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        table = moves_of(space)
        if table is None:
            return rows.copy(), np.zeros(len(rows), np.bool_)
        n = np.arange(len(rows))
        tile = rng.integers(len(table.columns), size=len(rows))
        columns, innermost = table.columns[tile], table.innermost[tile]
        lengths = np.where(columns >= 0, rows[n[:, None], columns], 1)
        lengths[:, 0] = table.extents[tile] // lengths.prod(axis=1)
        room = table.limits[tile] // lengths[n, innermost]
        source, target = self._pair(table, lengths, innermost, room, rng)
        most = np.where(target == innermost, room, lengths[n, source])
        first, ways = table.ways(lengths[n, source], most)
        factor = table.divisors[first + below(ways, rng)]
        lengths[n, source] //= factor
        lengths[n, target] *= factor
        out = rows.copy()
        at, position = np.nonzero(columns >= 0)
        out[at, columns[at, position]] = lengths[at, position]
        return out, np.ones(len(rows), np.bool_)

    @staticmethod
    def _pair(
        table: Moves, lengths: Index, innermost: Index, room: Index, rng: np.random.Generator
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


# ------------------------------------------------------------------------------------------------ choices


@lru_cache(maxsize=1024)
def _choice_table(space: Space, kind: ChoiceKind) -> tuple[Index, Index, Index] | None:
    """Columns [c], values [c, most values] and the number of values [c] of the choices of a kind that have several."""
    choices = [c for c in space.choices if c.kind == kind and len(c.values) > 1]
    if not choices:
        return None
    counts = np.array([len(c.values) for c in choices], np.int64)
    values = np.full((len(choices), counts.max()), np.iinfo(np.int64).max)
    for k, c in enumerate(choices):
        values[k, : len(c.values)] = c.values
    return np.array([c.column for c in choices], np.int64), values, counts


@dataclass(frozen=True)
class NewChoice:
    """Gives one choice of a kind another of its values, both drawn uniformly."""

    name: ChoiceKind
    weight: float

    def apply(self, rows: Matrix, space: Space, rng: np.random.Generator) -> tuple[Matrix, Mask]:
        table = _choice_table(space, self.name)
        if table is None:
            return rows.copy(), np.zeros(len(rows), np.bool_)
        columns, values, counts = table
        n = np.arange(len(rows))
        choice = rng.integers(len(columns), size=len(rows))
        present = np.argmax(values[choice] == rows[n, columns[choice]][:, None], axis=1)
        other = below(counts[choice] - 1, rng)
        out = rows.copy()
        out[n, columns[choice]] = values[choice, other + (other >= present)]
        return out, np.ones(len(rows), np.bool_)


CPU_MUTATIONS: tuple[Mutation, ...] = (
    MoveFactor(0.90), NewChoice("unroll", 0.04), NewChoice("parallel", 0.01), NewChoice("vectorize", 0.02),
)  # fmt: skip
"""TVM's weights; its weight 0.05 for compute locations is a move to another variant here."""

GPU_MUTATIONS: tuple[Mutation, ...] = (
    MoveFactor(0.90), NewChoice("unroll", 0.10), NewChoice("fetch", 0.05), NewChoice("threads", 0.05),
)  # fmt: skip
"""TVM's weights for tile sizes and unrolling; it has no mutation of fetch widths and threads."""
