"""Structural buckets: programs that use a machine alike, so that a round is not spent on one kind of program.

Two programs of a variant share a bucket when, stage by stage, the products of their lengths at every level agree up
to a factor of 2: the number of threads, the size of the tile of a thread, the length of the inner reduction, and so
on (the hierarchical sampling of Anderson et al., OOPSLA 2021, section 3.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from ..space.choices import Space, Variant
from ..space.decisions.draw import Matrix

Row = tuple[Variant, np.ndarray]


@lru_cache(maxsize=256)
def _levels(space: Space) -> tuple[tuple[int, ...], ...]:
    """The columns that are multiplied: for each stage and kind of loop, those of one level."""
    found: dict[tuple[int, bool, int], list[int]] = {}
    for tile in space.tiles:
        for level in range(tile.parts):
            found.setdefault((tile.stage, tile.reduce, level), []).append(tile.first + level)
    of_grids = [(column,) for grid in space.grids for column in range(grid.first, grid.first + grid.width)]
    return (*[tuple(columns) for columns in found.values()], *of_grids)


def bucket(space: Space, rows: Matrix) -> Matrix:
    """The bucket of each row: int64 [n, levels], floor(log2) of the products."""
    levels = [np.log2(rows[:, columns].prod(axis=1)) for columns in map(list, _levels(space))]
    return np.stack(levels, axis=1).astype(np.int64) if levels else np.zeros((len(rows), 0), np.int64)


def spread(rows: Sequence[Row], most: int) -> Iterator[Row]:
    """The rows in their order, those first that are among the `most` first ones of their bucket."""
    taken: Counter[tuple[Variant, bytes]] = Counter()
    late = []
    for variant, row in rows:
        key = (variant, bucket(variant.space, row[None, :]).tobytes())
        taken[key] += 1
        if taken[key] <= most:
            yield variant, row
        else:
            late.append((variant, row))
    yield from late
