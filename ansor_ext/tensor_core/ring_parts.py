"""The parts of a kernel that can be written as a ring (`ring.py`): what it fetches, multiplies and stores.

What is copied before the loop must be what iterations would copy; a kernel of another form is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from codegen_cuda.program.cuda_program import KernelNest, loads_in
from codegen_cuda.program.errors import EmitError
from te_lite.errors import require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Expr, Var, as_expr, binary, compare, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute
from te_lite.loops.stmt import Barrier, Buffer, For, If, Seq, Stmt, Store, bodies, flattened, stmts_of, stored_in

from ..pipeline.async_copy import moved
from .copy_boxes import MOST_BOX, UNIT, Box, box_of, can_be_told, conjuncts
from .instructions import WarpMultiply
from .layouts import boxed
from .mma import GROUP_ROW_BYTES


@dataclass(frozen=True)
class Fetch:
    """A box of an array that is copied to a tile of `tile`, from `first` on."""

    tile: Buffer
    first: Expr
    box: Box


@dataclass(frozen=True)
class Pipe:
    """The parts of a kernel: `clear` its sums; iterations `loop` of `fetches` and a `product`; `last` stores results.

    `part` is the loop over parts of the result, if there is one.
    """

    held: tuple[Buffer, ...]
    part: For | None
    clear: tuple[Stmt, ...]
    loop: For
    fetches: tuple[Fetch, ...]
    product: WarpMultiply
    last: tuple[Stmt, ...]

    @property
    def tiles(self) -> int:
        return self.fetches[0].tile.shape[0]


def guards_of(s: Stmt, around: frozenset[Var]) -> list[Expr]:
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


def _refuse(holds: bool, law: str, **values: object) -> None:
    require(holds, EmitError, "copy engine", law, **values)


def pipe_of(nest: KernelNest, ranges: Simplifier) -> Pipe:
    held: list[Buffer] = []
    parts = list(flattened(nest.body, held))
    part = parts[0] if len(parts) == 1 and isinstance(parts[0], For) else None
    if isinstance(part, For):
        parts = list(flattened(part.body, held))
    places = [k for k, s in enumerate(parts) if _is_pipeline(s)]
    _refuse(len(places) == 1, "a kernel must have one loop over pipelined tiles that groups of warps multiply")
    loop = parts[places[0]]
    assert isinstance(loop, For) and isinstance(loop.body, Seq)
    _, fetch, product = loop.body.stmts
    assert isinstance(fetch, If) and isinstance(product, WarpMultiply)
    within = nest.ranges()
    stmts = list(flattened(fetch.then, []))
    left = loop.extent - _tiles_of(stmts) if stmts else 0
    if left >= 0:  # of iterations that fetch, conditions of copies hold that are not written
        within.bind(loop.var, 0, left)
    fetches = tuple([_fetch(nest, s, within) for s in stmts])
    tiles = {f.tile for f in fetches}
    before, last = parts[: places[0]], tuple(parts[places[0] + 1 :])
    copies = [s for s in before if stored_in(s) and stored_in(s) <= tiles]
    clear = tuple([s for s in before if s not in copies and not isinstance(s, Barrier)])
    found = Pipe(tuple(held), part, clear, loop, fetches, product, last)
    views = {f.tile: f.box.view for f in fetches}
    _check(found, fetch, [_fetch(nest, s, ranges, views[next(iter(stored_in(s)))]) for s in copies], ranges)
    return found


def _tiles_of(copies: Sequence[Stmt]) -> int:
    return min([b.shape[0] for s in copies for b in stored_in(s)], default=0)


def _is_pipeline(s: Stmt) -> bool:
    match s:
        case For(body=Seq(stmts=(Barrier(publishes=True), If(), WarpMultiply() as product))):
            return product.a.buffer.storage == "shared"
    return False


def _check(pipe: Pipe, fetch: If, before: Sequence[Fetch], ranges: Simplifier) -> None:
    """All other statements must be of threads that multiply; tiles hold what iterations fetch, where they read it."""
    ahead, var = pipe.tiles - 1, pipe.loop.var
    rest = [x for s in (*pipe.clear, *pipe.last) for x in stmts_of(s)]
    used = {b for s in rest for b in stored_in(s)} | {e.buffer for s in rest for e in loads_in(s)}
    shared = [b for b in used if b.storage == "shared"]
    _refuse(not shared and not any(isinstance(x, Barrier) for x in rest), "nothing else may go through shared memory")
    more = compare("<", binary("+", var, ahead), pipe.loop.extent)
    count = {f.tile.shape[0] for f in pipe.fetches}
    alike = len(count) == 1 and same(ranges.simplify(fetch.cond), ranges.simplify(more))
    _refuse(alike and len(before) == ahead * len(pipe.fetches), "each tile must be fetched one turn of the ring ahead")
    for k, found in enumerate(before):
        turn, of = divmod(k, len(pipe.fetches))
        wanted = fetch_at(pipe.fetches[of], {var: as_expr(turn - ahead)}, ranges)
        fits = found.tile is wanted.tile and _same_box(found, wanted)
        _refuse(fits, "what is fetched before the loop must be what iterations fetch", tile=found.tile.name)
    product = pipe.product
    places = [BufferLoad(f.tile, fetch_at(f, {var: binary("-", var, ahead)}, ranges).first) for f in pipe.fetches]
    for e in (*places, product.a, product.b):
        _refuse(var not in free_vars(in_tile(e, var, ranges)), "a tile must be found by its number", index=e.index)


def in_tile(e: BufferLoad, turn: Expr, ranges: Simplifier) -> Expr:
    """How far a place lies behind the beginning of the tile of iteration `turn`."""
    tiles, stride = e.buffer.shape[0], (e.buffer.strides or (e.buffer.size,))[0]
    begin = binary("*", binary("%", turn, tiles), stride)
    return ranges.simplify(binary("-", e.index, begin))


def _same_box(x: Fetch, y: Fetch) -> bool:
    starts = zip((x.first, *x.box.start), (y.first, *y.box.start), strict=True)
    return replace(x.box, start=()) == replace(y.box, start=()) and all(same(a, b) for a, b in starts)


def fetch_at(f: Fetch, env: dict[Var, Expr], ranges: Simplifier) -> Fetch:
    """A fetch in another iteration."""
    start = tuple([ranges.simplify(substitute(x, env)) for x in f.box.start])
    return replace(f, first=ranges.simplify(substitute(f.first, env)), box=replace(f.box, start=start))


def _fetch(nest: KernelNest, s: Stmt, ranges: Simplifier, view: tuple[int, ...] | None = None) -> Fetch:
    """What a copy fetches of an array, in a `view` if one is given.

    Raises EmitError where it is no box, or none that lies as tensor cores read it.
    """
    loops: dict[Var, int] = {}
    asked: list[Expr] = []
    while isinstance(s, For | If):
        if isinstance(s, For):
            loops[s.var] = s.extent
            s = s.body
        else:
            asked += conjuncts(s.cond)
            s = s.then
    found = moved(s.value) if isinstance(s, Store) else None
    _refuse(found is not None, "a tile must be copied from global memory by loops over its axes")
    assert isinstance(s, Store) and found is not None
    load, cond = found
    one = [compare("==", x.var, 0) for tag, x in nest.loops.items() if tag.startswith("threadIdx") and x.extent > 1]
    alone = all(any(same(c, x) for x in asked) for c in one) and len(asked) == len(one)
    _refuse(alone, "one thread must copy a tile, all of it", conditions=asked)
    box = box_of(load.buffer, load.index, [] if cond is None else [cond], loops, ranges, view=view)
    _refuse(box is not None, "a tile must be a box of an array, with zeros beyond its edge", index=load.index)
    assert box is not None
    first = ranges.simplify(substitute(s.index, dict.fromkeys(loops, as_expr(0))))
    columns, nbytes = box.extents[-1], BYTES[s.buffer.dtype]
    rows = s.buffer.size // s.buffer.shape[0] // columns
    index: Expr = as_expr(0)
    for var, extent in loops.items():
        index = binary("+", binary("*", index, extent), var)
    place = boxed(s.buffer.name, index, (rows, columns), min(columns, GROUP_ROW_BYTES // nbytes), nbytes)
    lies = same(ranges.simplify(binary("+", first, place)), ranges.simplify(s.index))
    _refuse(lies, "a tile must lie in swizzled lines of 128 bytes", index=s.index)
    law = f"rows of an array must begin at multiples of {UNIT} bytes, boxes have {MOST_BOX} rows at most"
    _refuse(can_be_told(box), law, array=box.view, box=box.extents)
    return Fetch(s.buffer, first, box)
