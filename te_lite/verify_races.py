"""Do the iterations of a loop that run at once leave each other's elements alone?

Of a block or parallel loop, and a buffer that lives outside of it and is written and read in its body: no iteration may
read an element that another one writes.  Elements that several write and none of them reads are no race: what is
computed again is the same value.  Two arguments, cheapest first:

    digits      an equal index shows an equal iteration (`verify_digits.py`)
    points      all points of the loops that the indices and their conditions depend on, up to `MOST_POINTS`
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from .expr import Expr, Var
from .stmt import Buffer, For
from .stmt_text import head_text
from .verify_access import Counterexample, Open, Shown
from .verify_digits import iterations_equal
from .verify_points import Terms, computable, grids, sum_of, value_at
from .verify_span import Boxes, Span
from .verify_walk import Access, Walk
from .visit import free_vars, walk

MOST_POINTS = 1 << 20
"""How many points of the accesses of one buffer in one loop are looked at."""

_WIDE = 1 << 52
Values = Any  # np.ndarray of int64


@dataclass(frozen=True)
class Meeting:
    """A loop whose iterations run at once, and the accesses in its body of a buffer that lives outside of it."""

    loop: For
    buffer: Buffer
    writes: tuple[Access, ...]
    reads: tuple[Access, ...]


def meetings(walk: Walk) -> Iterator[Meeting]:
    """Where iterations could read what others write."""
    for buffer in dict.fromkeys(x.buffer for x in walk.written):
        reads = [x for x in walk.read if x.buffer is buffer]
        writes = [x for x in walk.written if x.buffer is buffer] if reads else []
        for loop in dict.fromkeys(t.loop for x in writes for t in x.scope.turns if buffer in t.outside):
            inside = [_different([x for x in a if loop in x.scope.loops]) for a in (writes, reads)]
            if inside[1]:
                yield Meeting(loop, buffer, inside[0], inside[1])


def _different(accesses: list[Access]) -> tuple[Access, ...]:
    """The accesses without those that touch the same elements."""
    once = {(x.index, id(x.scope.spans), x.scope.conditions): x for x in accesses}
    return tuple({(x.index, *_around(x)): x for x in once.values()}.values())


def _around(x: Access) -> tuple[tuple[Expr, ...], frozenset[tuple[Var, Span]]]:
    """The conditions of an access, and the boxes of the variables that it and they depend on."""
    used = set[Var]().union(*map(free_vars, (x.index, *x.scope.conditions)))
    return x.scope.conditions, frozenset((v, x.scope.spans.of(v)) for v in used)


def settle_meeting(m: Meeting) -> Shown | Counterexample | Open:
    """What is known of it."""
    points = 0
    for write, read in _pairs(m):
        if not iterations_equal(m.loop, write, read):
            found = _at_points(replace(m, writes=(write,), reads=(read,)), MOST_POINTS - points)
            if not isinstance(found, Shown):
                return found
            points += found.points
    return Shown(points)


def _pairs(m: Meeting) -> Iterator[tuple[Access, Access]]:
    """A write and a read each, without those that differ from others by the same constant in both."""
    sums = [[(x, *x.forms.of(x.index), _around(x)) for x in some] for some in (m.writes, m.reads)]
    numbers: dict[object, int] = {}
    writes, reads = [
        [(numbers.setdefault((frozenset(t.items()), around), len(numbers)), c, x) for x, t, c, around in some]
        for some in sums
    ]
    yield from {(i, j, a - b): (w, r) for i, a, w in writes for j, b, r in reads}.values()


def _at_points(m: Meeting, most: int) -> Shown | Counterexample | Open:
    """What `most` points show."""
    if not all(_known(x) for x in m.writes + m.reads):
        return _open(m, "what they touch depends on memory")
    places = _places(m)
    points = sum(p.count for p in places)
    if points <= most:
        return _clash(m, places) or Shown(points)
    few = [p.few(m.loop) for p in places]
    clash = _clash(m, few) if sum(p.count for p in few) <= MOST_POINTS else None
    return clash or _open(m, f"they have more than {MOST_POINTS} points")


def _known(x: Access) -> bool:
    """Whether the index and the conditions have a value of 64 bits at every point."""
    spans = x.scope.spans
    parts = (x.index, *x.scope.conditions)
    return all(computable(e, spans) for e in parts) and all(
        max(map(abs, spans.of(node))) < _WIDE for e in parts for node in walk(e)
    )


def _open(m: Meeting, reason: str) -> Open:
    where = f"the iterations of {m.loop.kind.value} loop {m.loop.var.name}"
    return Open(f"nothing shows that {where} read no element of {m.buffer.name} that another one writes: {reason}")


@dataclass(frozen=True)
class _Place:
    """An index, as a sum, and the boxes of the variables that it and the conditions depend on.

    `outer` are those of them that are variables of loops outside.
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
        """Two iterations of `loop`, and one of each loop outside."""
        ends = {loop.var: (0, 1)} | {v: (0, 0) for v in self.outer}
        return replace(self, boxes=_clipped(self.boxes, ends))

    def points(self, loop: For) -> Iterator[Values]:
        """Columns: the index, the iteration, and the variables of the loops outside; a row for each point."""
        if not self.count:
            return
        for grid in grids(self.boxes, machine_words=True):
            index = sum((np.multiply(value_at(e, grid), c) for e, c in self.terms.items()), np.int64(self.constant))
            alive = reduce(np.logical_and, [value_at(c, grid) for c in self.conditions], np.True_)
            columns = np.broadcast_arrays(alive, index, grid[loop.var], *[grid[v] for v in self.outer], *grid.values())
            where = np.flatnonzero(columns[0])
            yield np.stack([x.reshape(-1)[where] for x in columns[1 : 3 + len(self.outer)]])


