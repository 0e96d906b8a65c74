"""The turns of a ring (`ring.py`): tiles, phases and barriers of iterations, and parts of two groups in turns.

Iterations of all parts of the result are counted on.  Groups in turns have the parts 0, 2, 4, ... and 1, 3, 5, ...,
whose tiles come in the order of the parts, so that products of one group follow those of the other one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from te_lite.expr.expr import BufferLoad, Expr, Var, as_expr, binary, compare, select
from te_lite.expr.lanes import ceildiv
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute, transform
from te_lite.loops.stmt import Buffer, For, If, Stmt, Store, map_exprs

from .box_store import Group
from .instructions import RingCall
from .mma import WARPS
from .ring_fetches import in_tile
from .ring_parts import Pipe


@dataclass(frozen=True)
class Turns:
    """Those of the iterations of a pipe, which groups of warps multiply, together or in turns (`Group.turn`)."""

    pipe: Pipe
    group: Group
    ranges: Simplifier

    @cached_property
    def barriers(self) -> Buffer:
        return Buffer("barriers", "int64", (2 * self.pipe.tiles + (self.group.turn is not None),), "shared")

    @cached_property
    def counted(self) -> tuple[Buffer, Buffer] | None:
        """Where a thread counts the tile of an iteration, and the parity of its phase, if the number of tiles is no
        power of two; else they are digits of the number of the iteration."""
        if self.pipe.tiles & (self.pipe.tiles - 1) == 0:
            return None
        return Buffer("tile", "int32", (1,), "local"), Buffer("phase", "int32", (1,), "local")

    @property
    def number(self) -> Expr:
        """The number of an iteration among those of all parts."""
        part = self.pipe.part
        turn: Expr = self.pipe.loop.var if self.pipe.loop.extent > 1 else as_expr(0)
        return turn if part is None else binary("+", binary("*", part.var, self.pipe.loop.extent), turn)

    @property
    def tile(self) -> Expr:
        """The tile of an iteration."""
        if self.counted is None:
            return binary("%", self.number, self.pipe.tiles)
        return BufferLoad(self.counted[0], as_expr(0))

    @property
    def tile_before(self) -> Expr:
        """The tile of the iteration before; of one that is counted, behind all iterations, too."""
        last = self.pipe.tiles - 1
        if self.counted is None:
            return binary("%", binary("+", self.number, last), self.pipe.tiles)
        return select(compare("==", self.tile, 0), last, binary("-", self.tile, 1))

    def counting(self) -> list[Stmt]:
        """The end of an iteration in which tiles are counted."""
        if self.counted is None:
            return []
        (tile, phase), zero = self.counted, as_expr(0)
        following = select(compare("==", self.tile, self.pipe.tiles - 1), 0, binary("+", self.tile, 1))
        parity = BufferLoad(phase, zero)
        turned = select(compare("==", self.tile, 0), binary("-", 1, parity), parity)
        return [Store(tile, zero, following), Store(phase, zero, turned)]

    def placed(self, e: BufferLoad) -> BufferLoad:
        """A place in the tile of an iteration, where iterations of all parts are counted."""
        within, stride = in_tile(e, self.pipe.loop.var, self.ranges), (e.buffer.strides or (e.buffer.size,))[0]
        return BufferLoad(e.buffer, self.ranges.simplify(binary("+", binary("*", self.tile, stride), within)))

    def in_tiles(self, e: Expr) -> Expr:
        """An expression whose places in tiles are those of its turn."""
        tiles = {f.tile for f in self.pipe.fetches}
        return transform(e, lambda x: self.placed(x) if isinstance(x, BufferLoad) and x.buffer in tiles else None)

    def barrier(self, tile: Expr, empty: bool) -> BufferLoad:
        return BufferLoad(self.barriers, self.ranges.simplify(binary("+", tile, self.pipe.tiles) if empty else tile))

    def wait(self, empty: bool) -> RingCall:
        """An empty tile is waited for from the second turn of the ring on: before, the parity is that of no phase."""
        phase = binary("//", self.number, self.pipe.tiles)
        if self.counted is not None:
            phase = BufferLoad(self.counted[1], as_expr(0))
        parity = self.ranges.simplify(binary("%", binary("+", phase, int(empty)), 2))
        return RingCall("ring_await", (self.barrier(self.tile, empty), parity))

    @property
    def next_part(self) -> BufferLoad:
        """Where a group says that it has begun the last product of a part: the one whose turn is next must not wait for
        its tiles before, as parities tell neighbouring phases apart only."""
        return BufferLoad(self.barriers, as_expr(2 * self.pipe.tiles))

    def begun(self) -> list[Stmt]:
        """What a group that takes turns does before the iterations of a part: it counts on, and waits."""
        if self.pipe.part is None or self.group.turn is None:
            return []
        begin, tiles = substitute(self.number, {self.pipe.loop.var: as_expr(0)}), self.pipe.tiles
        first = binary("%", begin, tiles), binary("%", binary("//", begin, tiles), 2)
        counted: list[Stmt] = [Store(b, as_expr(0), x) for b, x in zip(self.counted or (), first, strict=False)]
        parity = binary("%", binary("+", self.pipe.part.var, 1), 2)
        return [*counted, RingCall("ring_await", (self.next_part, parity))]

    def every_other(self, part: For, work: Stmt) -> Stmt:
        """The parts of a group that takes turns."""
        each = Var("round")
        own = binary("+", binary("*", each, 2), self.group.number)
        inside = If(compare("<", own, part.extent), work) if part.extent % 2 else work
        body = map_exprs(inside, lambda e: self.ranges.simplify(substitute(e, {part.var: own})))
        return For(each, ceildiv(part.extent, 2), part.kind, body)

    def of_group(self, s: Stmt) -> Stmt:
        """What a group does; of one that takes turns the warps are counted by themselves."""
        turn = self.group.turn
        if turn is None:
            return s
        env = {self.group.warp: binary("%", self.group.warp, WARPS), turn: binary("//", self.group.warp, WARPS)}
        return map_exprs(s, lambda e: substitute(e, env))
