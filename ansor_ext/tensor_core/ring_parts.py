"""The parts of a kernel whose tiles are a ring (`ring.py`), as they are found in its program.

What is copied before the loop must be what iterations would copy, by one thread, as boxes of an array
(`ring_fetches.py`); a kernel of another form is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from codegen_cuda.program.cuda_program import KernelNest, loads_in
from te_lite.bounds.loop_scope import BLOCKS
from te_lite.expr.expr import Compare, Const, Expr, Var, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import conjuncts, free_vars
from te_lite.loops.stmt import (
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    Stmt,
    Store,
    bodies,
    flattened,
    stmts_of,
    stored_in,
)

from .instructions import WarpMultiply
from .pixel_boxes import PixelBoxes
from .ring_fetches import require_private, require_turns, tiles_of
from .tile_copies import Copies, Fetch, blocks_of, refuse

LAW = "a kernel must have one loop over pipelined tiles that groups of warps multiply, or one product of tiles"


@dataclass(frozen=True)
class Pipe:
    """The parts of a kernel: `clear` its sums; iterations `loop` of `fetches` and a `product`; `last` stores results,
    for which `ahead` reads what they need beside sums (`reads_ahead.py`).

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
    ahead: tuple[Stmt, ...] = ()

    @property
    def sums(self) -> int:
        """Of a thread, those of an iteration too."""
        return self.product.d.buffer.size * self.product.op.element.parts

    @property
    def tiles(self) -> int:
        return self.fetches[0].tile.shape[0]


def guards_of(s: Stmt, around: frozenset[Var]) -> list[Expr]:
    """The conditions on variables `around` under which all stores to global memory stand."""
    each = list(_conditions(s))
    first = [c for c in (each[0] if each else ()) if free_vars(c) <= around]
    return [c for c in first if all(any(same(c, x) for x in conds) for conds in each)]


def with_work(nest: KernelNest) -> KernelNest:
    """The kernel without blocks beyond the last one that stores anything, where there is one part of the result."""
    loops = dict(nest.loops)
    for c in guards_of(nest.body, frozenset(loop.var for tag, loop in loops.items() if tag in BLOCKS)):
        for tag, loop in nest.loops.items():
            match c:
                case Compare(op="<", a=Var() as a, b=Const(value=value)) if a is loop.var:
                    loops[tag] = replace(loop, extent=min(loop.extent, int(value)))
    return KernelNest(loops, nest.body)


def _conditions(s: Stmt, above: tuple[Expr, ...] = ()) -> Iterator[tuple[Expr, ...]]:
    """The conditions around each store to global memory."""
    if isinstance(s, Store) and s.buffer.storage == "global":
        yield above
    if isinstance(s, If):
        above = (*above, *conjuncts(s.cond))
    for b in bodies(s):
        yield from _conditions(b, above)


def pipe_of(nest: KernelNest, ranges: Simplifier) -> Pipe:
    held: list[Buffer] = []
    parts = list(flattened(nest.body, held))
    part = parts[0] if len(parts) == 1 and isinstance(parts[0], For) else None
    if isinstance(part, For):
        parts = list(flattened(part.body, held))
    places = [k for k, s in enumerate(parts) if _is_pipeline(s)]
    if not places:
        return _of_one_turn(nest, part, parts, tuple(held), ranges)
    refuse(len(places) == 1, LAW)
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


def _of_one_turn(
    nest: KernelNest, part: For | None, parts: Sequence[Stmt], held: tuple[Buffer, ...], ranges: Simplifier
) -> Pipe:
    """The parts of a kernel whose sums are of one tile: a loop of one iteration, and nothing fetched before it."""
    places = [k for k, s in enumerate(parts) if isinstance(s, WarpMultiply)]
    refuse(len(places) == 1, LAW)
    product, copies_of = parts[places[0]], Copies(nest, ranges, PixelBoxes(blocks_of(nest, part)))
    assert isinstance(product, WarpMultiply)
    tiles = {e.buffer for e in product.places if e.buffer.pipelined}
    before = [s for s in parts[: places[0]] if not isinstance(s, Barrier)]
    copies = [s for s in before if stored_in(s) and stored_in(s) <= tiles]
    clear, last = [s for s in before if s not in copies], parts[places[0] + 1 :]
    ranges.bind(turn := Var("turn"), 0, 0)
    fetches = tuple([copies_of.fetch(s, ranges) for s in copies])
    refuse({f.tile for f in fetches} == tiles and len(fetches) == len(tiles), LAW)
    require_private([*clear, *last])
    return Pipe(held, part, tuple(clear), For(turn, 1, ForKind.SERIAL, product), fetches, (), product, (), tuple(last))


def _is_pipeline(s: Stmt) -> bool:
    match list(flattened(s.body, [])) if isinstance(s, For) else []:
        case [Barrier(publishes=True), If(), WarpMultiply() as product]:
            return product.a.buffer.storage == "shared"
        case [Barrier(publishes=True), If(), *loads, WarpMultiply(op=op), For()]:
            return op.element.apart and not any(isinstance(x, Barrier) for s in loads for x in stmts_of(s))
    return False


def _check(pipe: Pipe, fetch: If, before: Sequence[Fetch], ranges: Simplifier) -> None:
    """All other statements must be of threads that multiply; tiles hold what iterations fetch, where they read it."""
    require_private([*pipe.clear, *pipe.last])
    read = [e for s in pipe.loads for e in loads_in(s) if e.buffer in {f.tile for f in pipe.fetches}]
    read += [e for e in pipe.product.places if e.buffer.storage == "shared"]
    require_turns(pipe.loop, pipe.fetches, fetch, before, read, ranges)
