"""Boxes of arrays that the copy engine fetches into tiles of a ring (`ring.py`), as a lowered program copies them.

A program copies a tile in loops of one thread, before a loop and in its iterations.  A kernel whose copies are no
boxes, or are not of the tiles that iterations read, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from codegen_cuda.program.cuda_program import loads_in
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Expr, Var, as_expr, binary, compare, same
from te_lite.expr.lanes import ceildiv
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute
from te_lite.loops.stmt import Barrier, Buffer, For, If, Stmt, stmts_of, stored_in

from .copy_boxes import Box
from .instructions import RingCall
from .pixel_boxes import told
from .swizzle import line_of
from .tile_copies import Fetch, refuse, size_of

EIGHT = 8
"""Rows after which a swizzle repeats."""


def require_private(stmts: Sequence[Stmt]) -> None:
    """Statements of threads that multiply must not meet, nor use shared memory.  Raises EmitError for others."""
    rest = [x for s in stmts for x in stmts_of(s)]
    used = {b for s in rest for b in stored_in(s)} | {e.buffer for s in rest for e in loads_in(s)}
    plain = not any(b.storage == "shared" for b in used) and not any(isinstance(x, Barrier) for x in rest)
    refuse(plain, "nothing else may go through shared memory")


def tiles_of(copies: Sequence[Stmt]) -> int:
    return min([b.shape[0] for s in copies for b in stored_in(s)], default=0)


def require_turns(
    loop: For, fetches: Sequence[Fetch], fetch: If, before: Sequence[Fetch], read: Sequence[BufferLoad],
    ranges: Simplifier,
) -> None:  # fmt: skip
    """Tiles must hold what iterations of a loop fetch, one turn of the ring ahead, or what is fetched before it, where
    they are read.  Raises EmitError for others."""
    count, var = {f.tile.shape[0] for f in fetches}, loop.var
    ahead = min(count, default=1) - 1
    more = compare("<", binary("+", var, ahead), loop.extent)
    alike = len(count) == 1 and same(ranges.simplify(fetch.cond), ranges.simplify(more))
    refuse(alike and len(before) == ahead * len(fetches), "each tile must be fetched one turn of the ring ahead")
    for k, found in enumerate(before):
        turn, of = divmod(k, len(fetches))
        wanted = fetch_at(fetches[of], {var: as_expr(turn - ahead)}, ranges)
        fits = found.tile is wanted.tile and same_box(found, wanted)
        refuse(fits, "what is fetched before the loop must be what iterations fetch", tile=found.tile.name)
    places = [BufferLoad(f.tile, fetch_at(f, {var: binary("-", var, ahead)}, ranges).first) for f in fetches]
    for e in (*places, *read):
        refuse(var not in free_vars(in_tile(e, var, ranges)), "a tile must be found by its number", index=e.index)


def in_tile(e: BufferLoad, turn: Expr, ranges: Simplifier) -> Expr:
    """How far a place lies behind the beginning of the tile of iteration `turn`."""
    return ranges.simplify(binary("-", e.index, begin_of(e.buffer, turn)))


def begin_of(tiles: Buffer, turn: Expr) -> Expr:
    """Where the tile of iteration `turn` begins."""
    stride = (tiles.strides or (tiles.size,))[0]
    return binary("*", binary("%", turn, tiles.shape[0]), stride)


def same_box(x: Fetch, y: Fetch) -> bool:
    starts = zip((x.first, *x.box.start), (y.first, *y.box.start), strict=True)
    return replace(x.box, start=()) == replace(y.box, start=()) and all(same(a, b) for a, b in starts)


def fetch_at(f: Fetch, env: dict[Var, Expr], ranges: Simplifier) -> Fetch:
    """A fetch in another iteration."""
    start = tuple([ranges.simplify(substitute(x, env)) for x in f.box.start])
    return replace(f, first=ranges.simplify(substitute(f.first, env)), box=replace(f.box, start=start))


def boxes_of(f: Fetch, full: BufferLoad, ranges: Simplifier, nearest: bool = False) -> Iterator[RingCall]:
    """A box for each line of the rows of a tile, which a barrier counts."""
    columns = line_of(f.box.extents[-1], BYTES[f.tile.dtype])
    count = ceildiv(f.box.extents[-1], columns)
    size = size_of(f.tile) // count
    box, name = replace(f.box, start=(), extents=(*f.box.extents[:-1], columns), nearest=nearest), "box"
    place: Sequence[Expr] = f.box.start[:-1]
    further: Sequence[Expr] = ()
    if f.box.pixels is not None:
        box, place, further = told(replace(f.box, extents=box.extents, nearest=nearest), ranges)
        name = "pixels"
    for k in range(count):
        at = [*place, ranges.simplify(binary("+", f.box.start[-1], k * columns))]
        to = BufferLoad(f.tile, ranges.simplify(binary("+", f.first, k * size)))
        yield RingCall(f"{name}_fetch_{len(at)}d", (to, full, *at[::-1], *further[::-1]), box=box)


def bytes_of(tiles: Buffer) -> int:
    """Of one tile."""
    return size_of(tiles) * BYTES[tiles.dtype]


def is_for_all(f: Fetch, cluster: For) -> bool:
    """Whether all blocks of a cluster need a box, of which each can fetch its share of the rows."""
    rows, depends = prod(f.box.extents[:-1]), any(cluster.var in free_vars(x) for x in f.box.start)
    alike = rows % (cluster.extent * EIGHT) == 0 and f.box.extents[rows_axis(f.box)] % cluster.extent == 0
    return f.box.pixels is None and alike and not depends


def rows_axis(box: Box) -> int:
    """The outermost axis of a box."""
    return next((d for d, n in enumerate(box.extents) if n > 1), 0)
