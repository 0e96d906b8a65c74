"""A ring of tiles for two products of which the first makes a factor of the second, as in attention.

    for t: barrier; fetch tiles t + S - 1          a group of warps more, one thread of it:
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
multiplied by there is not read, not even where it is infinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from codegen_cuda.program.cuda_program import KernelNest, loads_in
from te_lite.bounds.loop_scope import BLOCKS
from te_lite.expr.expr import (
    BufferLoad,
    Const,
    Expr,
    Var,
    as_expr,
    binary,
    compare,
    logical_and,
    logical_not,
)
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute
from te_lite.loops.stmt import (
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    Seq,
    Stmt,
    Store,
    allocated,
    flattened,
    map_exprs,
    seq,
    stmts_of,
    stored_in,
)

from .box_store import Group, in_boxes
from .instructions import GroupWait, RingCall, WarpMultiply
from .masked_turns import Mask, mask_of, without_mask
from .mma import WARPS
from .ring import numbered
from .ring_fetches import (
    Fetch,
    begin_of,
    boxes_of,
    bytes_of,
    fetch_at,
    fetch_of,
    in_tile,
    refuse,
    require_turns,
    tiles_of,
)
from .row_folds import folded, unrolled, with_inverses

SHARES = {2: (40, 232), 3: (32, 160)}
"""Registers of a thread that fetches, and of one that multiplies, by the groups of a block."""
FEW_WORDS = 80
"""Of sums and factors of a thread, with which two groups leave room for another block."""


@dataclass(frozen=True)
class Chain:
    """The parts of a kernel: all iterations read the tile `rows`, `clear` is what each thread begins with; then
    iterations `loop` of two `fetches` and two products, with what is `between` them, and `moved` of it, which touches
    sums or factors of the second one; `last` stores results, which the values that are `inverted` divide."""

    held: tuple[Buffer, ...]
    rows: Fetch
    clear: tuple[Stmt, ...]
    loop: For
    fetches: tuple[Fetch, Fetch]
    first: WarpMultiply
    between: tuple[Stmt, ...]
    moved: tuple[Stmt, ...]
    second: WarpMultiply
    inverted: tuple[Stmt, ...]
    last: tuple[Stmt, ...]

    @property
    def tiles(self) -> int:
        return self.fetches[0].tile.shape[0]


def is_chained(nest: KernelNest) -> bool:
    """Whether a kernel has iterations of pipelined tiles with more than one product of groups of warps."""
    return any(_is_chain(s) for s in stmts_of(nest.body))


def _is_chain(s: Stmt) -> bool:
    match s:
        case For(body=Seq(stmts=(Barrier(publishes=True), If(), *work))):
            return len([x for part in work for x in stmts_of(part) if isinstance(x, WarpMultiply)]) > 1
    return False


def in_chained_ring(nest: KernelNest) -> KernelNest:
    """A kernel with a producer and consumers of its tiles.  Raises EmitError for one that has another form."""
    ranges = nest.ranges()
    chain = _chain(nest, ranges)
    barriers = Buffer("barriers", "int64", (4 * chain.tiles + 2,), "shared")
    return _ChainedRing(nest, ranges, chain, barriers).nest_in_roles()


# --------------------------------------------------------------------------------------------------------- parts


def _chain(nest: KernelNest, ranges: Simplifier) -> Chain:
    held: list[Buffer] = []
    parts = list(flattened(nest.body, held))
    places = [k for k, s in enumerate(parts) if _is_chain(s)]
    refuse(len(places) == 1, "a kernel must have one loop over pipelined tiles with two products")
    loop, front = parts[places[0]], parts[: places[0]]
    assert isinstance(loop, For) and isinstance(loop.body, Seq)
    _, fetch, *rest = loop.body.stmts
    work = [x for s in rest for x in flattened(s, held)]
    at = [k for k, x in enumerate(work) if isinstance(x, WarpMultiply)]
    refuse(len(at) == 2 and at[1] == len(work) - 1, "an iteration must have two products, one of them last")
    first, second = work[at[0]], work[at[1]]
    assert isinstance(first, WarpMultiply) and isinstance(second, WarpMultiply) and isinstance(fetch, If)
    refuse(_clears(work[: at[0]], first.d.buffer), "the first product of an iteration must begin at zero")
    between, moved = _parted(work[at[0] + 1 : -1], {second.d.buffer, second.a.buffer})
    fetches = _fetches(nest, loop, fetch, front, ranges, (first, second))
    tiles = {f.tile for f in fetches}
    others = [s for s in front if not stored_in(s) & tiles]
    fills = [s for s in others if stored_in(s) == {first.a.buffer}]
    refuse(len(fills) == 1, "what all iterations read must be one tile that is fetched")
    clear = tuple([s for s in others if not isinstance(s, Barrier) and s is not fills[0]])
    inverted, last, inverses = with_inverses(parts[places[0] + 1 :])
    rows, between, held = fetch_of(nest, fills[0], ranges), tuple(folded(between)), [*held, *inverses]
    found = Chain(tuple(held), rows, clear, loop, fetches, first, between, moved, second, tuple(inverted), tuple(last))
    _check(found, ranges)
    return found


def _clears(stmts: Sequence[Stmt], sums: Buffer) -> bool:
    """Whether statements only set the sums to zero."""
    stores = [x for s in stmts for x in stmts_of(s) if isinstance(x, Store)]
    zero = all(isinstance(x.value, Const) and x.value.value == 0 for x in stores)
    return bool(stores) and zero and all(stored_in(s) == {sums} for s in stmts)


def _parted(stmts: Sequence[Stmt], own: set[Buffer]) -> tuple[tuple[Stmt, ...], tuple[Stmt, ...]]:
    """What stands before the first statement that touches a buffer of `own`, and what follows."""
    touched = [k for k, s in enumerate(stmts) if (stored_in(s) | {e.buffer for e in loads_in(s)}) & own]
    cut = touched[0] if touched else len(stmts)
    return tuple(stmts[:cut]), tuple(stmts[cut:])


def _fetches(
    nest: KernelNest, loop: For, fetch: If, front: Sequence[Stmt], ranges: Simplifier,
    products: tuple[WarpMultiply, WarpMultiply],
) -> tuple[Fetch, Fetch]:  # fmt: skip
    """What iterations fetch: first the tile of the first product, then that of the second one."""
    within, stmts = nest.ranges(), list(flattened(fetch.then, []))
    left = loop.extent - tiles_of(stmts) if stmts else 0
    if left >= 0:  # of iterations that fetch, conditions of copies hold that are not written
        within.bind(loop.var, 0, left)
    found = {f.tile: f for f in [fetch_of(nest, s, within) for s in stmts]}
    wanted = [p.b.buffer for p in products]
    refuse(set(found) == set(wanted) and len(found) == 2, "each product must read one tile that is fetched")
    copies = [s for s in front if stored_in(s) and stored_in(s) <= set(found)]
    before = [fetch_of(nest, s, ranges, found[next(iter(stored_in(s)))].box.view) for s in copies]
    require_turns(loop, list(found.values()), fetch, before, [p.b for p in products], ranges)
    return found[wanted[0]], found[wanted[1]]


def _check(chain: Chain, ranges: Simplifier) -> None:
    """Nothing but what stands before all iterations, and the tiles, may go through shared memory."""
    rest = [x for s in (*chain.clear, *chain.between, *chain.moved, *chain.last) for x in stmts_of(s)]
    used = {b for s in rest for b in stored_in(s)} | {e.buffer for s in rest for e in loads_in(s)}
    plain = not any(b.storage == "shared" for b in used) and not any(isinstance(x, Barrier) for x in rest)
    refuse(plain, "nothing else may go through shared memory")
    own = {chain.second.d.buffer, chain.second.a.buffer}
    at_work = {b for s in chain.between for b in stored_in(s)} | {e.buffer for s in chain.between for e in loads_in(s)}
    refuse(not own & at_work and chain.loop.extent > 1, "products must overlap with what is between them")


# --------------------------------------------------------------------------------------------------------- roles


@dataclass(frozen=True)
class _ChainedRing:
    nest: KernelNest
    ranges: Simplifier
    chain: Chain
    barriers: Buffer

    @property
    def warp(self) -> Var:
        return self.nest.loops["threadIdx.y"].var

    @property
    def warps(self) -> int:
        return self.nest.loops["threadIdx.y"].extent

    @cached_property
    def group(self) -> Group:
        around = frozenset(loop.var for tag, loop in self.nest.loops.items() if tag in BLOCKS)
        return Group(self.warp, self.nest.loops["threadIdx.x"].var, self.warps // WARPS, around, False)

    def nest_in_roles(self) -> KernelNest:
        """The same kernel, with one group of warps more."""
        chain, group = self.chain, self.group
        last, boxes = seq(*chain.last), None
        found = in_boxes(last, group, self.ranges)
        if found is not None:
            last, boxes = unrolled(found[0]), found[1]
        share = self._share()
        consumed = seq(
            *[RingCall("registers_more", (), n) for n in share[1:]], *self._consumed(), *chain.inverted, last
        )
        consumed = consumed if boxes is None else seq(consumed, group.once(RingCall("boxes_read", (), 0)))
        opened = [self._opened(ring) for ring in (0, 1, 2)]
        one = logical_and(compare("==", group.lane, 0), compare("==", self.warp, self.warps))
        less = If(compare(">=", self.warp, self.warps), seq(*[RingCall("registers_less", (), n) for n in share[:1]]))
        fetched = seq(*([less] if share else []), If(one, self._produced()))
        body = seq(*opened, fetched, If(compare("<", self.warp, self.warps), consumed))
        held = [*chain.held, self.barriers, *([boxes] if boxes is not None else [])]
        loops = {
            **self.nest.loops,
            "threadIdx.y": replace(self.nest.loops["threadIdx.y"], extent=self.warps + (WARPS if share else 1)),
        }
        return KernelNest(loops, allocated(held, numbered(body)))

    def _share(self) -> tuple[int, ...]:
        """Registers of a thread that fetches, and of one that multiplies, where these are not those of all threads.

        Only groups of warps can change theirs, so that four warps fetch then instead of one.
        """
        chain, count = self.chain, self.group.count
        words = chain.first.d.buffer.size + chain.second.d.buffer.size + chain.second.a.buffer.size // 2
        return () if count == 1 or (count == 2 and words <= FEW_WORDS) else SHARES[count]

    def _opened(self, ring: int) -> Stmt:
        """Barriers of K, of V, and of the tile that all iterations read."""
        first, tiles = BufferLoad(self.barriers, as_expr(2 * ring * self.chain.tiles)), self.chain.tiles
        return RingCall("ring_open", (first, as_expr(tiles if ring < 2 else 1), as_expr(self.group.count)))

    @property
    def _rows_full(self) -> BufferLoad:
        return BufferLoad(self.barriers, as_expr(4 * self.chain.tiles))

    def _barrier(self, ring: int, turn: Expr, empty: bool) -> BufferLoad:
        tiles = self.chain.tiles
        slot = binary("+", binary("%", turn, tiles), (2 * ring + empty) * tiles)
        return BufferLoad(self.barriers, self.ranges.simplify(slot))

    def _await(self, ring: int, turn: Expr, empty: bool) -> RingCall:
        """An empty tile is waited for from the second turn of the ring on: before, the parity is that of no phase."""
        phase = binary("+", binary("//", turn, self.chain.tiles), int(empty))
        return RingCall("ring_await", (self._barrier(ring, turn, empty), self.ranges.simplify(binary("%", phase, 2))))

    def _release(self, ring: int, turn: Expr) -> Stmt:
        return self.group.once(RingCall("ring_release", (self._barrier(ring, turn, True),)))

    def _produced(self) -> Stmt:
        loop = replace(self.chain.loop, var=Var("fetched"))
        self.ranges.bind(loop.var, 0, loop.extent - 1)
        out: list[Stmt] = []
        for ring, f in enumerate(self.chain.fetches):
            now = fetch_at(f, {self.chain.loop.var: binary("-", loop.var, self.chain.tiles - 1)}, self.ranges)
            full = self._barrier(ring, loop.var, False)
            expect = RingCall("ring_expect", (full, as_expr(bytes_of(f.tile))))
            out += [self._await(ring, loop.var, True), expect, *boxes_of(now, full, self.ranges)]
        body = seq(*out) if self.mask is None else If(self.mask.is_live(loop.var), seq(*out))
        rows, full = self.chain.rows, self._rows_full
        expect = RingCall("ring_expect", (full, as_expr(bytes_of(rows.tile))))
        return seq(expect, *boxes_of(rows, full, self.ranges), replace(loop, body=body))

    @cached_property
    def mask(self) -> Mask | None:
        chain = self.chain
        return mask_of(chain.between, chain.first.d.buffer, chain.loop.var, self.group.around, self.ranges)

    @cached_property
    def asks(self) -> bool:
        """Whether columns may be missing in the last iteration."""
        inside = [x for s in self.chain.between for x in stmts_of(s)]
        return any(isinstance(x, If) and self.chain.loop.var in free_vars(x.cond) for x in inside)

    def _consumed(self) -> list[Stmt]:
        """The first iteration, those behind it, and the last product."""
        chain, extent, first = self.chain, self.chain.loop.extent, as_expr(0)
        last = as_expr(extent - 1) if self.mask is None else self.ranges.simplify(self.mask.last_live(extent))
        begun: list[Stmt] = [RingCall("ring_await", (self._rows_full, as_expr(0)))]
        begun += [self._await(0, first, False), self._product(chain.first, first)]
        begun += [
            GroupWait(chain.first),
            self._release(0, first),
            *self._at(chain.between, first),
            *self._at(chain.moved, first),
        ]
        rest = self._turns() if self.mask is None else self._masked_turns(self.mask)
        end = [self._await(1, last, False), self._product(chain.second, last), GroupWait(chain.second)]
        return [*chain.clear, *begun, *rest, *end]

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
        clean = replace(self, ranges=within, chain=bare)._turn(at)
        either = [If(logical_and(*whole), clean), If(logical_not(logical_and(*whole)), self._turn(at))]
        return [For(turn, count, ForKind.SERIAL, If(mask.is_live(at), seq(*either)))]

    def _turn(self, turn: Expr) -> Stmt:
        chain, before = self.chain, self.ranges.simplify(binary("-", turn, 1))
        begun: list[Stmt] = [self._await(0, turn, False), self._product(chain.first, turn)]
        begun += [self._await(1, before, False), self._product(chain.second, before)]
        between = [GroupWait(chain.first, 1), self._release(0, turn), *self._at(chain.between, turn)]
        return seq(*begun, *between, GroupWait(chain.second), self._release(1, before), *self._at(chain.moved, turn))

    def _product(self, product: WarpMultiply, turn: Expr) -> WarpMultiply:
        within = in_tile(product.b, self.chain.loop.var, self.ranges)
        b = BufferLoad(product.b.buffer, self.ranges.simplify(binary("+", begin_of(product.b.buffer, turn), within)))
        return replace(product, b=b, apart=True, first=product is self.chain.first)

    def _at(self, stmts: Sequence[Stmt], turn: Expr) -> list[Stmt]:
        """Statements of an iteration, whose loops move registers."""
        env = {self.chain.loop.var: turn}
        return [unrolled(map_exprs(s, lambda e: self.ranges.simplify(substitute(e, env)))) for s in stmts]
