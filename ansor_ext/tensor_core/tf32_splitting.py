"""Products of groups of warps of floats in two parts: a tile is cut where it lies, sums of an iteration are added in
float32.

    load a of all steps; d += a * tile of B       becomes       cut the tile of B: big parts stay, small ones beside it
                                                                load a of all steps
                                                                barrier
                                                                t  = a * B       three products a step, small ones first
                                                                d += t           in float32

Tensor cores cut off what does not fit their sums, always towards zero, so sums of all terms would drift
(`mma_meaning.py`).  Those of an iteration, `t`, are of 32 terms, and take as many registers as `d`.

4096^3 by hand on an H100, microseconds (cuBLAS in float32 2,665, one product in TF32 432; errors are 0.21 and 0.19 of
cuBLAS's, in the Frobenius norm and by the largest |error| / sum |a||b|):

    128 x 128 a block, 3 tiles; 4 tiles                                                          1,418    1,448
    128 x 64, two tiles of rows a warp, two blocks a multiprocessor                              1,385
    64 x 128, two blocks a multiprocessor                                                        1,464
    128 x 128, 4 tiles, each cut a turn ahead, behind the products, into one of three            1,454
    the same, big parts not written but what the tensor core reads of floats                     1,476
    the same, nothing cut                                                                        1,204

So cutting ahead, and not writing big parts, bring nothing.  The search finds 128 x 64 a block, two blocks a
multiprocessor, 1,333 us.

A tile that is cut twice has lost its small parts, and whoever else reads it finds big ones: such a program is refused.
"""

from __future__ import annotations

from dataclasses import replace

from codegen_cuda.program.errors import EmitError
from te_lite.errors import require
from te_lite.expr.expr import BufferLoad, Var, as_expr, binary
from te_lite.expr.visit import free_vars, walk
from te_lite.loops.stmt import Barrier, Buffer, For, ForKind, Stmt, Store, allocated, exprs_of, seq, stmts_of

from .instructions import Cut, WarpMultiply
from .mma import GROUP_ROW_BYTES


def in_parts(loads: Stmt, product: WarpMultiply) -> Stmt:
    """The product of an iteration, widened (`warpgroup.py`), behind the `loads` of its A."""
    op, tile, zero = product.op, product.b, as_expr(0)
    count = op.n * GROUP_ROW_BYTES // op.element.nbytes
    rest = Buffer(f"{tile.buffer.name}_rest", tile.buffer.dtype, (count,), "shared")
    cut = Cut(op, tile, BufferLoad(rest, zero), count)
    work = by_tiles_of_parts(Barrier(), replace(product, rest=BufferLoad(rest, zero)))
    return allocated([rest], seq(cut, loads, work))


def by_tiles_of_parts(loads: Stmt, product: WarpMultiply) -> Stmt:
    """The product of an iteration by tiles of both parts, behind `loads`, and its sums added to all others."""
    sums, k = product.d.buffer, Var("k")
    iteration = Buffer(f"{sums.name}_turn", sums.dtype, (sums.size,), sums.scope)
    total = binary("+", BufferLoad(sums, k), BufferLoad(iteration, k))
    added = For(k, sums.size, ForKind.UNROLLED, Store(sums, k, total))
    return allocated([iteration], seq(loads, replace(product, d=BufferLoad(iteration, as_expr(0))), added))


def require_alone(body: Stmt) -> None:
    """Raises EmitError unless every tile that is cut is cut once each time that it is fetched, and read by the product
    of its parts alone."""
    cuts = [s for s in stmts_of(body) if isinstance(s, Cut)]
    others = [s for s in stmts_of(body) if not isinstance(s, Cut | WarpMultiply)] if cuts else []
    read = {x.buffer for s in others for e in exprs_of(s) for x in walk(e) if isinstance(x, BufferLoad)}
    tiles = [cut.tile.buffer for cut in cuts]
    for cut, tile in zip(cuts, tiles, strict=True):
        law = "a tile that is cut into parts must be read once, by the product of its parts"
        require(tiles.count(tile) == 1 and tile not in read, EmitError, tile.name, law)
        law = "a tile must be fetched anew before it is cut again"
        require(_fetched_anew(body, cut), EmitError, tile.name, law)


def _fetched_anew(body: Stmt, cut: Cut) -> bool:
    """Whether the innermost loop around a cut fetches the tile, or cuts another one each iteration, and the loops
    around that do all of its fetching.
    """
    tile = cut.tile.buffer
    *outer, inner = _loops_around(body, cut) or (None,)
    if inner is None:
        return True
    every = len(_fetches(body, tile))
    anew = bool(_fetches(inner.body, tile)) or inner.var in free_vars(cut.tile.index)
    return anew and all(len(_fetches(loop.body, tile)) == every for loop in outer)


def _loops_around(body: Stmt, cut: Cut) -> list[For]:
    return [s for s in stmts_of(body) if isinstance(s, For) and any(x is cut for x in stmts_of(s))]


def _fetches(body: Stmt, tile: Buffer) -> list[Stmt]:
    return [s for s in stmts_of(body) if isinstance(s, Store) and s.buffer is tile]
