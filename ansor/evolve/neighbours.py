"""The programs next to one program: every row that differs by one decision (Droplet search)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..space.decisions.decision import Tile
from ..space.decisions.draw import Matrix
from ..space.decisions.factor_tables import covered, divisors
from ..space.spaces import Space


def neighbours(space: Space, row: np.ndarray) -> Matrix:
    """All rows (int64 [n, width]) one step away: a prime moved between two loops of a tile, a point of a grid
    that differs in one length, or another choice."""
    found: list[np.ndarray] = []
    for tile in space.tiles:
        for lengths in _moved_primes(tile, row[tile.columns].tolist()):
            near = row.copy()
            near[tile.columns] = lengths
            found.append(near)
    for grid in space.grids:
        for lengths in grid.table.near(row[grid.columns]):
            near = row.copy()
            near[grid.columns] = lengths
            found.append(near)
    for choice in space.choices:
        for value in choice.values:
            if value != row[choice.column]:
                near = row.copy()
                near[choice.column] = value
                found.append(near)
    return np.stack(found) if found else np.empty((0, space.width), np.int64)


def _moved_primes(tile: Tile, lengths: list[int]) -> Iterator[list[int]]:
    """The lengths after one prime went from one loop to another, the outermost loop (the rest) included."""
    inner = int(np.prod(lengths))
    loops = [covered(tile.extents, inner) // inner, *lengths]
    for source, length in enumerate(loops):
        for prime in (d for d in divisors(length)[1:] if len(divisors(d)) == 2):
            for target in range(len(loops)):
                new = [*loops]
                new[source] //= prime
                new[target] *= prime
                if target != source and new[-1] <= tile.max_innermost:
                    yield new[1:]
