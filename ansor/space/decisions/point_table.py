"""Numbers that only go together in some ways: all of these ways, tabulated."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from .draw import Index, Mask, Matrix, below


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
