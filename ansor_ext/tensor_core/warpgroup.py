"""Groups of four warps that multiply together (`wgmma`): the tensor cores read factors from shared memory.

    for q in 0..4:                                    d += tile of A * tile of B    four steps, all of the group
      load a, b of step q                  becomes
      for i, j: d[i, j] += a[i] * b[j]                or: for q in 0..4: load a of step q;  d += a * tile of B

What a program says of `b`, its fragments by `ldmatrix`, is where B lies: in rows of 128 bytes along the terms, one for
each column, swizzled (`swizzle.py`), the first at a multiple of 1024 bytes.  That is a layout that
descriptors know; a program of any other is refused, and so is one whose warps do not all read the same B.  A is read
from there, too, where each warp of a group has the 16 rows behind those of the last one, and these lie in such a layout
or, of halves, in rows of 128 bytes along the rows, one for each term.  Elsewhere its fragments are loaded.  Floats in
parts are cut first, and their sums of an iteration added to others (`tf32_splitting.py`).

With four tiles and more of both factors a product goes on over the barrier of the next iteration (`_going_on`).  That
iteration begins its own product, waits for the last one, and fetches into the tile of the product before that.  All
warps waited for this one before the barrier; so a tile less is ahead.  Elsewhere a kernel waits for its products before
the barrier. Where that fetches a tile that is not the next one, it does so while the products of LEAST_WAITED columns
and more go on (`_fetched_behind`): the instructions that fetch take as long as such products.  On an H200,
microseconds, with A from registers and the fetch first; with the fetch behind; with A from shared memory, too; cuBLAS:

    1024^3, halves, 64 x 128 a block, 4 tiles                    7.84     6.61    5.40    5.35
    197 x 3072 x 768, TF32, 64 x 128, 4 tiles                   11.06     8.98            9.1
    128 x 3072 x 768, halves, 64 x 32, 3 tiles (4.14 with A from shared memory, but the fetch first)
                                                                 4.93     4.62    4.41    3.84
    4096^3, TF32, 128 x 256, 3 tiles                             535      434             396
    4096^3, halves, 128 x 256, 4 tiles                           259      226             206
    4096^3, halves, 128 x 256, 2 tiles, which cannot wait        256      282
"""

from __future__ import annotations

from dataclasses import replace

from codegen_cuda.program.cuda_program import KernelNest
from codegen_cuda.program.errors import EmitError
from te_lite.bounds.loop_scope import LANES
from te_lite.errors import require
from te_lite.expr.expr import BufferLoad, Var, binary, compare
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute
from te_lite.loops.perfect_nest import perfect_nest
from te_lite.loops.stmt import (
    Barrier,
    Buffer,
    For,
    If,
    Seq,
    Stmt,
    allocated,
    bodies,
    flattened,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
)

from ..pipeline.emission import by_engine
from .chain import is_chained
from .chained_ring import in_chained_ring
from .group_steps import Steps
from .instructions import RingCall, WarpMultiply
from .mma import WARPS
from .ring import in_ring
from .rows_ahead import LEAST_LEFT, is_fetch, with_rows_ahead
from .split_ring import over_cluster
from .tf32_splitting import require_alone

LEAST_WAITED = 128
"""Columns of products that last as long as the instructions that fetch a tile."""


def multiplies_in_groups(body: Stmt) -> bool:
    """Whether a kernel has instructions of groups of warps."""
    return any(isinstance(s, WarpMultiply) and s.op.warps > 1 for s in stmts_of(body))


def tiles_of(body: Stmt) -> set[Buffer]:
    """The shared buffers that tensor cores, or the copy engine, read themselves."""
    found = [s for s in stmts_of(body) if isinstance(s, WarpMultiply) and s.op.warps > 1]
    boxes = [e for s in stmts_of(body) if isinstance(s, RingCall) and s.box is not None for e in s.arguments[:1]]
    read = [e for e in (*boxes, *[e for s in found for e in s.places]) if isinstance(e, BufferLoad)]
    return {e.buffer for e in read if e.buffer.storage == "shared"}


