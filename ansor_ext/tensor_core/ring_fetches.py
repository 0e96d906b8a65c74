"""Boxes of arrays that the copy engine fetches into tiles of a ring (`ring.py`), as a lowered program copies them.

A program copies a tile in loops of one thread, before a loop and in its iterations.  A kernel whose copies are no
boxes, or are not of the tiles that iterations read, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from codegen_cuda.program.cuda_program import KernelNest
from codegen_cuda.program.errors import EmitError
from te_lite.errors import require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Expr, Var, as_expr, binary, compare, same
from te_lite.expr.lanes import ceildiv
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import conjuncts, free_vars, substitute
from te_lite.loops.perfect_nest import iteration
from te_lite.loops.stmt import Buffer, For, If, Stmt, Store, stored_in

from ..pipeline.async_copy import moved
from ..pipeline.staged_copies import enclosing
from .copy_boxes import MOST_BOX, UNIT, Box, box_of, can_be_told
from .instructions import RingCall
from .layouts import boxed
from .mma import GROUP_ROW_BYTES


@dataclass(frozen=True)
class Fetch:
    """A box of an array that is copied to a tile of `tile`, from `first` on."""

    tile: Buffer
    first: Expr
    box: Box


def refuse(holds: bool, law: str, **values: object) -> None:
    require(holds, EmitError, "copy engine", law, **values)


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


def fetch_of(nest: KernelNest, s: Stmt, ranges: Simplifier, view: tuple[int, ...] | None = None) -> Fetch:
    """What a copy fetches of an array, in a `view` if one is given.

    Raises EmitError where it is no box, or none that lies as tensor cores read it.
    """
    around, store = enclosing(s)
    nest_of_copy = [x for x in around if isinstance(x, For)]
    loops = {x.var: x.extent for x in nest_of_copy}
    asked = [c for x in around if isinstance(x, If) for c in conjuncts(x.cond)]
    found = moved(store.value) if isinstance(store, Store) else None
    refuse(found is not None, "a tile must be copied from global memory by loops over its axes")
    assert isinstance(store, Store) and found is not None
    load, cond = found
    one = [compare("==", x.var, 0) for tag, x in nest.loops.items() if tag.startswith("threadIdx") and x.extent > 1]
    alone = all(any(same(c, x) for x in asked) for c in one) and len(asked) == len(one)
    refuse(alone, "one thread must copy a tile, all of it", conditions=asked)
    box = box_of(load.buffer, load.index, [] if cond is None else [cond], loops, ranges, view=view)
    refuse(box is not None, "a tile must be a box of an array, with zeros beyond its edge", index=load.index)
    assert box is not None
    first = ranges.simplify(substitute(store.index, dict.fromkeys(loops, as_expr(0))))
    columns, nbytes, tile = box.extents[-1], BYTES[store.buffer.dtype], store.buffer
    line = min(columns, GROUP_ROW_BYTES // nbytes)
    room = ceildiv(columns, line) * line
    extents, at = (_size(tile) // room, room), iteration(nest_of_copy)
    if room > columns:
        at = binary("+", binary("*", binary("//", at, columns), room), binary("%", at, columns))
    place = boxed(tile.name, at, extents, line, nbytes)
    lies = same(ranges.simplify(binary("+", first, place)), ranges.simplify(store.index))
    refuse(lies, "a tile must lie in swizzled lines of 128 bytes", index=store.index)
    law = f"rows of an array must begin at multiples of {UNIT} bytes, boxes have {MOST_BOX} rows at most"
    refuse(can_be_told(box), law, array=box.view, box=box.extents)
    return Fetch(tile, first, box)


def boxes_of(f: Fetch, full: BufferLoad, ranges: Simplifier, nearest: bool = False) -> Iterator[RingCall]:
    """A box for each line of the rows of a tile, which a barrier counts."""
    columns = min(f.box.extents[-1], GROUP_ROW_BYTES // BYTES[f.tile.dtype])
    count = ceildiv(f.box.extents[-1], columns)
    size = _size(f.tile) // count
    box = replace(f.box, start=(), extents=(*f.box.extents[:-1], columns), nearest=nearest)
    for k in range(count):
        at = [*f.box.start[:-1], ranges.simplify(binary("+", f.box.start[-1], k * columns))]
        to = BufferLoad(f.tile, ranges.simplify(binary("+", f.first, k * size)))
        yield RingCall(f"box_fetch_{len(at)}d", (to, full, *at[::-1]), box=box)


def bytes_of(tiles: Buffer) -> int:
    """Of one tile."""
    return _size(tiles) * BYTES[tiles.dtype]


def _size(tiles: Buffer) -> int:
    """The elements of one tile."""
    return tiles.size // tiles.shape[0] if tiles.pipelined else tiles.size
