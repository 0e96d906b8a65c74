"""A ring of tiles: the copy engine fetches them, groups of warps multiply them, and nobody waits for a whole block.

    copy(0) ... copy(S - 2)                       a group of warps more, a thread of two:
    for t: barrier                                    for t: wait until tile t % S is empty; fetch t into it
           if t + S - 1 < n: copy(t + S - 1)      the others:
           d += A[t % S] * B[t % S]                   for t: wait until tile t % S is full; d += A * B
                                                             the product before that is through: its tile is empty

This is how a pipeline is written whose tiles are copied by one thread, as boxes of an array; other kernels are refused
(`ring_parts.py`).  A tile has two barriers (`mbarrier`) in shared memory.  `full` counts the bytes that arrive, `empty`
the warps that are through with it: each warp of a group waits for its own part of a product, and may be ahead of the
others.  A barrier opens once every S iterations, in phase t / S, of which a waiting thread names the parity.  A product
goes on while the next one begins, so a tile is released an iteration later.  If a block computes several parts of the
result in a loop, t goes on from one to the next, and tiles of the next part arrive during the epilogue.  Where one
group would compute them there are two, which take turns: one stores the results of a part while the other one
multiplies the next (`ring_turns.py`).  Floats are rounded to the nearest TF32 number on their way where the product
reads them so (`mma_meaning.py`).

Two or four blocks along blockIdx.y are a cluster of the hardware if a tile is the same for all of them: each fetches
its share of the rows into the shared memory of all, so the tile comes from L2 once.  It is empty when the warps of all
blocks are through with it, and all run the same iterations, with results to store or without.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from codegen_cuda.emission.launch_bounds import SHARED_BYTES
from codegen_cuda.program.cuda_program import KernelNest
from te_lite.bounds.loop_scope import BLOCKS, LANES
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import (
    BufferLoad,
    Compare,
    Const,
    Expr,
    Var,
    as_expr,
    binary,
    compare,
    logical_and,
    logical_not,
    logical_or,
    same,
    select,
)
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute
from te_lite.loops.stmt import Buffer, For, ForKind, If, Stmt, Store, allocated, map_exprs, seq, stmts_of

from .added_boxes import Fetching
from .box_store import PLACES, ROWS, Boxed, Group, in_boxes
from .instructions import BoxStore, RingCall, numbered
from .mma import GROUP_ROW_BYTES, WARPS
from .more_tiles import with_more_tiles
from .reads_ahead import with_reads_ahead
from .ring_fetches import boxes_of, bytes_of, fetch_at, is_for_all, rows_axis
from .ring_parts import Pipe, guards_of, pipe_of, with_work
from .ring_turns import Turns
from .split_ring import Shares
from .swizzle import line_of
from .tile_copies import Fetch, size_of
from .warp_tiles import MOST_REGISTERS, REGISTER_FILE

MANY_SUMS, FEW_REGISTERS, MANY_REGISTERS = 64, 40, 232
"""Sums of a thread with which two groups need more registers than a third part; what the thread that fetches, and
those that multiply, get then."""
FETCHING = 2
"""Warps that fetch, one the even tiles and one the odd ones: with one, an iteration of 64 x 72 to 64 x 112 took some
240 cycles, however few its products were."""
BYTES_OF_BOXES, BYTES_OF_BARRIERS = PLACES * ROWS * GROUP_ROW_BYTES, 1024
"""Of shared memory: those of a group for boxes of results, and of all barriers, with what they are aligned to."""
CLUSTER, BLOCKS_OF_CLUSTER = "blockIdx.y", (2, 4)
"""Where blocks are a cluster, and how many."""


def in_ring(nest: KernelNest, shares: Shares | None = None) -> KernelNest:
    """A kernel with a producer and consumers of its tiles, whose blocks add up `shares` of sums where they have them.
    Raises EmitError for one that has another form."""
    nest = with_work(nest)
    ranges = nest.ranges()
    pipe, groups = pipe_of(nest, ranges), nest.block[1] // WARPS
    if shares is None:
        boxes = max(BYTES_OF_BOXES, 2 * pipe.sums * WARPS * LANES)  # those of all results, of 16 bits
        room = SHARED_BYTES - max(groups, 2) * boxes - BYTES_OF_BARRIERS
        registers = _registers(pipe, groups)
        pipe = with_reads_ahead(with_more_tiles(pipe, room, ranges), registers, ranges, large=False)
        boxed = _Ring(nest, ranges, pipe, shares).boxed
        if boxed is None or not boxed.all_before:
            pipe = with_reads_ahead(pipe, registers, ranges, large=True)
    return _Ring(nest, ranges, pipe, shares).nest_in_roles()


def _registers(pipe: Pipe, groups: int) -> int:
    """Those of a thread that multiplies, in so many groups, of a kernel that has a multiprocessor for itself."""
    groups = 2 if pipe.part is not None and not pipe.added else groups
    if groups == 2 and pipe.sums > MANY_SUMS:
        return MANY_REGISTERS
    return min(REGISTER_FILE // ((groups + 1) * WARPS * LANES), MOST_REGISTERS)


@dataclass(frozen=True)
class _Ring:
    nest: KernelNest
    ranges: Simplifier
    pipe: Pipe
    shares: Shares | None

    @property
    def warp(self) -> Var:
        return self.nest.loops["threadIdx.y"].var

    @property
    def warps(self) -> int:
        return self.nest.loops["threadIdx.y"].extent

    @property
    def ranks(self) -> frozenset[Var]:
        """The number of a block in its cluster, if that says which part of the sums is its own."""
        return frozenset() if self.shares is None else frozenset([self.nest.loops[CLUSTER].var])

    @cached_property
    def group(self) -> Group:
        around = {loop.var for tag, loop in self.nest.loops.items() if tag in BLOCKS}
        around |= set() if self.pipe.part is None else {self.pipe.part.var}
        lane, turn = self.nest.loops["threadIdx.x"].var, Var("turn") if self.in_turns else None
        if turn is not None:
            self.ranges.bind(turn, 0, 1)
        return Group(self.warp, lane, self.warps // WARPS, frozenset(around), self.pipe.part is not None, turn)

    @property
    def in_turns(self) -> bool:
        """Whether there is a second group, and each computes every other part: one stores results meanwhile."""
        return self.pipe.part is not None and self.warps == WARPS and not self.pipe.added

    @property
    def groups(self) -> int:
        return 2 if self.in_turns else self.group.count

    @cached_property
    def turns(self) -> Turns:
        return Turns(self.pipe, self.group, self.ranges)

    @cached_property
    def guards(self) -> list[Expr]:
        """The conditions on blocks and parts without which no thread stores anything."""
        return guards_of(seq(*self.pipe.last), self.group.around - self.ranks)

    @cached_property
    def cluster(self) -> For | None:
        """The loop over the blocks of a cluster, where there are any."""
        loop = self.nest.loops.get(CLUSTER)
        found = loop is not None and loop.extent in BLOCKS_OF_CLUSTER
        return loop if loop is not None and found and any(is_for_all(f, loop) for f in self.pipe.fetches) else None

    @cached_property
    def boxed(self) -> Boxed | None:
        """How results are stored in boxes, if they are."""
        return in_boxes(seq(*self.pipe.last), self.group, self.ranges, self._fetching, self._room)

    @property
    def stored(self) -> Stmt:
        """How results are stored."""
        return seq(*self.pipe.last) if self.boxed is None else self.boxed.body

    @property
    def between(self) -> list[Expr]:
        """The conditions without which a part is left out, or a block of a cluster, whose iterations are not."""
        own = [c for c in self.guards if self.cluster is not None and self.cluster.var in free_vars(c)]
        return [*[c for c in self.guards if not self._lasts(c)], *[c for c in own if self._lasts(c)]]

    @property
    def _fetching(self) -> Fetching | None:
        """Where boxes of what results are computed of may be fetched: in every part, before its products."""
        if self.shares is not None or self.pipe.added or self.between:
            return None
        number = as_expr(0) if self.pipe.part is None else self.pipe.part.var
        return Fetching(binary("//", number, 2) if self.in_turns else number, self._room)

    @property
    def _room(self) -> int:
        """The bytes of shared memory that tiles and barriers leave."""
        return SHARED_BYTES - BYTES_OF_BARRIERS - sum([f.tile.size * BYTES[f.tile.dtype] for f in self.pipe.fetches])

    @cached_property
    def results(self) -> dict[Buffer, tuple[Expr, int]]:
        """Where the rows of a block's results begin in the array, and how many it has, by the tile of A; of columns by
        that of B.  None unless boxes of them are stored."""
        last = self.stored
        stored = [s for s in stmts_of(last) if isinstance(s, BoxStore)]
        if len(stored) != 1 or stored[0].box is None:
            return {}
        first = [self.warp, *self.ranks, *[s.var for s in stmts_of(last) if isinstance(s, For)]]
        box, env = stored[0].box, {var: as_expr(0) for var in first}
        starts = [self.ranges.simplify(substitute(e, env)) for e in stored[0].arguments[:0:-1]]
        axes, b = [d for d, n in enumerate(box.extents) if n > 1], self.pipe.product.b.buffer
        tiles = [*[f.tile for f in self.pipe.fetches if f.tile is not b], b]
        if (len(tiles), len(axes)) != (2, 2):
            return {}
        tiles = tiles[::-1] if stored[0].turned else tiles
        return {tile: (starts[d], box.view[d]) for tile, d in zip(tiles, axes, strict=True)}

    def _of_all(self, guards: Sequence[Expr]) -> list[Expr]:
        """The conditions under which any block of a cluster stores something, of guards of one."""
        if self.cluster is None:
            return list(guards)
        var, each = self.cluster.var, range(self.cluster.extent)
        found = [self.ranges.simplify(logical_or(*[substitute(c, {var: as_expr(k)}) for k in each])) for c in guards]
        return [c for c in found if not (isinstance(c, Const) and c.value)]

    def _lasts(self, cond: Expr) -> bool:
        """Whether a condition that does not hold for a part of the result holds for none behind it."""
        part = self.pipe.part
        match cond:
            case Compare(op="<", a=a, b=Const()) if part is not None:
                further = substitute(a, {part.var: binary("+", part.var, 1)})
                low = self.ranges.bounds(self.ranges.simplify(binary("-", further, a)))[0]
                return low is not None and low >= 0
        return part is None

    def nest_in_roles(self) -> KernelNest:
        """The same kernel, with one group of warps more."""
        pipe, group = self.pipe, self.group
        turns, counted = self.turns, self.turns.counted or ()
        last, boxed, between = self.stored, self.boxed, self.between
        last = If(logical_and(*between), last) if between else last
        if self.shares is not None:
            last = seq(self.shares.added(pipe.product.b.buffer, self.warps * LANES), last)
        many = self.groups == 2 and pipe.sums > MANY_SUMS
        roles = [
            self._role(self._produced(), "registers_less", FEW_REGISTERS if many else 0),
            self._role(self._consumed(last), "registers_more", MANY_REGISTERS if many else 0, self.in_turns),
        ]
        threads = self.groups * WARPS
        produces = compare(">=", self.warp, threads)
        ended = [] if boxed is None else [group.once(RingCall("boxes_read", (), 0))]
        closed = [] if self.cluster is None and self.shares is None else [RingCall("cluster_close", ())]
        work = turns.of_group(seq(*self._cleared(), roles[1], *ended))
        consumes = If(compare("<", self.warp, threads), work)
        first = [Store(b, as_expr(0), as_expr(0)) for b in counted]
        body = seq(*self._opened(), *first, If(produces, roles[0]), consumes, *closed)
        held = [*pipe.held, turns.barriers, *counted, *([] if boxed is None else boxed.held)]
        loops = {**self.nest.loops, "threadIdx.y": replace(self.nest.loops["threadIdx.y"], extent=threads + WARPS)}
        return KernelNest(loops, allocated(held, numbered(body)))

    def _opened(self) -> Iterator[Stmt]:
        """What makes the barriers ready, those of the ring last: then all threads meet."""
        if self.boxed is not None and self.boxed.barriers is not None:
            barriers = self.boxed.barriers
            yield RingCall("boxes_open", (BufferLoad(barriers, as_expr(0)), as_expr(barriers.size)))
        if self.in_turns:
            yield RingCall("turn_open", (self.turns.next_part,))
        blocks = 1 if self.cluster is None else self.cluster.extent
        numbers = as_expr(self.pipe.tiles), as_expr(self.warps * blocks)
        name = "ring_open" if self.cluster is None else "cluster_open"
        yield RingCall(name, (BufferLoad(self.turns.barriers, as_expr(0)), *numbers))
        yield RingCall("memory_there", ())

    def _role(self, body: Stmt, share: str, registers: int, in_turns: bool = False) -> Stmt:
        """What threads of a role do, for each part of the result up to the last one that there is.

        A part in between that is left out has its turns, too: barriers count them.
        """
        lasting = self._of_all([c for c in self.guards if self._lasts(c)])
        part, work = self.pipe.part, If(logical_and(*lasting), body) if lasting else body
        inner = work if part is None else replace(part, body=work)
        if part is not None and in_turns:
            inner = self.turns.every_other(part, work)
        return seq(*([RingCall(share, (), registers)] if registers else []), inner)

    def _produced(self) -> Stmt:
        """What threads that fetch do for a part of the result, one of each warp: at the edge of an array less than
        inside."""
        loop, one = self.pipe.loop, compare("==", self.nest.loops["threadIdx.x"].var, 0)
        inside = logical_and(*[compare("<", start, edge) for f in self.pipe.fetches for start, edge in self._edges(f)])
        whole, less = [replace(loop, body=self._fetched(edges)) for edges in (False, True)]
        each = seq(If(inside, whole), If(logical_not(inside), less))
        if isinstance(inside, Const):
            each = whole if inside.value else less
        return If(logical_and(one, compare("<", self.warp, self.groups * WARPS + FETCHING)), each)

    def _fetched(self, edges: bool) -> Stmt:
        full, calls, nbytes = self.turns.barrier(self.turns.tile, False), list[Stmt](), as_expr(0)
        for f in self.pipe.fetches:
            now, size = self._now(f), bytes_of(f.tile)
            boxes: list[Stmt] = list(self._boxes(now, full))
            for start, edge in self._edges(f) if edges else ():
                count, left = f.box.extents[rows_axis(f.box)], f.box.view[rows_axis(f.box)] - edge
                beyond = compare(">=", start, edge)
                nbytes = binary("-", nbytes, select(beyond, size - size // count * left, 0))
                calls.append(If(beyond, seq(*self._boxes(now, full, left))))
                boxes = [If(compare("<", start, edge), seq(*boxes))]
            calls += boxes
            nbytes = binary("+", nbytes, size)
        expected = RingCall("ring_expect", (full, self.ranges.simplify(nbytes)))
        number = binary("-", self.warp, self.groups * WARPS)
        own = compare("==", binary("%", self.turns.tile, FETCHING), number)  # whose phases a thread counts, one by one
        return seq(If(own, seq(self.turns.wait(True), expected, *calls)), *self.turns.counting())

    def _now(self, f: Fetch) -> Fetch:
        """A fetch as it is in its own iteration, and not ahead."""
        own = {self.pipe.loop.var: binary("-", self.pipe.loop.var, self.pipe.tiles - 1)}
        now = fetch_at(f, own, self.ranges)
        return replace(now, first=self.turns.placed(BufferLoad(f.tile, now.first)).index)

    def _edges(self, f: Fetch) -> Iterator[tuple[Expr, int]]:
        """Where a box begins, and from where on it is not whole, if it may reach beyond the edge of its array.

        What lies there takes the engine longer than what does not.  If it belongs to results that are not stored, it is
        not fetched: nothing else depends on what is in its place.
        """
        axis = rows_axis(f.box)
        start, extent, whole = self.ranges.simplify(f.box.start[axis]), f.box.view[axis], f.box.extents[axis]
        aligned = self.ranges.simplify(binary("%", start, whole))
        other = f.box.pixels is not None or (self.cluster is not None and is_for_all(f, self.cluster))
        if other or axis == len(f.box.view) - 1 or not (isinstance(aligned, Const) and aligned.value == 0):
            return
        first, count = self.results.get(f.tile, (None, 0))
        if extent % whole and first is not None and count == extent and same(first, start):
            yield start, extent - extent % whole

    def _boxes(self, f: Fetch, full: BufferLoad, count: int = 0) -> Iterator[RingCall]:
        """A box for each line of its rows, of the first `count` ones if that is given; of a tile for all blocks of a
        cluster a share of the rows."""
        start, extents, first, axis, cluster = list(f.box.start), list(f.box.extents), f.first, rows_axis(f.box), None
        extents[axis] = count or extents[axis]
        if self.cluster is not None and is_for_all(f, self.cluster):
            cluster = self.cluster
            extents[axis] //= cluster.extent
            start[axis] = binary("+", start[axis], binary("*", cluster.var, extents[axis]))
            line = line_of(f.box.extents[-1], BYTES[f.tile.dtype])
            first = binary("+", first, binary("*", cluster.var, prod(extents[:-1]) * line))
        part = replace(f, first=first, box=replace(f.box, start=tuple(start), extents=tuple(extents)))
        for call in boxes_of(part, full, self.ranges, self.pipe.product.op.element.nearest):
            name = call.function if cluster is None else call.function.replace("fetch", "share")
            yield replace(call, function=name, number=None if cluster is None else cluster.extent)

    def _cleared(self) -> list[Stmt]:
        """Zeros in tiles of which the first part that they are of, at the edge of an array, fetches less."""
        tiles, extent, part = self.pipe.tiles, self.pipe.loop.extent, self.pipe.part
        first, each = Var("tile"), tiles if tiles <= extent else 1
        self.ranges.bind(first, 0, tiles // each - 1)
        env = {} if part is None else {part.var: binary("//", first, extent) if each == 1 else as_expr(0)}
        found = [(f, start, edge) for f in self.pipe.fetches for start, edge in self._edges(f)]
        calls = [
            If(compare(">=", self.ranges.simplify(substitute(start, env)), edge), self._clear(f, edge, first, each))
            for f, start, edge in found
        ]
        cleared = For(first, tiles // each, ForKind.SERIAL, seq(*calls)) if calls else None
        return [] if cleared is None else [cleared, RingCall("groups_meet", (as_expr(self.groups),))]

    def _clear(self, f: Fetch, edge: int, tile: Expr, count: int) -> Stmt:
        """Zeros in so many tiles, from one on, where what lies behind the edge would be."""
        axis, stride = rows_axis(f.box), (f.tile.strides or (f.tile.size,))[0]
        size, nbytes = size_of(f.tile), BYTES[f.tile.dtype]
        inside = (f.box.view[axis] - edge) * (size // f.box.extents[axis])
        at = self.ranges.simplify(binary("+", binary("*", tile, stride), inside))
        numbers = count, stride * nbytes, (size - inside) * nbytes, self.groups
        return RingCall("ring_clear", (BufferLoad(f.tile, at), *map(as_expr, numbers)))

    def _release(self, tile: Expr) -> Stmt:
        """A warp waits for its own part of a product only, so each releases a tile, in all blocks that fill it."""
        empty, cluster = self.turns.barrier(tile, True), self.cluster
        call = RingCall("ring_release", (empty,))
        if cluster is not None:
            call = RingCall("cluster_release", (empty,), cluster.extent)
        return self.group.each_warp(call)

    def _consumed(self, last: Stmt) -> Stmt:
        loop, pipe, turns = self.pipe.loop, self.pipe, self.turns
        loads = [map_exprs(s, turns.in_tiles) for s in pipe.loads]
        product = map_exprs(replace(pipe.product, goes_on=not pipe.added), turns.in_tiles)
        before = self._release(turns.tile_before)
        if pipe.added:  # all threads of a group have their rows, and the product is waited for at once
            meet, now = RingCall("group_meets", (self.group.number,)), self._release(turns.tile)
            work = [*loads, meet, product, now, *pipe.added, *turns.counting()]
            return seq(*pipe.clear, replace(loop, body=seq(turns.wait(False), *work)), last)
        through = before
        if loop.extent == 1:
            through = self._release(turns.tile) if turns.counted is None else before
        elif turns.counted is None:
            end = {loop.var: as_expr(loop.extent)}
            through = map_exprs(before, lambda e: self.ranges.simplify(substitute(e, end)))
        several, over = loop.extent > 1, self.group.once(RingCall("ring_release", (turns.next_part,)))
        released = [If(compare(">", loop.var, 0), before)] if several else []
        body = seq(turns.wait(False), product, *released, *turns.counting())
        if self.in_turns:
            body = seq(body, If(compare("==", loop.var, loop.extent - 1), over) if several else over)
        ahead = pipe.ahead if self.boxed is None else (*pipe.ahead, *self.boxed.before)
        return seq(*pipe.clear, *ahead, *turns.begun(), replace(loop, body=body), through, last)
