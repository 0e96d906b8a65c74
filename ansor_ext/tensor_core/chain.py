"""A loop of two products, of which the first makes a factor of the second, read from a lowered program.

What such a kernel is written as: `chained_ring.py`.  One of another form is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from codegen_cuda.program.cuda_program import KernelNest, loads_in
from te_lite.expr.expr import (
    Const,
)
from te_lite.expr.simplify import Simplifier
from te_lite.loops.stmt import (
    Barrier,
    Buffer,
    For,
    If,
    Seq,
    Stmt,
    Store,
    flattened,
    stmts_of,
    stored_in,
)

from .instructions import WarpMultiply
from .pixel_boxes import PixelBoxes
from .ring_fetches import require_private, require_turns, tiles_of
from .row_folds import folded, with_inverses
from .tile_copies import Copies, Fetch, refuse


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


def chain_of(nest: KernelNest, ranges: Simplifier) -> Chain:
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
    rows = Copies(nest, ranges, PixelBoxes({})).fetch(fills[0], ranges)
    between, held = tuple(folded(between)), [*held, *inverses]
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
    inside, around = [Copies(nest, x, PixelBoxes({})) for x in (within, ranges)]
    found = {f.tile: f for f in [inside.fetch(s, within) for s in stmts]}
    first, second = [p.b.buffer for p in products]
    refuse(found.keys() == {first, second} and first is not second, "each product must read one tile that is fetched")
    copies = [s for s in front if stored_in(s) and stored_in(s) <= set(found)]
    before = [around.fetch(s, ranges, found[next(iter(stored_in(s)))].box) for s in copies]
    require_turns(loop, list(found.values()), fetch, before, [p.b for p in products], ranges)
    return found[first], found[second]


def _check(chain: Chain, ranges: Simplifier) -> None:
    """Nothing but what stands before all iterations, and the tiles, may go through shared memory."""
    require_private([*chain.clear, *chain.between, *chain.moved, *chain.last])
    own = {chain.second.d.buffer, chain.second.a.buffer}
    at_work = {b for s in chain.between for b in stored_in(s)} | {e.buffer for s in chain.between for e in loads_in(s)}
    refuse(not own & at_work and chain.loop.extent > 1, "products must overlap with what is between them")