def _clipped(boxes: Boxes, ends: Boxes) -> Boxes:
    """The boxes inside of `ends`."""
    both = {v: (box, ends.get(v, box)) for v, box in boxes.items()}
    return {v: (max(a[0], b[0]), min(a[1], b[1])) for v, (a, b) in both.items()}


def _places(m: Meeting) -> list[_Place]:
    """The accesses, writes first, without the terms that are the same in all of them and in all iterations."""
    accesses = m.writes + m.reads
    loops = accesses[0].scope.loops
    outer = {x.var for x in loops[: loops.index(m.loop)]}
    sums = [sum_of(x.index) for x in accesses]
    common = [e for e, c in sums[0][0].items() if free_vars(e) <= outer and all(t.get(e) == c for t, _ in sums)]
    kept = [{e: c for e, c in terms.items() if e not in common} for terms, _ in sums]
    used = [set[Var]().union(*map(free_vars, (*t, *x.scope.conditions))) for t, x in zip(kept, accesses, strict=True)]
    around = tuple(v for v in outer if any(v in u for u in used))
    ends = {} if any(m.loop.var in u for u in used) else {m.loop.var: (0, 1)}
    return [
        _Place(terms, constant, x.scope.conditions, _clipped({v: x.scope.spans.boxes[v] for v in names}, ends), around)
        for terms, (_, constant), x, u in zip(kept, sums, accesses, used, strict=True)
        for names in [u.union(around, [m.loop.var])]
    ]


def _clash(m: Meeting, places: list[_Place]) -> Counterexample | None:
    """An element that an iteration writes and another one reads."""
    count = len(m.writes)
    parts = [[block for p in some for block in p.points(m.loop)] for some in (places[:count], places[count:])]
    if not all(parts):
        return None
    writes, reads = [np.concatenate(blocks, axis=1) for blocks in parts]
    both = np.concatenate([writes, reads], axis=1)
    element = _numbered(np.delete(both, 1, axis=0))
    written, read = element[: writes.shape[1]], element[writes.shape[1] :]
    shared = np.isin(element, np.intersect1d(written, read))
    element, both, write = element[shared], both[:, shared], (np.arange(shared.size) < writes.shape[1])[shared]
    order = np.lexsort((both[1], element))
    differ = (np.diff(element[order]) == 0) & (np.diff(both[1][order]) != 0)
    if not differ.any():
        return None
    one = element == element[order][int(np.argmax(differ))]
    writer, reader = _pair(both[1][one & write], both[1][one & ~write])
    return _counterexample(m, writer, reader)


def _numbered(rows: Values) -> Values:
    """A number for each column; equal columns have equal numbers."""
    key = np.zeros(rows.shape[1], np.int64)
    for row in rows:
        _, values = np.unique(row, return_inverse=True)
        _, key = np.unique(key * rows.shape[1] + values, return_inverse=True)
    return key


def _pair(writers: Values, readers: Values) -> tuple[int, int]:
    """Two iterations, one of each, that differ."""
    return next(
        (int(w), int(r)) for w in (writers.min(), writers.max()) for r in (readers.min(), readers.max()) if w != r
    )


def _counterexample(m: Meeting, writer: int, reader: int) -> Counterexample:
    var, kind = m.loop.var.name, m.loop.kind.value
    write, read = head_text(m.writes[0].statement), head_text(m.reads[0].statement)
    return Counterexample(
        f"iteration {reader} of {kind} loop {var} reads an element of {m.buffer.name}, as in `{read}`, that iteration "
        f"{writer} writes, as in `{write}`"
    )
