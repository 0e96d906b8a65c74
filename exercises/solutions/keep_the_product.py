"""Divide here, multiply there, and only where both lengths stay what they may be."""

import numpy as np


class MoveFactor:
    name, weight = "move a factor", 0.1

    def apply(self, rows, space, rng):
        tile = space.tiles[rng.integers(len(space.tiles))]
        source, target = (tile.first + rng.integers(tile.parts, size=len(rows)) for _ in range(2))
        each = np.arange(len(rows))
        out = rows.copy()
        even = rows[each, source] % 2 == 0
        last = target == tile.first + tile.parts - 1
        fits = ~last | (rows[each, target] * 2 <= tile.max_innermost)
        moved = (source != target) & even & fits
        out[each[moved], source[moved]] //= 2
        out[each[moved], target[moved]] *= 2
        return out, moved
