"""A ring of tiles: the copy engine fetches them, groups of warps multiply them, and nobody waits for a whole block.

    copy(0) ... copy(S - 2)                       a group of warps more, one thread of it:
    for t: barrier                                    for t: wait until tile t % S is empty; fetch t into it
           if t + S - 1 < n: copy(t + S - 1)      the others:
           d += A[t % S] * B[t % S]                   for t: wait until tile t % S is full; d += A * B
                                                             the product before that is through: its tile is empty

This is how a pipeline is written whose tiles are copied by one thread, as boxes of an array (`copy_boxes.py`).  A tile
has two barriers (`mbarrier`) in shared memory.  `full` counts the bytes that arrive, `empty` the warps that are through
with it: each warp of a group waits for its own part of a product, and may be ahead of the others.  A barrier opens once
every S iterations, in phase t / S, of which a waiting thread names the parity.  A product goes on while the next one
begins, so a tile is released an iteration later.  If a block computes several parts of the result in a loop, t goes on
from one to the next, and tiles of the next part arrive during the epilogue.

What is copied before the loop must be what iterations would copy; a kernel of another form is refused.  Floats are
rounded to the nearest TF32 number on their way where the product reads them so (`mma_meaning.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from codegen_cuda.program.cuda_program import KernelNest, loads_in
from te_lite.bounds.loop_scope import BLOCKS
from te_lite.expr.expr import BufferLoad, Compare, Const, Expr, Var, as_expr, binary, compare, logical_and, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import conjuncts, free_vars, substitute, transform
from te_lite.loops.stmt import (
    Barrier,
    Buffer,
    For,
    If,
    Stmt,
    Store,
    allocated,
    bodies,
    flattened,
    map_exprs,
    seq,
    stmts_of,
    stored_in,
)

from .box_store import Group, in_boxes
from .instructions import RingCall, WarpMultiply, numbered
from .mma import WARPS
from .pixel_boxes import PixelBoxes
from .ring_fetches import begin_of, boxes_of, bytes_of, fetch_at, in_tile, require_turns, tiles_of
from .tile_copies import Copies, Fetch, blocks_of, refuse

MANY_SUMS, FEW_REGISTERS, MANY_REGISTERS = 64, 40, 232
"""Sums of a thread with which two groups need more registers than a third part; what the thread that fetches, and
those that multiply, get then."""


@dataclass(frozen=True)
class Pipe:
    """The parts of a kernel: `clear` its sums; iterations `loop` of `fetches` and a `product`; `last` stores results.

    Of floats in parts `loads` are those of A, and `added` adds sums of an iteration to all others.  `part` is the loop
    over parts of the result, if there is one.
    """

    held: tuple[Buffer, ...]
    part: For | None
    clear: tuple[Stmt, ...]
    loop: For
    fetches: tuple[Fetch, ...]
    loads: tuple[Stmt, ...]
    product: WarpMultiply
    added: tuple[Stmt, ...]
    last: tuple[Stmt, ...]

    @property
    def sums(self) -> int:
        """Of a thread, those of an iteration too."""
        return self.product.d.buffer.size * self.product.op.element.parts

    @property
    def tiles(self) -> int:
        return self.fetches[0].tile.shape[0]


def in_ring(nest: KernelNest) -> KernelNest:
    """A kernel with a producer and consumers of its tiles.  Raises EmitError for one that has another form."""
    nest = _with_work(nest)
    ranges = nest.ranges()
    return _Ring(nest, ranges, _pipe(nest, ranges)).nest_in_roles()


def _with_work(nest: KernelNest) -> KernelNest:
    """The kernel without blocks beyond the last one that stores anything, where there is one part of the result."""
    loops = dict(nest.loops)
    for c in _guards(nest.body, frozenset(loop.var for tag, loop in loops.items() if tag in BLOCKS)):
        for tag, loop in nest.loops.items():
            match c:
                case Compare(op="<", a=Var() as a, b=Const(value=value)) if a is loop.var:
                    loops[tag] = replace(loop, extent=min(loop.extent, int(value)))
    return KernelNest(loops, nest.body)


def _guards(s: Stmt, around: frozenset[Var]) -> list[Expr]:
    """The conditions on variables `around` under which all stores to global memory stand."""
    each = list(_conditions(s))
    first = [c for c in (each[0] if each else ()) if free_vars(c) <= around]
    return [c for c in first if all(any(same(c, x) for x in conds) for conds in each)]


def _conditions(s: Stmt, above: tuple[Expr, ...] = ()) -> Iterator[tuple[Expr, ...]]:
    """The conditions around each store to global memory."""
    if isinstance(s, Store) and s.buffer.storage == "global":
        yield above
    if isinstance(s, If):
        above = (*above, *conjuncts(s.cond))
    for b in bodies(s):
        yield from _conditions(b, above)


# --------------------------------------------------------------------------------------------------------- parts


def _pipe(nest: KernelNest, ranges: Simplifier) -> Pipe:
    held: list[Buffer] = []
    parts = list(flattened(nest.body, held))
    part = parts[0] if len(parts) == 1 and isinstance(parts[0], For) else None
    if isinstance(part, For):
        parts = list(flattened(part.body, held))
    places = [k for k, s in enumerate(parts) if _is_pipeline(s)]
    refuse(len(places) == 1, "a kernel must have one loop over pipelined tiles that groups of warps multiply")
    loop = parts[places[0]]
    assert isinstance(loop, For)
    _, fetch, *work = flattened(loop.body, held)
    (at,) = [k for k, s in enumerate(work) if isinstance(s, WarpMultiply)]
    product = work[at]
    assert isinstance(fetch, If) and isinstance(product, WarpMultiply)
    narrow, wide = nest.ranges(), nest.ranges()
    left = loop.extent - (ahead := tiles_of(stmts := list(flattened(fetch.then, []))) - 1)
    if stmts and left > 0:  # of iterations that fetch, conditions of copies hold that are not written
        narrow.bind(loop.var, 0, left - 1)
        wide.bind(loop.var, -ahead, loop.extent - 1)
    copies_of = Copies(nest, wide, PixelBoxes(blocks_of(nest, part)))
    fetches = tuple([copies_of.fetch(s, narrow) for s in stmts])
    tiles = {f.tile for f in fetches}
    before, last = parts[: places[0]], tuple(parts[places[0] + 1 :])
    copies = [s for s in before if stored_in(s) and stored_in(s) <= tiles]
    clear = tuple([s for s in before if s not in copies and not isinstance(s, Barrier)])
    own = tuple(work[:at]), product, tuple(work[at + 1 :])
    found = Pipe(tuple(held), part, clear, loop, fetches, *own, last)
    like = {f.tile: f.box for f in fetches}
    _check(found, fetch, [copies_of.fetch(s, ranges, like[next(iter(stored_in(s)))]) for s in copies], ranges)
    return found


def _is_pipeline(s: Stmt) -> bool:
    match list(flattened(s.body, [])) if isinstance(s, For) else []:
        case [Barrier(publishes=True), If(), WarpMultiply() as product]:
            return product.a.buffer.storage == "shared"
        case [Barrier(publishes=True), If(), *loads, WarpMultiply(op=op), For()]:
            return op.element.apart and not any(isinstance(x, Barrier) for s in loads for x in stmts_of(s))
    return False


def _check(pipe: Pipe, fetch: If, before: Sequence[Fetch], ranges: Simplifier) -> None:
    """All other statements must be of threads that multiply; tiles hold what iterations fetch, where they read it."""
    rest = [x for s in (*pipe.clear, *pipe.last) for x in stmts_of(s)]
    used = {b for s in rest for b in stored_in(s)} | {e.buffer for s in rest for e in loads_in(s)}
    shared = [b for b in used if b.storage == "shared"]
    refuse(not shared and not any(isinstance(x, Barrier) for x in rest), "nothing else may go through shared memory")
    read = [e for s in pipe.loads for e in loads_in(s) if e.buffer in {f.tile for f in pipe.fetches}]
    read += [e for e in pipe.product.places if e.buffer.storage == "shared"]
    require_turns(pipe.loop, pipe.fetches, fetch, before, read, ranges)


# --------------------------------------------------------------------------------------------------------- roles


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
        around |= set() if self.pipe.part is None else {self.pipe.part.var}
        lane = self.nest.loops["threadIdx.x"].var
        return Group(self.warp, lane, self.warps // WARPS, frozenset(around), self.pipe.part is not None)

    @cached_property
    def guards(self) -> list[Expr]:
        """The conditions on blocks and parts without which no thread stores anything."""
        return _guards(seq(*self.pipe.last), self.group.around)

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
        barriers = Buffer("barriers", "int64", (2 * pipe.tiles,), "shared")
        last, boxes = seq(*pipe.last), None
        found = in_boxes(last, group, self.ranges)
        if found is not None:
            last, boxes = found
        between = [c for c in self.guards if not self._lasts(c)]
        last = If(logical_and(*between), last) if between else last
        many = group.count == 2 and pipe.sums > MANY_SUMS
        roles = [
            self._role(self._produced(barriers), "registers_less", FEW_REGISTERS if many else 0),
            self._role(self._consumed(barriers, last), "registers_more", MANY_REGISTERS if many else 0),
        ]
        produces = compare(">=", self.warp, self.warps)
        ended = [] if boxes is None else [group.once(RingCall("boxes_read", (), 0))]
        opened = RingCall("ring_open", (BufferLoad(barriers, as_expr(0)), as_expr(pipe.tiles), as_expr(self.warps)))
        body = seq(opened, If(produces, roles[0]), If(compare("<", self.warp, self.warps), seq(roles[1], *ended)))
        held = [*pipe.held, barriers, *([boxes] if boxes is not None else [])]
        loops = {**self.nest.loops, "threadIdx.y": replace(self.nest.loops["threadIdx.y"], extent=self.warps + WARPS)}
        return KernelNest(loops, allocated(held, numbered(body)))

    def _role(self, body: Stmt, share: str, registers: int) -> Stmt:
        """What threads of a role do, for each part of the result up to the last one that there is.

        A part in between that is left out has its turns, too: barriers count them.
        """
        lasting = [c for c in self.guards if self._lasts(c)]
        part, work = self.pipe.part, If(logical_and(*lasting), body) if lasting else body
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
        return BufferLoad(e.buffer, self.ranges.simplify(binary("+", begin_of(e.buffer, self._turn()), within)))

    def _in_tiles(self, e: Expr) -> Expr:
        """An expression whose places in tiles are those of its turn."""
        tiles = {f.tile for f in self.pipe.fetches}
        return transform(e, lambda x: self._in_turn(x) if isinstance(x, BufferLoad) and x.buffer in tiles else None)

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
            at = replace(now, first=self._in_turn(BufferLoad(f.tile, now.first)).index)
            calls += list(boxes_of(at, full, self.ranges, self.pipe.product.op.element.nearest))
            nbytes += bytes_of(f.tile)
        body = seq(self._await(barriers, True), RingCall("ring_expect", (full, as_expr(nbytes))), *calls)
        one = logical_and(compare("==", self.nest.loops["threadIdx.x"].var, 0), compare("==", self.warp, self.warps))
        return If(one, replace(loop, body=body))

    def _release(self, barriers: Buffer, further: int = 0) -> Stmt:
        """A warp waits for its own part of a product only, so each releases the tile of an iteration."""
        return self.group.each_warp(RingCall("ring_release", (self._barrier(barriers, self._turn(further), True),)))

    def _consumed(self, barriers: Buffer, last: Stmt) -> Stmt:
        loop, pipe = self.pipe.loop, self.pipe
        loads = [map_exprs(s, self._in_tiles) for s in pipe.loads]
        product = map_exprs(replace(pipe.product, goes_on=not pipe.added), self._in_tiles)
        before, through = self._release(barriers, 1), self._release(barriers)
        if pipe.added:  # all threads of a group have their rows, and the product is waited for at once
            meet = RingCall("group_meets", (self.group.number,))
            body = seq(self._await(barriers, False), *loads, meet, product, through, *pipe.added)
            return seq(*pipe.clear, replace(loop, body=body), last)
        end = {loop.var: as_expr(loop.extent - 1)}
        through = map_exprs(through, lambda e: self.ranges.simplify(substitute(e, end)))
        body = seq(self._await(barriers, False), product, If(compare(">", loop.var, 0), before))
        return seq(*pipe.clear, replace(loop, body=body), through, last)
