"""Chapter 8, 30 minutes: a mutation that keeps its invariant.

A row of decisions is a program. The columns `tile.columns` of a tile are the lengths of its inner loops: positive,
their product divides the loop's extent, and the last of them is at most `tile.max_innermost`. Write a mutation for all
rows at once: it draws two columns of the tile for every row and moves a factor 2 from the first to the second, where
that gives a program; other rows stay as they are. It gives changed copies and a mask of the rows that differ. No loop
over rows; all chance comes from `rng`.
"""

import numpy as np


class MoveFactor:
    name, weight = "move a factor", 0.1

    def apply(self, rows, space, rng):
        tile = space.tiles[rng.integers(len(space.tiles))]
        source, target = (tile.first + rng.integers(tile.parts, size=len(rows)) for _ in range(2))
        each = np.arange(len(rows))
        out = ...
        return out, ...
