"""Results of groups of warps that the copy engine stores, in boxes of 64 rows that go through shared memory.

    for j, i: C[row(i, lane), 8 * j + 2 * (lane % 4) + v] = f(d[j, i, v])           v in 0..2, a vector

    for box: wait until the engine has read the box before the last one; all threads of the group meet
             for j of the box, i: place[i, j] = f(d[j, i, v])                       swizzled
             all threads meet; one of them has the box stored

Two boxes of a group are in shared memory, if there is room, one of which is stored while the other one is filled.  The
first box of a part waits for all of the part before, as one of them may be in its place.  Where lines do not
divide the columns, the last box begins earlier, and some columns are stored twice, if they depend on registers and
smaller arrays only.  What lies beyond the edge of the result is not stored, and must be just what the kernel does not
store.  Where columns of the product are rows of C, a box has its 64 rows as columns, and each value a place of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Expr, Var, as_expr, binary, compare, const, index_xor, logical_and, same
from te_lite.expr.lanes import ceildiv
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import conjuncts, substitute, transform, walk
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, If, Stmt, Store, seq

from ..pipeline.staged_copies import enclosing
from .added_boxes import AddedBoxes, Fetching, added_boxes
from .copy_boxes import Box, Copy, box_of, can_be_told
from .instructions import BoxStore, RingCall, Rounded
from .mma import GROUP_ROW_BYTES, WARPS
from .near_one import stored_near_one
from .row_folds import rounded_value
from .swizzle import Swizzle

PLACES, ROWS, TILE = 2, 64, 8
"""Boxes of a group in shared memory, rows of a box, rows and columns of a tile of the result."""
LEAST_LINE = 64
"""Bytes of a line of a box, with which boxes are worth it."""


@dataclass(frozen=True)
class Group:
    """Groups of warps: the number of a warp and of a lane, how many groups there are, the variables of loops `around`
    all their work, and whether that `repeats` for several parts of the result; the number of the group itself where
    each computes a part alone, in `turn`."""

    warp: Var
    lane: Var
    count: int
    around: frozenset[Var]
    repeats: bool
    turn: Var | None = None

    @property
    def of_part(self) -> Expr:
        """The number of a group among those that compute the same part."""
        return binary("//", self.warp, WARPS)

    @property
    def number(self) -> Expr:
        return self.of_part if self.turn is None else self.turn

    @property
    def groups(self) -> int:
        """Those that store results at the same time, in parts of their own."""
        return self.count if self.turn is None else 2

    @property
    def places(self) -> int:
        """The boxes of a group in shared memory: of two that compute parts in turns each has one."""
        return PLACES if self.turn is None else 1

    def once(self, s: Stmt) -> Stmt:
        """What one thread of each group does."""
        return If(logical_and(compare("==", binary("%", self.warp, WARPS), 0), compare("==", self.lane, 0)), s)

    def each_warp(self, s: Stmt) -> Stmt:
        """What one thread of each warp does."""
        return If(compare("==", self.lane, 0), s)


@dataclass(frozen=True)
class Boxed:
    """What stores results in boxes that are put together in `place`; what is fetched `before` products into them, maybe
    all that is, whose `barriers` say that it has arrived."""

    body: Stmt
    place: Buffer
    before: tuple[Stmt, ...] = ()
    all_before: bool = False
    barriers: Buffer | None = None

    @property
    def held(self) -> list[Buffer]:
        return [self.place] if self.barriers is None else [self.barriers, self.place]


@dataclass(frozen=True)
class Epilogue:
    """Loops over tiles of 8 columns, `across`, and of 8 rows, `down`, and two neighbours, `pair`, around a store where
    `inside` holds."""

    across: For
    down: For
    pair: For
    inside: tuple[Expr, ...]
    store: Store

    @property
    def columns(self) -> int:
        return TILE * self.across.extent

    @property
    def turned(self) -> bool:
        """Whether columns of the product are rows of the array: neighbours are of two rows then."""
        return self.pair.kind is not ForKind.VECTORIZED

    @property
    def has_lines(self) -> bool:
        """Whether lines of boxes are long enough, and no longer than those of tiles."""
        line = ROWS if self.turned else self.line
        return LEAST_LINE <= line * BYTES[self.store.buffer.dtype] <= GROUP_ROW_BYTES

    @property
    def is_alone(self) -> bool:
        """Whether values are of registers only."""
        return all(b.storage == "local" for b in _read(self.store.value))

    @property
    def line(self) -> int:
        """Columns of a box, a power of two; one that divides all of them where none may be stored twice: where a value
        may be of the array that it replaces (`written_over.py`), which is no smaller one."""
        most, result = GROUP_ROW_BYTES // BYTES[self.store.buffer.dtype], self.store.buffer
        twice = all(b.storage == "local" or b.size < result.size for b in _read(self.store.value))
        return min(1 << self.columns.bit_length() - 1, most) if twice else gcd(self.columns, most)


def in_boxes(
    s: Stmt, group: Group, ranges: Simplifier, fetching: Fetching | None = None, room: int = 0
) -> Boxed | None:
    """An epilogue that is stored in boxes, with places in `room` bytes where these are more than a group has anyway;
    None where it is none.  An array that it adds may be fetched so, too."""
    found = epilogue_of(s)
    box = None if found is None or not found.has_lines else _box(found, group, ranges)
    return None if found is None or box is None else _boxed(found, box, group, ranges, fetching, room)


def _boxed(found: Epilogue, box: Box, group: Group, ranges: Simplifier, fetching: Fetching | None, room: int) -> Boxed:
    line, result = found.line, found.store.buffer
    count, nbytes = ceildiv(found.columns, line), ROWS * line * BYTES[result.dtype]
    added = None if fetching is None else added_boxes(found.store, count, nbytes, group.groups, fetching)
    number, tile = Var("box"), Var(found.across.var.name)
    ranges.bind(number, 0, count - 1)
    ranges.bind(tile, 0, line // TILE - 1)
    fits = max(group.places, min(PLACES, room // (group.groups * nbytes)))
    places = min(fits, count) if added is None else added.places
    rows, wide = (line, ROWS) if found.turned else (ROWS, line)
    place = Buffer("boxes", result.dtype, (group.groups * places, rows, wide), "shared")
    boxes = _Boxes(_with_added(found, added), group, ranges, box, line, count, places, place, added)
    return boxes.boxed(number, tile)


def _with_added(found: Epilogue, added: AddedBoxes | None) -> Epilogue:
    """An epilogue that reads what is added where a thread has it."""
    if added is None:
        return found
    own, load = BufferLoad(added.pair, found.pair.var), added.load
    value = transform(found.store.value, lambda e: own if isinstance(e, BufferLoad) and same(e, load) else None)
    return replace(found, store=replace(found.store, value=value))


@dataclass(frozen=True)
class _Boxes:
    """`count` boxes of all that a group stores, with `line` columns each, some `places` of which are in `place`."""

    found: Epilogue
    group: Group
    ranges: Simplifier
    box: Box
    line: int
    count: int
    places: int
    place: Buffer
    added: AddedBoxes | None

    def boxed(self, number: Var, tile: Var) -> Boxed:
        """The epilogue, by the number of a box and the tile in it."""
        filled, meet = self._fill(number, tile), RingCall("group_meets", (self.group.number,))
        stored = seq(filled, meet, self.group.once(self._stored(number)))
        if self.added is not None:
            return self._with_fetches(self.added, number, stored)
        body = seq(*self._read(number), RingCall("group_follows", (self.group.number,)), stored)
        return Boxed(For(number, self.count, ForKind.UNROLLED, body), self.place)

    def _read(self, number: Var) -> Iterator[Stmt]:
        """What waits until a place is read: where the last box of a part may be in the first place, the first waits for
        all."""
        left = self.places - 1
        every, others = (self.group.once(RingCall("boxes_read", (), n)) for n in (0, left))
        if left and self.group.repeats and self.count % self.places:
            yield If(compare("==", number, 0), every)
            others = If(compare(">", number, 0), others)
        yield others

    def _with_fetches(self, added: AddedBoxes, number: Var, stored: Stmt) -> Boxed:
        """An epilogue whose boxes have what is added before they are `stored`."""
        read, further = RingCall("boxes_read", (), 0), compare("<", number, self.count - self.places)
        body = seq(added.wait(number, self._own(number), self.ranges), stored)
        if self.count > self.places:
            fetched = seq(read, self._fetched(binary("+", number, self.places)))
            body = seq(body, If(further, self.group.once(fetched)))
        ahead = Var("box")
        self.ranges.bind(ahead, 0, self.places - 1)
        before = self.group.once(seq(read, For(ahead, self.places, ForKind.UNROLLED, self._fetched(ahead))))
        every = For(number, self.count, ForKind.UNROLLED, body)
        return Boxed(every, self.place, (before,), self.count == self.places, added.barriers)

    def _own(self, number: Expr) -> Expr:
        """The place of a box."""
        within = binary("%", number, self.places)
        return self.ranges.simplify(binary("+", binary("*", self.group.number, self.places), within))

    def _first_tile(self, number: Expr) -> Expr:
        last = (self.found.columns - self.line) // TILE
        return binary("min", binary("*", number, self.line // TILE), last)

    def _fill(self, number: Var, tile: Var) -> Stmt:
        found, line = self.found, self.line
        env = {found.across.var: binary("+", self._first_tile(number), tile)}
        value, *asked = [self.ranges.simplify(substitute(e, env)) for e in (found.store.value, *found.inside)]
        inside = [] if found.is_alone and self._has_all(value) else asked  # what is not stored may be anything
        at = _place(self._own(number), self.group, found, tile, line, self.place.dtype)
        to = Store(self.place, self.ranges.simplify(at), value)
        pair = _filled(found, to, inside)
        if self.added is not None:
            pair = Alloc(self.added.pair, seq(self.added.read(found.pair, to), pair))
        return For(tile, line // TILE, ForKind.UNROLLED, replace(found.down, body=pair))

    def _has_all(self, value: Expr) -> bool:
        """Whether a thread has sums of all columns: of a result with fewer than a block has it has no more."""
        found = {x.buffer: self.ranges.bounds(x.index)[1] for x in walk(value) if isinstance(x, BufferLoad)}
        return all(high is not None and high < b.size for b, high in found.items())

    def _at(self, number: Expr) -> tuple[BufferLoad, list[Expr], Box]:
        """Where a box is put together, where it begins, and what it is."""
        first = self.ranges.simplify(binary("*", self._own(number), ROWS * self.line))
        at, extents, axis = list(self.box.start), list(self.box.extents), -1
        if self.found.turned:
            axis = self.box.extents.index(self.found.columns)
        begin = binary("*", self._first_tile(number), TILE)
        at[axis], extents[axis] = self.ranges.simplify(binary("+", at[axis], begin)), self.line
        return BufferLoad(self.place, first), at, replace(self.box, start=(), extents=tuple(extents))

    def _stored(self, number: Var) -> Stmt:
        to, at, box = self._at(number)
        return BoxStore(f"box_store_{len(at)}d", (to, *at[::-1]), box=box, turned=self.found.turned)

    def _fetched(self, number: Expr) -> Stmt:
        assert self.added is not None
        to, at, box = self._at(number)
        return self.added.fetch(box, to, at, self._own(number), ROWS * self.line * BYTES[self.place.dtype])


def _filled(found: Epilogue, to: Store, inside: Sequence[Expr]) -> Stmt:
    """Two neighbours put into a box where `inside` holds; floats that become 16 bits are rounded together."""
    value, pair = None if found.turned else rounded_value(to.value), found.pair
    if value is None:
        kind = ForKind.UNROLLED if found.turned else pair.kind
        return replace(pair, kind=kind, body=If(logical_and(*inside), to) if inside else to)
    two = Buffer("two", "float32", (pair.extent,), "local")
    kept = stored_near_one(Store(two, pair.var, value), value)
    if inside:
        kept = seq(Store(two, pair.var, const(0, "float32")), If(logical_and(*inside), kept))
    first = BufferLoad(to.buffer, substitute(to.index, {pair.var: as_expr(0)}))
    both = [BufferLoad(two, as_expr(k)) for k in range(pair.extent)]
    return Alloc(two, seq(replace(pair, kind=ForKind.UNROLLED, body=kept), Rounded(first, *both)))


def _read(e: Expr) -> set[Buffer]:
    return {x.buffer for x in walk(e) if isinstance(x, BufferLoad)}


def epilogue_of(s: Stmt) -> Epilogue | None:
    """The loops around what stores the results of tiles; None where there are others."""
    around, store = enclosing(s)
    loops = [x for x in around if isinstance(x, For)]
    inside = [c for x in around if isinstance(x, If) for c in conjuncts(x.cond)]
    if not isinstance(store, Store) or store.buffer.storage != "global" or len(loops) != 3:
        return None
    found = Epilogue(loops[0], loops[1], loops[2], tuple(inside), store)
    return found if (found.down.extent, found.pair.extent) == (2, 2) else None


def _box(found: Epilogue, group: Group, ranges: Simplifier) -> Box | None:
    """The box of all that a group stores, by the number of the group; None where it is none."""
    row, column, number = Var("row"), Var("column"), Var("group")
    for var, extent in ((row, ROWS), (column, found.columns), (number, group.count)):
        ranges.bind(var, 0, extent - 1)
    env: dict[Var, Expr] = {
        group.warp: binary("+", binary("*", number, WARPS), binary("//", row, ROWS // WARPS)),
        group.lane: binary("+", binary("*", binary("%", row, TILE), 4), binary("%", binary("//", column, 2), 4)),
        found.down.var: binary("%", binary("//", row, TILE), 2),
        found.across.var: binary("//", column, TILE),
        found.pair.var: binary("%", column, 2),
    }
    index, *inside = [ranges.simplify(substitute(e, env)) for e in (found.store.index, *found.inside)]
    loops = {column: found.columns, row: ROWS} if found.turned else {row: ROWS, column: found.columns}
    copy = Copy.of(found.store.buffer, index, inside, loops, ranges)
    box = box_of(copy, group.around)
    if box is None or not can_be_told(box):
        return None
    if found.turned and not ((row, 1) in copy.terms and found.columns in box.extents[:-1]):
        return None
    start = [ranges.simplify(substitute(x, {number: group.of_part})) for x in box.start]
    return replace(box, start=tuple(start))


def _place(own: Expr, group: Group, found: Epilogue, tile: Var, line: int, dtype: str) -> Expr:
    """Where an element of a lane lies in the box of its group."""
    row = binary("+", binary("*", binary("%", group.warp, WARPS), ROWS // WARPS), binary("//", group.lane, 4))
    row = binary("+", row, binary("*", found.down.var, TILE))
    column = binary("+", binary("*", tile, TILE), binary("*", binary("%", group.lane, 4), 2))
    column = binary("+", column, found.pair.var)
    row, column, wide = (column, row, ROWS) if found.turned else (row, column, line)
    within = binary("+", binary("*", row, wide), column)
    swizzled = Swizzle.of_rows("boxes", wide, BYTES[dtype]).place(within, index_xor)
    return binary("+", binary("*", own, ROWS * line), as_expr(swizzled))
