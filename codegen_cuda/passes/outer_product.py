"""Accumulators in the order of an outer product, so that the operands of multiply-adds come from few registers.

A thread that has a tile of sums adds to each of them a product of one of its rows and one of its columns:

    for k: for i in rows: for j in columns:  acc[i, j] += a[i, k] * b[k, j]

The register file gives one operand of each of its two banks in a cycle, and a third comes from the reuse cache if the
instruction before read it in the same place.  The compiler keeps to the order of the source where it can.  So all terms
of the reduction are outermost, the longer side of the tile follows, and the shorter one is passed to and fro
(serpentine): every multiply-add shares an operand with the one before it, also where a row begins, and the two others
must lie in different banks.  Where they lie is the compiler's choice, unless sums must lie in the order in which they
are written to memory: a vector of four wants registers of one group, and so do the four operands that meet them.
`vector_writes.py` therefore gives what is written registers of its own.

A model with one read of a bank in a cycle, which may come one cycle late, counts what products of registers alone take
(docs/results/gpu.md): a pair of reads of one bank costs nothing where the next pair is of the other one, and a cycle
where it is of the same.

Every sum has its terms in the order that it had, so results stay the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from te_lite.expr.expr import Binary, BufferLoad, Expr, Var, binary, compare, if_then_else
from te_lite.expr.visit import free_vars, substitute, walk
from te_lite.loops.perfect_nest import nested, perfect_nest
from te_lite.loops.stmt import Buffer, For, ForKind, Stmt, Store, bodies, map_exprs, with_bodies

from ..program.indices import split_lane
from .registers import index_vars, register_loops, useful_copies


@dataclass(frozen=True)
class _Tile:
    """The unrolled loops around an accumulation: terms of the sum, and the two sides of its tile, the longer first."""

    terms: list[For]
    rows: list[For]
    columns: list[For]

    @property
    def is_odd_row(self) -> Expr:
        """Whether the number of the row is odd."""
        strides = [prod([loop.extent for loop in self.rows[k + 1 :]]) for k in range(len(self.rows))]
        first, *rest = [loop.var for loop, stride in zip(self.rows, strides, strict=True) if stride % 2]
        number: Expr = first
        for var in rest:
            number = binary("+", number, var)
        return compare("==", binary("%", number, 2), 1)


def in_outer_product_order(body: Stmt) -> tuple[Stmt, frozenset[Buffer]]:
    """A kernel with its innermost unrolled accumulations reordered, and the buffers of their sums."""
    sums: set[Buffer] = set()
    moved = index_vars(body)
    registers = set[Var]().union(*moved.values())
    forced = register_loops(body, moved)

    def is_written_out(s: For) -> bool:
        unrolled = s.kind is ForKind.UNROLLED and (s.var in registers or useful_copies(s) == s.extent)
        return unrolled or (s.kind is ForKind.SERIAL and s.var in forced)

    def visit(s: Stmt) -> Stmt:
        loops, inner = perfect_nest(s, is_written_out)
        tile = _tile(loops, inner) if loops and isinstance(inner, Store) else None
        if tile is None or not isinstance(inner, Store):
            return with_bodies(s, tuple([visit(b) for b in bodies(s)]))
        sums.add(inner.buffer)
        return _passed(tile, inner)

    return visit(body), frozenset(sums)


def _tile(loops: Sequence[For], s: Store) -> _Tile | None:
    """The sides of `acc[i, j] += x[i] * y[j]`; none for other statements."""
    match s.value:
        case Binary(op="+", a=BufferLoad(buffer=own, index=index), b=Binary(op="*", a=x, b=y)) if own is s.buffer:
            if own.storage != "local" or not bool(index == s.index):
                return None
            sums, of_x, of_y = free_vars(s.index), free_vars(x), free_vars(y)
        case _:
            return None
    sides = [[loop for loop in loops if loop.var in sums & one - other] for one, other in ((of_x, of_y), (of_y, of_x))]
    terms = [loop for loop in loops if loop.var not in sums]
    if not all(sides) or len(terms) + len(sides[0]) + len(sides[1]) < len(loops):
        return None
    sides = [far_first(side, operand) for side, operand in zip(sides, (x, y), strict=True)]
    return _Tile(terms, *sorted(sides, key=lambda side: -prod([loop.extent for loop in side])))


def far_first(loops: Sequence[For], operand: Expr) -> list[For]:
    """The loops in the order of memory: those that move `operand` far around those that move it to a neighbour."""
    index = next((e.index for e in walk(operand) if isinstance(e, BufferLoad)), None)
    steps = [None if index is None else split_lane(index, loop.var) for loop in loops]
    far = {loop.var: step[0] for loop, step in zip(loops, steps, strict=True) if step is not None}
    return sorted(loops, key=lambda loop: -far[loop.var]) if len(far) == len(loops) else list(loops)


def _passed(tile: _Tile, s: Stmt) -> Stmt:
    """The accumulation `s` for all terms, rows and columns, backwards in odd rows."""
    odd = tile.is_odd_row
    back = {x.var: if_then_else(odd, binary("-", x.extent - 1, x.var), x.var) for x in tile.columns}
    return nested([*tile.terms, *tile.rows, *tile.columns], map_exprs(s, lambda e: substitute(e, back)))
