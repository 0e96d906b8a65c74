"""A ring of tiles: the copy engine fetches them, groups of warps multiply them, and nobody waits for a whole block.

    copy(0) ... copy(S - 2)                       a group of warps more, one thread of it:
    for t: barrier                                    for t: wait until tile t % S is empty; fetch t into it
           if t + S - 1 < n: copy(t + S - 1)      the others:
           d += A[t % S] * B[t % S]                   for t: wait until tile t % S is full; d += A * B
                                                             the product before that is through: its tile is empty

This is how a pipeline is written whose tiles are copied by one thread, as boxes of an array; other kernels are refused
(`ring_parts.py`).  A tile has two barriers (`mbarrier`) in shared memory.  `full` counts the bytes that arrive, `empty`
the groups that are through with it; each opens once every S iterations, in phase t / S, of which a waiting thread names
the parity.  A product goes on while the next one begins, so a tile is released an iteration later.  If a block computes
several parts of the result in a loop, t goes on from one to the next, and tiles of the next part arrive during the
epilogue.  Floats are rounded to the nearest TF32 number on their way where the product reads them so
(`mma_meaning.py`).

If there are two blocks along blockIdx.y, and a tile is the same for both, they are a pair, a cluster of the hardware:
each fetches half of such a tile into the shared memory of both, so it comes from L2 once.  A tile is then empty when
the groups of both blocks are through with it, and both run the same iterations, with results to store or without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from codegen_cuda.program.cuda_program import KernelNest
from te_lite.bounds.loop_scope import BLOCKS
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Compare, Const, Expr, Var, as_expr, binary, compare, logical_and, logical_or
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute
from te_lite.loops.stmt import Buffer, If, Stmt, allocated, bodies, map_exprs, seq, with_bodies

from .box_store import Group, in_boxes
from .copy_boxes import Box
from .instructions import RingCall
from .mma import GROUP_ROW_BYTES, WARPS
from .ring_parts import Fetch, Pipe, fetch_at, guards_of, in_tile, pipe_of

MANY_SUMS, FEW_REGISTERS, MANY_REGISTERS = 64, 40, 232
"""Sums of a thread with which two groups need more registers than a third part; what the thread that fetches, and
those that multiply, get then."""
PAIR, EIGHT = "blockIdx.y", 8
"""Where two blocks are a pair; rows after which a swizzle repeats."""


def in_ring(nest: KernelNest) -> KernelNest:
    """A kernel with a producer and consumers of its tiles.  Raises EmitError for one that has another form."""
    nest = _with_work(nest)
    ranges = nest.ranges()
    return _Ring(nest, ranges, pipe_of(nest, ranges)).nest_in_roles()


def _with_work(nest: KernelNest) -> KernelNest:
    """The kernel without blocks beyond the last one that stores anything, where there is one part of the result."""
    loops = dict(nest.loops)
    for c in guards_of(nest.body, frozenset(loop.var for tag, loop in loops.items() if tag in BLOCKS)):
        for tag, loop in nest.loops.items():
            match c:
                case Compare(op="<", a=Var() as a, b=Const(value=value)) if a is loop.var:
                    loops[tag] = replace(loop, extent=min(loop.extent, int(value)))
    return KernelNest(loops, nest.body)


def _is_for_both(f: Fetch, pair: Var) -> bool:
    """Whether both blocks of a pair need a box, of which each can fetch half of the rows."""
    rows, depends = prod(f.box.extents[:-1]), any(pair in free_vars(x) for x in f.box.start)
    return not depends and rows % (2 * EIGHT) == 0 and f.box.extents[_rows_axis(f.box)] % 2 == 0


def _rows_axis(box: Box) -> int:
    """The outermost axis of a box."""
    return next((d for d, n in enumerate(box.extents) if n > 1), 0)


@dataclass(frozen=True)
class _Ring:
    nest: KernelNest
    ranges: Simplifier
    pipe: Pipe

    @property
    def warp(self) -> Var:
        return self.nest.loops["threadIdx.y"].var

    @property
    def warps(self) -> int:
        return self.nest.loops["threadIdx.y"].extent

    @cached_property
    def group(self) -> Group:
        around = {loop.var for tag, loop in self.nest.loops.items() if tag in BLOCKS}
        part = None if self.pipe.part is None else self.pipe.part.var
        lane = self.nest.loops["threadIdx.x"].var
        around |= set() if part is None else {part}
        return Group(self.warp, lane, self.warps // WARPS, frozenset(around), part)

    @cached_property
    def guards(self) -> list[Expr]:
        """The conditions on blocks and parts without which no thread stores anything."""
        return guards_of(seq(*self.pipe.last), self.group.around)

    @cached_property
    def pair(self) -> Var | None:
        """The number of a block in its pair, where blocks are pairs."""
        loop = self.nest.loops.get(PAIR)
        if loop is None or loop.extent != 2:
            return None
        return loop.var if any(_is_for_both(f, loop.var) for f in self.pipe.fetches) else None

    def _of_both(self, guards: Sequence[Expr]) -> list[Expr]:
        """The conditions under which a block of a pair stores something, of guards of one."""
        if self.pair is None:
            return list(guards)
        one, other = [[substitute(c, {self.pair: as_expr(k)}) for c in guards] for k in (0, 1)]
        both = [self.ranges.simplify(logical_or(a, b)) for a, b in zip(one, other, strict=True)]
        return [c for c in both if not (isinstance(c, Const) and c.value)]

    def nest_in_roles(self) -> KernelNest:
        """The same kernel, with one group of warps more."""
        pipe, group = self.pipe, self.group
        barriers = Buffer("barriers", "int64", (2 * pipe.tiles,), "shared")
        last, boxes = seq(*pipe.last), None
        found = in_boxes(last, group, self.ranges)
        if found is not None:
            last, boxes = found
        of_one = [c for c in self.guards if self.pair in free_vars(c)]
        last = If(logical_and(*of_one), last) if of_one else last
        many = group.count > 1 and pipe.product.d.buffer.size > MANY_SUMS
        roles = [
            self._role(self._produced(barriers), "registers_less", FEW_REGISTERS if many else 0),
            self._role(self._consumed(barriers, last), "registers_more", MANY_REGISTERS if many else 0),
        ]
        produces = compare(">=", self.warp, self.warps)
        ended = [] if boxes is None else [group.once(RingCall("boxes_read", (), 0))]
        releases = group.count * (1 if self.pair is None else 2)
        given = BufferLoad(barriers, as_expr(0)), as_expr(pipe.tiles), as_expr(releases)
        opened = RingCall("ring_open" if self.pair is None else "pair_open", given)
        closed = [] if self.pair is None else [RingCall("pair_close", ())]
        consumes = If(compare("<", self.warp, self.warps), seq(roles[1], *ended))
        body = seq(opened, If(produces, roles[0]), consumes, *closed)
        held = [*pipe.held, barriers, *([boxes] if boxes is not None else [])]
        loops = {**self.nest.loops, "threadIdx.y": replace(self.nest.loops["threadIdx.y"], extent=self.warps + WARPS)}
        return KernelNest(loops, allocated(held, _numbered(body)))

    def _role(self, body: Stmt, share: str, registers: int) -> Stmt:
        """What threads of a role do, for each part of the result that there is."""
        guards = self._of_both(self.guards)
        part, work = self.pipe.part, If(logical_and(*guards), body) if guards else body
        inner = work if part is None else replace(part, body=work)
        return seq(*([RingCall(share, (), registers)] if registers else []), inner)

    def _turn(self, later: int = 0) -> Expr:
        """The number of an iteration among those of all parts."""
        turn = self.pipe.loop.var if later == 0 else binary("-", self.pipe.loop.var, later)
        part = self.pipe.part
        return turn if part is None else binary("+", binary("*", part.var, self.pipe.loop.extent), turn)

    def _in_turn(self, e: BufferLoad) -> BufferLoad:
        """A place in the tile of an iteration, where iterations of all parts are counted."""
        within = in_tile(e, self.pipe.loop.var, self.ranges)
        stride = (e.buffer.strides or (e.buffer.size,))[0]
        begin = binary("*", binary("%", self._turn(), self.pipe.tiles), stride)
        return BufferLoad(e.buffer, self.ranges.simplify(binary("+", begin, within)))

    def _barrier(self, barriers: Buffer, turn: Expr, empty: bool) -> BufferLoad:
        slot = binary("%", turn, self.pipe.tiles)
        return BufferLoad(barriers, self.ranges.simplify(binary("+", slot, self.pipe.tiles) if empty else slot))

    def _await(self, barriers: Buffer, empty: bool) -> RingCall:
        """An empty tile is waited for from the second turn of the ring on: before, the parity is that of no phase."""
        phase = binary("//", self._turn(), self.pipe.tiles)
        parity = self.ranges.simplify(binary("%", binary("+", phase, int(empty)), 2))
        return RingCall("ring_await", (self._barrier(barriers, self._turn(), empty), parity))

    def _produced(self, barriers: Buffer) -> Stmt:
        loop = self.pipe.loop
        own = {loop.var: binary("-", loop.var, self.pipe.tiles - 1)}
        full, calls, nbytes = self._barrier(barriers, self._turn(), False), [], 0
        for f in self.pipe.fetches:
            now = fetch_at(f, own, self.ranges)
            calls += list(self._boxes(replace(now, first=self._in_turn(BufferLoad(f.tile, now.first)).index), full))
            nbytes += f.tile.size // f.tile.shape[0] * BYTES[f.tile.dtype]
        body = seq(self._await(barriers, True), RingCall("ring_expect", (full, as_expr(nbytes))), *calls)
        one = logical_and(compare("==", self.nest.loops["threadIdx.x"].var, 0), compare("==", self.warp, self.warps))
        return If(one, replace(loop, body=body))

    def _boxes(self, f: Fetch, full: BufferLoad) -> Iterator[RingCall]:
        """A box for each line of its rows; of a tile for both blocks of a pair half of the rows."""
        columns = min(f.box.extents[-1], GROUP_ROW_BYTES // BYTES[f.tile.dtype])
        rows = f.tile.size // f.tile.shape[0] // f.box.extents[-1]
        start, extents, first, does = list(f.box.start), list(f.box.extents), f.first, "fetch"
        if self.pair is not None and _is_for_both(f, self.pair):
            axis, does = _rows_axis(f.box), "share"
            extents[axis] //= 2
            start[axis] = binary("+", start[axis], binary("*", self.pair, extents[axis] * f.box.steps[axis]))
            first = binary("+", first, binary("*", self.pair, rows // 2 * columns))
        nearest = self.pipe.product.op.element.nearest
        box = replace(f.box, start=(), extents=(*extents[:-1], columns), nearest=nearest)
        for k in range(f.box.extents[-1] // columns):
            at = [self.ranges.simplify(x) for x in (*start[:-1], binary("+", start[-1], k * columns))]
            to = BufferLoad(f.tile, self.ranges.simplify(binary("+", first, k * rows * columns)))
            yield RingCall(f"box_{does}_{len(at)}d", (to, full, *at[::-1]), box=box)

    def _consumed(self, barriers: Buffer, last: Stmt) -> Stmt:
        loop, pipe = self.pipe.loop, self.pipe
        a, b = self._in_turn(pipe.product.a), self._in_turn(pipe.product.b)
        work = replace(pipe.product, a=a, b=b, goes_on=True)
        release = "ring_release" if self.pair is None else "pair_release"
        before = self.group.once(RingCall(release, (self._barrier(barriers, self._turn(1), True),)))
        end = {loop.var: as_expr(loop.extent - 1)}
        through = self.group.once(RingCall(release, (self._barrier(barriers, self._turn(), True),)))
        through = map_exprs(through, lambda e: self.ranges.simplify(substitute(e, end)))
        body = seq(self._await(barriers, False), work, If(compare(">", loop.var, 0), before))
        return seq(*pipe.clear, replace(loop, body=body), through, last)


def _numbered(body: Stmt) -> Stmt:
    """A body whose calls know the numbers of their tensor maps: one for all boxes of an array that are alike."""
    known: list[Box] = []

    def numbered(s: Stmt) -> Stmt:
        if isinstance(s, RingCall) and s.box is not None:
            if s.box not in known:
                known.append(s.box)
            return replace(s, map=known.index(s.box))
        return with_bodies(s, tuple([numbered(b) for b in bodies(s)]))

    return numbered(body)
