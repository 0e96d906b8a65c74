"""Do two iterations of a loop touch one element?  By all points of the loops that two indices depend on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from ..expr.expr import Expr, Var
from ..expr.visit import free_vars, walk
from ..loops.stmt import For
from .verify_points import Terms, Values, computable, grids, sum_of, value_at
from .verify_scope import Access
from .verify_span import Boxes

MOST_POINTS = 1 << 20
"""How many points of the accesses of one buffer in one loop are looked at."""

_WIDE = 1 << 52


@dataclass(frozen=True)
class Pair:
    """A write, and a read or write, of two iterations in which the variables `same` have one value."""

    write: Access
    other: Access
    same: frozenset[Var] = frozenset()

    @property
    def both(self) -> tuple[Access, Access]:
        return self.write, self.other


@dataclass(frozen=True)
class Clash:
    """An iteration that writes an element, and another one that touches it."""

    writer: int
    other: int


@dataclass(frozen=True)
class Apart:
    """No two iterations clash; so many points were looked at."""

    points: int


@dataclass(frozen=True)
class Unknown:
    """Neither is known, for a reason."""

    reason: str


def at_points(loop: For, pair: Pair, most: int) -> Apart | Clash | Unknown:
    """What `most` points show."""
    if not all(map(_known, pair.both)):
        return Unknown("what they touch depends on memory")
    places = _places(loop, pair)
    points = sum(p.count for p in places)
    if points <= most:
        return _clash(loop, places) or Apart(points)
    few = [p.few(loop) for p in places]
    found = _clash(loop, few) if sum(p.count for p in few) <= MOST_POINTS else None
    return found or Unknown(f"they have more than {MOST_POINTS} points")


def _known(x: Access) -> bool:
    """Whether the index and the conditions have a value of 64 bits at every point."""
    spans = x.scope.spans
    parts = (x.index, *x.scope.conditions)
    return all(computable(e, spans) for e in parts) and all(
        max(map(abs, spans.of(node))) < _WIDE for e in parts for node in walk(e)
    )


@dataclass(frozen=True)
class _Place:
    """An index, as a sum, and the boxes of the variables that it and the conditions depend on.

    `outer` are those of them that have one value in both accesses, as those of loops outside.
    """

    terms: Terms
    constant: int
    conditions: tuple[Expr, ...]
    boxes: Boxes
    outer: tuple[Var, ...]

    @property
    def count(self) -> int:
        return math.prod(max(0, high - low + 1) for low, high in self.boxes.values())

    def few(self, loop: For) -> _Place:
        """Two iterations of `loop`, and one value of each of `outer`."""
        return replace(self, boxes=_first(_first(self.boxes, (loop.var,), 2), self.outer, 1))

    def points(self, loop: For) -> Iterator[Values]:
        """Columns: the index, the iteration, and the `outer` variables; a row for each point."""
        if not self.count:
            return
        for grid in grids(self.boxes, machine_words=True):
            index = sum((np.multiply(value_at(e, grid), c) for e, c in self.terms.items()), np.int64(self.constant))
            alive = reduce(np.logical_and, [value_at(c, grid) for c in self.conditions], np.True_)
            columns = np.broadcast_arrays(alive, index, grid[loop.var], *[grid[v] for v in self.outer], *grid.values())
            where = np.flatnonzero(columns[0])
            yield np.stack([x.reshape(-1)[where] for x in columns[1 : 3 + len(self.outer)]])


def _first(boxes: Boxes, variables: tuple[Var, ...], count: int) -> Boxes:
    """The boxes with at most the first `count` values of some variables."""
    return {v: (low, min(high, low + count - 1) if v in variables else high) for v, (low, high) in boxes.items()}


def _places(loop: For, pair: Pair) -> list[_Place]:
    """Both accesses, without the terms that are the same in both and in all iterations.

    Where nothing depends on the iteration, two of each are enough: they differ, unless one iteration does it all.
    """
    loops = pair.write.scope.loops
    outer = {x.var for x in loops[: loops.index(loop)]} | pair.same
    sums = [sum_of(x.index) for x in pair.both]
    common = [e for e, c in sums[0][0].items() if free_vars(e) <= outer and sums[1][0].get(e) == c]
    kept = [{e: c for e, c in terms.items() if e not in common} for terms, _ in sums]
    used = [set[Var]().union(*map(free_vars, (*t, *x.scope.conditions))) for t, x in zip(kept, pair.both, strict=True)]
    around = tuple(v for v in outer if any(v in u for u in used))
    twice = () if any(loop.var in u for u in used) else (loop.var,)
    return [
        _Place(
            terms, constant, x.scope.conditions, _first({v: x.scope.spans.boxes[v] for v in names}, twice, 2), around
        )
        for terms, (_, constant), x, u in zip(kept, sums, pair.both, used, strict=True)
        for names in [u.union(around, [loop.var])]
    ]


def _clash(loop: For, places: list[_Place]) -> Clash | None:
    """An element that an iteration writes and another one touches."""
    parts = [list(p.points(loop)) for p in places]
    if not all(parts):
        return None
    writes, others = [np.concatenate(blocks, axis=1) for blocks in parts]
    if not writes.shape[1] or not others.shape[1]:
        return None
    both = np.concatenate([writes, others], axis=1)
    element, count = _numbered(np.delete(both, 1, axis=0))
    if _alone(element, count, both[1], writes.shape[1]):
        return None
    written, touched = element[: writes.shape[1]], element[writes.shape[1] :]
    shared = np.isin(element, np.intersect1d(written, touched))
    element, both, write = element[shared], both[:, shared], (np.arange(shared.size) < writes.shape[1])[shared]
    order = np.lexsort((both[1], element))
    differ = (np.diff(element[order]) == 0) & (np.diff(both[1][order]) != 0)
    if not differ.any():
        return None
    one = element == element[order][int(np.argmax(differ))]
    return _pair(both[1][one & write], both[1][one & ~write])


def _alone(element: Values, count: int, iteration: Values, writes: int) -> bool:
    """Whether each written element has one writer, and nobody else touches it; the first `writes` entries are writes.

    Nothing is sorted for this, which most pairs pass.
    """
    owner = np.zeros(count, np.int64)
    written = np.zeros(count, np.bool_)
    owner[element[:writes]] = iteration[:writes]  # of several, any
    written[element[:writes]] = True
    return not (written[element] & (owner[element] != iteration)).any()


def _numbered(rows: Values) -> tuple[Values, int]:
    """A number for each column, below the one given with them; equal columns have equal numbers."""
    lows, highs = rows.min(axis=1), rows.max(axis=1)
    sizes = [int(high) - int(low) + 1 for low, high in zip(lows, highs, strict=True)]
    if math.prod(sizes) >= _WIDE:
        return _sorted(rows)
    key = np.zeros(rows.shape[1], np.int64)
    for row, low, size in zip(rows, lows, sizes, strict=True):
        key = key * size + (row - low)
    if math.prod(sizes) <= 4 * MOST_POINTS:
        return key, math.prod(sizes)
    values, key = np.unique(key, return_inverse=True)
    return key, values.size


def _sorted(rows: Values) -> tuple[Values, int]:
    """As `_numbered`, for columns that are too far apart to be counted."""
    key, count = np.zeros(rows.shape[1], np.int64), 1
    for row in rows:
        _, found = np.unique(row, return_inverse=True)
        values, key = np.unique(key * rows.shape[1] + found, return_inverse=True)
        count = values.size
    return key, count


def _pair(writers: Values, others: Values) -> Clash:
    """Two iterations, one of each, that differ."""
    return next(
        Clash(int(w), int(x)) for w in (writers.min(), writers.max()) for x in (others.min(), others.max()) if w != x
    )
