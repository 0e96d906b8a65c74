"""Groups of warps load their rows of the next iteration while the tensor cores multiply those of this one.

Where A comes through registers, as all floats do, an iteration waits for its barrier and for its rows before it
multiplies, with idle tensor cores.  With four tiles and more the barrier moves up, behind the beginning of the product
before it:

    for t: barrier                                      barrier; load a of iteration 0
           fetch tile t + S - 1                for t:   begin d += a * tile t of B
           load a                                       if there is an iteration t + 1: barrier
           d += a * tile t of B                                                   fetch tile t + S - 1
                                                                                  load a of iteration t + 1
                                                        wait for the product

Tile t + S - 1 takes the place of tile t - 1, for whose product all warps have waited before the barrier of iteration t.
That barrier is for tile t + 1: the first one closed a group of copies more, so that all groups but the last S - 3 must
be complete.  A product has its rows in registers of its own (`wgmma_text.py`).  With three tiles one is on its way, and
everybody waits for it.  TF32 on an H100, microseconds, with rows in their iteration, and ahead; cuBLAS:

    128 x 3072 x 768, 64 x 64 a block, 4 tiles                                              8.42     7.20    6.90
    the same, 64 x 48; 3 tiles                                                              7.83     7.02
                                                                                                     9.21
    4096^3, 128 x 256, 3 tiles; 4 tiles                                                     502      555     388
                                                                                                     431
    2048^3, the same                                                                        62.1     71.4    50.3
                                                                                                     54.6
"""

from __future__ import annotations

from dataclasses import replace

from te_lite.expr.expr import Expr, as_expr, binary, compare
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute
from te_lite.loops.stmt import (
    Barrier,
    Buffer,
    For,
    If,
    Instruction,
    Seq,
    Stmt,
    Store,
    allocated,
    bodies,
    flattened,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
)

from .fragment_double_buffer import fills
from .instructions import WarpMultiply

LEAST_LEFT = 2
"""Tiles beyond the next one, with which iterations overlap."""


def is_fetch(s: Stmt) -> bool:
    """Whether a statement only fetches pipelined tiles of later iterations, which no product of this one reads."""
    leaves = [x for x in stmts_of(s) if not isinstance(x, For | Seq | If)]
    return isinstance(s, If) and all(isinstance(x, Store) and x.buffer.pipelined for x in leaves)


def goes_beside(s: Stmt, product: Instruction) -> bool:
    """Whether a product of a group of warps, already begun, goes on during a statement: a fetch, or what is ahead."""
    match s:
        case If(then=Seq(stmts=(Barrier(publishes=True), If() as fetch, *loads))):
            return is_fetch(fetch) and all(fills(x, {product.places[1].buffer}) for x in loads)
    return is_fetch(s)


def with_rows_ahead(s: Stmt, ranges: Simplifier) -> Stmt:
    """A body whose iterations load all that a product needs in registers for the iteration behind them."""
    match s:
        case For(body=Seq(stmts=(Barrier(publishes=True) as barrier, If() as fetch, *work))) if (
            barrier.left >= LEAST_LEFT and is_fetch(fetch)
        ):
            held: list[Buffer] = []
            *loads, product = [x for part in work for x in flattened(part, held)]
            if loads and isinstance(product, WarpMultiply) and all(fills(x, {product.a.buffer}) for x in loads):
                return allocated(held, _ahead(s, barrier, fetch, seq(*loads), product, ranges))
    return with_bodies(s, tuple([with_rows_ahead(b, ranges) for b in bodies(s)]))


def _ahead(
    iterations: For, barrier: Barrier, fetch: If, loads: Stmt, product: WarpMultiply, ranges: Simplifier
) -> Stmt:
    def at_iteration(iteration: Expr) -> Stmt:
        return map_exprs(loads, lambda e: ranges.simplify(substitute(e, {iterations.var: iteration})))

    ahead = binary("+", iterations.var, 1)
    following = seq(replace(barrier, left=barrier.left - 1), fetch, at_iteration(ahead))
    body = seq(product, If(compare("<", ahead, iterations.extent), following))
    return seq(barrier, at_iteration(as_expr(0)), replace(iterations, body=body))
