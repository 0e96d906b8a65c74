"""The loops of one row as matrices over levels: what several groups of columns share."""

from __future__ import annotations

from typing import Any

import numpy as np

from te_lite.bounds.footprint import Cover

from ..space.trace import recorded
from .lanes import Value

Level = np.ndarray[Any, np.dtype[np.intp]]
Matrix = np.ndarray[Any, np.dtype[np.float64]]
Marks = np.ndarray[Any, np.dtype[np.bool_]]
Numbers = np.ndarray[Any, np.dtype[np.int16]]


class Shape:
    """`inside[l]`: product of the extents of loops l .. L-1, float64 [L+1, n]; `long[j]`: loop j is longer than 1.

    `lengths[j]` is the extent of loop j, with a last row of zeros; `places[j]` is j + 1 where loop j is long, else 0;
    `first` and `last` are the outermost and innermost long loop (-1 where there is none).
    """

    def __init__(self, cover: Cover, n: Any) -> None:
        self.nest, self.cover, self.n = cover.nest, cover, n
        self.extents = cover.extents
        self.inside: Matrix = _inside(self.n, *self.extents)
        self.lengths: Matrix = stacked(self.n, *self.extents, 0.0)
        self.long = _long(self.lengths)
        self.places = _numbered(self.long)
        self.last = self.innermost(list(range(len(self.extents))))
        self.first = _outermost(self.long)

    def innermost(self, loops: list[int]) -> Level:
        """The innermost of `loops` longer than 1, in every lane; -1 where there is none."""
        found: Level = _innermost(self.places, tuple(loops))
        return found


@recorded
def stacked(n: int, *rows: Value) -> Matrix:
    """Row values as the rows of a matrix, [len(rows), n]."""
    out = np.empty((len(rows), n))
    for j, row in enumerate(rows):
        out[j] = row
    return out


@recorded
def at(matrix: Matrix, level: Level) -> Value:
    """The value of each lane at its level (intp [..., n]); -1 is the last one."""
    n = matrix.shape[1]
    return matrix.ravel().take(level * n + np.arange(n))


@recorded
def _inside(n: int, *extents: Value) -> Matrix:
    out = np.ones((len(extents) + 1, n))
    for j in reversed(range(len(extents))):
        np.multiply(out[j + 1], extents[j], out=out[j])
    return out


@recorded
def _long(lengths: Matrix) -> Marks:
    return lengths[:-1] > 1


@recorded
def _numbered(long: Marks) -> Numbers:
    return long * np.arange(1, len(long) + 1, dtype=np.int16)[:, None]


@recorded
def _innermost(places: Numbers, loops: tuple[int, ...]) -> Level:
    found: Level = places[list(loops)].max(axis=0, initial=0).astype(np.intp) - 1
    return found


@recorded
def _outermost(long: Marks) -> Level:
    from_end = (long * np.arange(len(long), 0, -1, dtype=np.int16)[:, None]).max(axis=0, initial=0).astype(np.intp)
    return np.where(from_end > 0, len(long) - from_end, -1)
