"""A ring of tiles for two products of which the first makes a factor of the second, as in attention.

    for t: barrier; fetch tiles t + S - 1          a warp more, or a group of them, one thread of it:
           s = Q * K[t]                                for t: wait until K[t % S] is empty; fetch it; the same for V
           e, top, scale = ... s ...               the others:
           d = d * scale; p = ... e ...                s = Q * K[0]; e ...; p ...
           d += p * V[t]                               for t > 0: begin s = Q * K[t]; begin d += p * V[t - 1]
                                                                  wait for s; K[t] is empty; e ... s ...
                                                                  wait for d; V[t - 1] is empty; d = d * scale; p ...
                                                       d += p * V[last]

What is computed of `s` alone runs while the tensor cores multiply `p` of the iteration before.  What touches `d` or `p`
waits for that product.  Each group of warps runs ahead of the others as far as there are tiles, so tensor cores have
work while a group is in between.  K and V have barriers of their own.  Conditions that say whether a column of `s` is
one are left out of all iterations but the last, in which alone columns may be missing.  Iterations all of whose scores
are masked, as those behind the last query of a block, are left out (`masked_turns.py`): what a share of zero is
multiplied by there is not read, not even where it is infinite.  Blocks with most iterations left come first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from codegen_cuda.program.cuda_program import KernelNest
from te_lite.bounds.loop_scope import BLOCKS
from te_lite.expr.expr import (
    BufferLoad,
    Expr,
    Var,
    as_expr,
    binary,
    compare,
    logical_and,
    logical_not,
)
from te_lite.expr.lanes import ceildiv
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute
from te_lite.loops.stmt import (
    Buffer,
    For,
    ForKind,
    If,
    Stmt,
    allocated,
    map_exprs,
    seq,
    stmts_of,
)

from .box_store import Group, in_boxes
from .chain import Chain, chain_of
from .instructions import GroupWait, RingCall, WarpMultiply, numbered
from .masked_turns import Mask, mask_of, without_mask
from .mma import WARPS
from .ring_fetches import (
    begin_of,
    boxes_of,
    bytes_of,
    fetch_at,
    in_tile,
)
from .row_folds import unrolled
from .tile_copies import Fetch

SHARE = (40, 232)
"""Registers of a thread that fetches, and of one that multiplies, where two groups do."""
FEW_WORDS = 80
"""Of sums and factors of a thread, with which two groups leave room for another block."""
BLOCKS_AT_ONCE = 132
"""Blocks that compute one part of the result after the other: the multiprocessors of an H100 and H200."""


def in_chained_ring(nest: KernelNest) -> KernelNest:
    """A kernel with a producer and consumers of its tiles.  Raises EmitError for one that has another form."""
    ranges = nest.ranges()
    chain = chain_of(nest, ranges)
    barriers = Buffer("barriers", "int64", (4 * chain.tiles + 2,), "shared")
    return _ChainedRing(nest, ranges, chain, barriers).nest_in_roles()


@dataclass(frozen=True)
class _ChainedRing:
    nest: KernelNest
    ranges: Simplifier
    chain: Chain
    barriers: Buffer
    may_stay: bool = True

    @property
    def warp(self) -> Var:
        return self.nest.loops["threadIdx.y"].var

    @property
    def warps(self) -> int:
        return self.nest.loops["threadIdx.y"].extent

    @cached_property
    def group(self) -> Group:
        lane, around = self.nest.loops["threadIdx.x"].var, frozenset([x.var for x in self.blocks])
        return Group(self.warp, lane, self.warps // WARPS, around, self.part is not None)

    @property
    def blocks(self) -> list[For]:
        return [loop for tag, loop in self.nest.loops.items() if tag in BLOCKS]

    @cached_property
    def part(self) -> For | None:
        """The loop over parts of the result of a block that stays, where one is all that a multiprocessor has; masked
        parts differ in length, so that blocks that come as others end share them better."""
        if len(self.blocks) != 1 or not self.may_stay or not self._share() or self.mask is not None:
            return None
        var, count = Var("part"), ceildiv(self.blocks[0].extent, BLOCKS_AT_ONCE)
        if count == 1:
            return None
        self.ranges.bind(var, 0, count - 1)
        return For(var, count, ForKind.SERIAL, seq())

    def _in_parts(self, s: Stmt) -> Stmt:
        """What a role does, for each part of the result."""
        if self.part is None:
            return self._longest_first(s)
        (old,) = self.blocks
        number = binary("+", binary("*", self.part.var, BLOCKS_AT_ONCE), self.block.var)
        body = map_exprs(s, lambda e: self.ranges.simplify(substitute(e, {old.var: number})))
        return replace(self.part, body=If(compare("<", number, old.extent), body))

    def _longest_first(self, body: Stmt) -> Stmt:
        """The blocks in the opposite order where the first of them have most of their iterations masked: what is begun
        last then ends soon."""
        if self.mask is None or len(self.blocks) != 1:
            return body
        (block,) = self.blocks
        least = [substitute(self.mask.least, {block.var: as_expr(n)}) for n in (0, block.extent - 1)]
        if not self.ranges.prove(compare(">", *least)):
            return body
        turned = {block.var: binary("-", block.extent - 1, block.var)}
        return map_exprs(body, lambda e: self.ranges.simplify(substitute(e, turned)))

    @cached_property
    def block(self) -> For:
        """The blocks that stay."""
        (old,) = self.blocks
        self.ranges.bind(var := Var("block"), 0, BLOCKS_AT_ONCE - 1)
        return replace(old, var=var, extent=BLOCKS_AT_ONCE)

    def _turn_number(self, turn: Expr) -> Expr:
        """The number of an iteration among those of all parts."""
        return turn if self.part is None else binary("+", binary("*", self.part.var, self.chain.loop.extent), turn)

    def nest_in_roles(self) -> KernelNest:
        """The same kernel, with a warp more, or a group of them."""
        chain, group = self.chain, self.group
        last, boxes = seq(*chain.last), None
        found = in_boxes(last, group, self.ranges)
        if found is not None:
            last, boxes = unrolled(found.body), found.place
        share = self._share()
        consumed = self._in_parts(seq(*self._consumed(), *chain.inverted, last))
        ended = [] if boxes is None else [group.once(RingCall("boxes_read", (), 0))]
        consumed = seq(*[RingCall("registers_more", (), n) for n in share[1:]], consumed, *ended)
        opened = [self._opened(ring) for ring in (0, 1, 2)]
        one = logical_and(compare("==", group.lane, 0), compare("==", self.warp, self.warps))
        less = If(compare(">=", self.warp, self.warps), seq(*[RingCall("registers_less", (), n) for n in share[:1]]))
        fetched = seq(*([less] if share else []), If(one, self._in_parts(self._produced())))
        body = seq(*opened, RingCall("memory_there", ()), fetched, If(compare("<", self.warp, self.warps), consumed))
        held = [*chain.held, self.barriers, *([boxes] if boxes is not None else [])]
        warps = replace(self.nest.loops["threadIdx.y"], extent=self.warps + (WARPS if share else 1))
        loops = {**self.nest.loops, "threadIdx.y": warps} | ({} if self.part is None else {"blockIdx.x": self.block})
        return KernelNest(loops, allocated(held, numbered(body)))

    def _share(self) -> tuple[int, ...]:
        """Registers of a thread that fetches, and of one that multiplies, where these are not those of all threads.

        Only groups of warps can change theirs, so that four warps fetch then instead of one.
        """
        chain, count = self.chain, self.warps // WARPS
        words = chain.first.d.buffer.size + chain.second.d.buffer.size + chain.second.a.buffer.size // 2
        return SHARE if count == 2 and words > FEW_WORDS else ()

    def _opened(self, ring: int) -> Stmt:
        """Barriers of K, of V, and of the tile that all iterations read."""
        first, tiles = BufferLoad(self.barriers, as_expr(2 * ring * self.chain.tiles)), self.chain.tiles
        return RingCall("ring_open", (first, as_expr(tiles if ring < 2 else 1), as_expr(self.warps)))

    def _await_rows(self, empty: bool) -> RingCall:
        """The tile that all iterations read is filled once for each part."""
        parity = as_expr(int(empty)) if self.part is None else binary("%", binary("+", self.part.var, int(empty)), 2)
        return RingCall("ring_await", (self._rows(empty), self.ranges.simplify(parity)))

    def _rows(self, empty: bool) -> BufferLoad:
        return BufferLoad(self.barriers, as_expr(4 * self.chain.tiles + empty))

    def _barrier(self, ring: int, turn: Expr, empty: bool) -> BufferLoad:
        tiles = self.chain.tiles
        slot = binary("+", binary("%", self._turn_number(turn), tiles), (2 * ring + empty) * tiles)
        return BufferLoad(self.barriers, self.ranges.simplify(slot))

    def _await(self, ring: int, turn: Expr, empty: bool) -> RingCall:
        """An empty tile is waited for from the second turn of the ring on: before, the parity is that of no phase."""
        phase = binary("+", binary("//", self._turn_number(turn), self.chain.tiles), int(empty))
        return RingCall("ring_await", (self._barrier(ring, turn, empty), self.ranges.simplify(binary("%", phase, 2))))

    def _release(self, ring: int, turn: Expr) -> Stmt:
        return self.group.each_warp(RingCall("ring_release", (self._barrier(ring, turn, True),)))

    def _produced(self) -> Stmt:
        loop = replace(self.chain.loop, var=Var("fetched"))
        self.ranges.bind(loop.var, 0, loop.extent - 1)
        out: list[Stmt] = []
        for ring, f in enumerate(self.chain.fetches):
            now = fetch_at(f, {self.chain.loop.var: binary("-", loop.var, self.chain.tiles - 1)}, self.ranges)
            now = replace(now, first=self._in_turn(BufferLoad(f.tile, now.first), loop.var, loop.var).index)
            out += [self._await(ring, loop.var, True), *self._fetched(now, self._barrier(ring, loop.var, False))]
            if ring == 0:
                rows = [self._await_rows(True), *self._fetched(self.chain.rows, self._rows(False))]
                out.append(If(compare("==", loop.var, 0), seq(*rows)))
        body = seq(*out) if self.mask is None else If(self.mask.is_live(loop.var), seq(*out))
        return replace(loop, body=body)

    def _fetched(self, f: Fetch, full: BufferLoad) -> list[Stmt]:
        return [RingCall("ring_expect", (full, as_expr(bytes_of(f.tile)))), *boxes_of(f, full, self.ranges)]

    def _in_turn(self, e: BufferLoad, var: Var, turn: Expr) -> BufferLoad:
        """A place in the tile of iteration `var`, in that of an iteration of a part."""
        begin = begin_of(e.buffer, self._turn_number(turn))
        return BufferLoad(e.buffer, self.ranges.simplify(binary("+", begin, in_tile(e, var, self.ranges))))

    @cached_property
    def mask(self) -> Mask | None:
        chain = self.chain
        blocks = frozenset([x.var for x in self.blocks])
        return mask_of(chain.between, chain.first.d.buffer, chain.loop.var, blocks, self.ranges)

    @cached_property
    def asks(self) -> bool:
        """Whether columns may be missing in the last iteration."""
        inside = [x for s in self.chain.between for x in stmts_of(s)]
        return any(isinstance(x, If) and self.chain.loop.var in free_vars(x.cond) for x in inside)

    def _consumed(self) -> list[Stmt]:
        """The first iteration, those behind it, and the last product."""
        chain, extent, first = self.chain, self.chain.loop.extent, as_expr(0)
        last = as_expr(extent - 1) if self.mask is None else self.ranges.simplify(self.mask.last_live(extent))
        begun: list[Stmt] = [self._await_rows(False), self._await(0, first, False), self._product(chain.first, first)]
        begun += [GroupWait(chain.first), self._release(0, first)]
        begun += [*self._at(chain.between, first), *self._at(chain.moved, first)]
        rest = self._turns() if self.mask is None else self._masked_turns(self.mask)
        through = self.group.each_warp(RingCall("ring_release", (self._rows(True),)))
        end = [self._await(1, last, False), self._product(chain.second, last), GroupWait(chain.second)]
        return [*chain.clear, *begun, *rest, through, *end, self._release(1, last)]

    def _turns(self) -> list[Stmt]:
        """Iterations behind the first one; the last one is apart where it alone must ask for columns."""
        count, turn = self.chain.loop.extent - 1 - self.asks, Var("turn")
        self.ranges.bind(turn, 0, max(count - 1, 0))
        loops: list[Stmt] = [For(turn, count, ForKind.SERIAL, self._turn(binary("+", turn, 1)))] if count else []
        return [*loops, self._turn(as_expr(self.chain.loop.extent - 1))] if self.asks else loops

    def _masked_turns(self, mask: Mask) -> list[Stmt]:
        """Those that any score of the block counts in; where all do, none is asked for."""
        chain, turn, count = self.chain, Var("turn"), self.chain.loop.extent - 1
        self.ranges.bind(turn, 0, count - 1)
        at, scores = binary("+", turn, 1), chain.first.d.buffer
        whole = [mask.is_clean(at), *([compare("<", turn, count - 1)] if self.asks else [])]
        bare = replace(chain, between=tuple(without_mask(chain.between, scores)))
        within = self.nest.ranges()
        within.bind(turn, 0, max(count - 1 - self.asks, 0))
        clean = replace(self, ranges=within, chain=bare, may_stay=False)._turn(at)
        either = [If(logical_and(*whole), clean), If(logical_not(logical_and(*whole)), self._turn(at))]
        return [For(turn, count, ForKind.SERIAL, If(mask.is_live(at), seq(*either)))]

    def _turn(self, turn: Expr) -> Stmt:
        chain, before = self.chain, self.ranges.simplify(binary("-", turn, 1))
        begun: list[Stmt] = [self._await(0, turn, False), self._product(chain.first, turn)]
        begun += [self._await(1, before, False), self._product(chain.second, before)]
        between = [GroupWait(chain.first, 1), self._release(0, turn), *self._at(chain.between, turn)]
        return seq(*begun, *between, GroupWait(chain.second), self._release(1, before), *self._at(chain.moved, turn))

    def _product(self, product: WarpMultiply, turn: Expr) -> WarpMultiply:
        b = self._in_turn(product.b, self.chain.loop.var, turn)
        return replace(product, b=b, apart=True, first=product is self.chain.first)

    def _at(self, stmts: Sequence[Stmt], turn: Expr) -> list[Stmt]:
        """Statements of an iteration, whose loops move registers."""
        env = {self.chain.loop.var: turn}
        return [unrolled(map_exprs(s, lambda e: self.ranges.simplify(substitute(e, env)))) for s in stmts]
