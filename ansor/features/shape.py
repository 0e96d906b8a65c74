"""The loops of one row as matrices over levels: what several groups of columns share."""

from __future__ import annotations

from typing import Any

import numpy as np

from .cover import Cover, Value

Level = np.ndarray[Any, np.dtype[np.intp]]
Matrix = np.ndarray[Any, np.dtype[np.float64]]


class Shape:
    """`inside[l]`: product of the extents of loops l .. L-1, float64 [L+1, lanes]; `long[j]`: loop j is longer than 1.

    `lengths[j]` is the extent of loop j, with a last row of zeros; `places[j]` is j + 1 where loop j is long, else 0;
    `first` and `last` are the outermost and innermost long loop (-1 where there is none).
    """

    def __init__(self, cover: Cover) -> None:
        self.nest, self.cover = cover.nest, cover
        self.n = cover.lanes.n
        self.extents = cover.extents
        count = len(self.extents)
        self.inside: Matrix = np.ones((count + 1, self.n))
        self.lengths: Matrix = np.zeros((count + 1, self.n))
        for j in reversed(range(count)):
            self.lengths[j] = self.extents[j]
            np.multiply(self.inside[j + 1], self.extents[j], out=self.inside[j])
        self.long = self.lengths[:-1] > 1
        numbers = np.arange(1, count + 1, dtype=np.int16)[:, None]
        self.places = self.long * numbers
        self.last = self.innermost(list(range(count)))
        from_end = (self.long * numbers[::-1]).max(axis=0, initial=0).astype(np.intp)
        self.first = np.where(from_end > 0, count - from_end, -1)
        self._lanes = np.arange(self.n)

    def rows(self, count: int) -> Matrix:
        """`count` rows of zeros."""
        return np.zeros((count, self.n))

    def innermost(self, loops: list[int]) -> Level:
        """The innermost of `loops` longer than 1, in every lane; -1 where there is none."""
        found: Level = self.places[loops].max(axis=0, initial=0).astype(np.intp) - 1
        return found

    def at(self, matrix: Matrix, level: Level) -> Value:
        """The value of each lane at its level."""
        return matrix[level, self._lanes]
