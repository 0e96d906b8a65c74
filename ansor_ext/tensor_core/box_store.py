"""Results of groups of warps that the copy engine stores, in boxes of 64 rows that go through shared memory.

    for j, i: C[row(i, lane), 8 * j + 2 * (lane % 4) + v] = f(d[j, i, v])           v in 0..2, a vector

    for box: wait until the engine has read the box before the last one; all threads of the group meet
             for j of the box, i: place[i, j] = f(d[j, i, v])                       swizzled
             all threads meet; one of them has the box stored

Two boxes of a group are in shared memory, one of which is stored while the other one is filled.  Where lines do not
divide the columns, the last box begins earlier, and some columns are stored twice, if they depend on registers and
smaller arrays only.  What lies beyond the edge of the result is not stored, and must be just what the kernel does not
store.  Where columns of the product are rows of C, a box has its 64 rows as columns, and each value a place of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import gcd

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Expr, Var, as_expr, binary, compare, const, index_xor, logical_and
from te_lite.expr.lanes import ceildiv
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import conjuncts, substitute, walk
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, If, Stmt, Store, seq

from ..pipeline.staged_copies import enclosing
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


def in_boxes(s: Stmt, group: Group, ranges: Simplifier) -> tuple[Stmt, Buffer] | None:
    """An epilogue that is stored in boxes, and where these are put together; None where it is none."""
    found = epilogue_of(s)
    box = None if found is None or not found.has_lines else _box(found, group, ranges)
    if found is None or box is None:
        return None
    store, line, dtype = found.store, found.line, found.store.buffer.dtype
    rows, wide = (line, ROWS) if found.turned else (ROWS, line)
    place = Buffer("boxes", dtype, (group.count * PLACES, rows, wide), "shared")
    count = ceildiv(found.columns, line)
    number, tile = Var("box"), Var(found.across.var.name)
    ranges.bind(number, 0, count - 1)
    ranges.bind(tile, 0, line // TILE - 1)
    first_tile = binary("min", binary("*", number, line // TILE), (found.columns - line) // TILE)
    env = {found.across.var: binary("+", first_tile, tile)}
    value, *asked = [ranges.simplify(substitute(e, env)) for e in (store.value, *found.inside)]
    inside = [] if found.is_alone else asked  # what is not stored may be anything
    own = binary("+", binary("*", group.number, group.places), binary("%", number, group.places))
    left = group.places - 1
    left = 0 if group.repeats and count % group.places else left  # the last box of the part before may be in this place
    to = Store(place, ranges.simplify(_place(own, group, found, tile, line, dtype)), value)
    pair = _filled(found, to, inside)
    fill = For(tile, line // TILE, ForKind.UNROLLED, replace(found.down, body=pair))
    first = ranges.simplify(binary("*", own, ROWS * line))
    at, extents, axis = list(box.start), list(box.extents), -1
    if found.turned:
        axis = box.extents.index(found.columns)
    at[axis], extents[axis] = ranges.simplify(binary("+", at[axis], binary("*", first_tile, TILE))), line
    box = replace(box, start=(), extents=tuple(extents))
    stored = BoxStore(f"box_store_{len(at)}d", (BufferLoad(place, first), *at[::-1]), box=box, turned=found.turned)
    meet = RingCall("group_meets", (group.number,))
    body = seq(group.once(RingCall("boxes_read", (), left)), meet, fill, meet, group.once(stored))
    return For(number, count, ForKind.UNROLLED, body), place


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