def in_groups(nest: KernelNest) -> KernelNest:
    """A kernel of groups of warps in the form that it is written in.  Raises EmitError where it has none."""
    lanes, warps, others = nest.block
    law = f"a block must have {LANES} threads in x, and warps in y in groups of {WARPS}"
    require((lanes, warps % WARPS, others) == (LANES, 0, 1), EmitError, "wgmma", law, block=nest.block)
    nest, shares = over_cluster(nest)
    threads = {loop.var for tag, loop in nest.loops.items() if tag.startswith("threadIdx")}
    ranges = nest.ranges()
    rewritten = _rewritten(nest.body, nest, threads, ranges)
    if by_engine(rewritten):
        made = replace(nest, body=rewritten)
        return in_chained_ring(made) if is_chained(made) else in_ring(made, shares)
    own = [s.op.element for s in stmts_of(rewritten) if isinstance(s, WarpMultiply)]
    law = "only the copy engine rounds floats to the nearest on their way, and brings parts of floats"
    require(not any(x.nearest or x.apart for x in own), EmitError, "wgmma", law)
    made = replace(nest, body=_fetched_behind(_going_on(with_rows_ahead(rewritten, ranges), ranges)))
    left = [s for s in stmts_of(made.body) if isinstance(s, WarpMultiply) and s.b.buffer.storage != "shared"]
    law = "a loop over steps must load the fragments of both factors and multiply all of them"
    require(not [s for s in left if s.op.warps > 1], EmitError, "wgmma", law)
    require_alone(made.body)
    return made


def _rewritten(s: Stmt, nest: KernelNest, threads: set[Var], ranges: Simplifier) -> Stmt:
    """A body whose loops over steps, each around fragments and their products, are products of tiles."""
    if isinstance(s, If) and multiplies_in_groups(s):
        law = "all warps of a group must come to the instruction, which stands under a condition on threads"
        require(not threads & free_vars(s.cond), EmitError, "wgmma", law, condition=s.cond)
    if isinstance(s, For) and multiplies_in_groups(s):
        steps, body = perfect_nest(s)
        held: list[Buffer] = []
        *loads, multiply = flattened(body, held)
        loops, product = perfect_nest(multiply)
        if isinstance(product, WarpMultiply) and loads:
            lane, warp = [nest.loops[tag].var for tag in ("threadIdx.x", "threadIdx.y")]
            groups = nest.block[1] // WARPS
            found = Steps(
                steps, tuple(loads), loops, product, tuple(held), lane, warp, groups, frozenset(threads), ranges
            )
            return found.stmt()
    return with_bodies(s, tuple([_rewritten(b, nest, threads, ranges) for b in bodies(s)]))


def _going_on(s: Stmt, ranges: Simplifier) -> Stmt:
    """A body whose iterations, with four tiles or more and both factors in them, begin a product while the last one
    goes on.

    What an iteration would fetch is fetched by the next one.  With S tiles, iteration t fetches tile t + S - 2 into
    the place of tile t - 2: all warps waited for its product in iteration t - 1, before the barrier of iteration t.
    Iteration 0 closes an empty group of copies, so at the barrier of iteration t all groups but the last S - 3 must be
    complete.
    """
    match s:
        case For(body=Seq(stmts=(Barrier(publishes=True) as barrier, If() as fetch, WarpMultiply() as product))) if (
            barrier.left >= LEAST_LEFT and is_fetch(fetch) and product.a.buffer.storage == "shared"
        ):
            last = binary("-", s.var, 1)
            late = map_exprs(fetch, lambda e: ranges.simplify(substitute(e, {s.var: last})))
            work = replace(product, goes_on=True), If(compare(">", s.var, 0), late)
            ordered = work if product.op.n >= LEAST_WAITED else work[::-1]
            return replace(s, body=seq(replace(barrier, left=barrier.left - 1), *ordered))
    return with_bodies(s, tuple([_going_on(b, ranges) for b in bodies(s)]))


def _fetched_behind(s: Stmt) -> Stmt:
    """A body whose iterations with three tiles or more fetch the next one behind a product of many columns."""
    match s:
        case Seq(stmts=(Barrier(publishes=True) as barrier, If() as fetch, *work)) if barrier.left and is_fetch(fetch):
            held: list[Buffer] = []
            parts = [x for part in work for x in flattened(part, held)]
            before = _before_fetch(parts)
            if before:
                return allocated(held, seq(barrier, *parts[:before], fetch, *parts[before:]))
    return with_bodies(s, tuple([_fetched_behind(b) for b in bodies(s)]))


def _before_fetch(parts: list[Stmt]) -> int:
    """How many statements of an iteration stand before a fetch that goes behind its product; 0 where it comes first."""
    match parts:
        case [*loads, WarpMultiply(op=op)] if op.n >= LEAST_WAITED:
            return len(loads) + 1
        case [*loads, WarpMultiply(op=op), _] if op.element.parts > 1:
            return len(loads) + 1
    return 0
