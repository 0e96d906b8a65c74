"""What results are computed of beside their sums, read before the products of a ring instead of behind them.

    for t: wait; d += A * B                           ahead[j, i] = R[j, i]
    for j, i: C[j, i] = f(d[j, i], R[j, i])           for t: wait; d += A * B
                                                      for j, i: C[j, i] = f(d[j, i], ahead[j, i])

An array to which a product is added has as many bytes as the result.  Threads that multiply have nothing else to do
while the first tiles arrive, and perhaps registers left.  Where blocks compute several parts of the result, another
group multiplies meanwhile.  What the copy engine can fetch in boxes does not take registers (`added_boxes.py`).

Smaller arrays, a bias of each column, are read before the products of every part: all threads of a block wait for each
of them otherwise, once a box of the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from codegen_cuda.passes.reads_first import certain_reads
from te_lite.expr.expr import BufferLoad, Compare, Expr, Var, as_expr, binary, logical_and, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import free_vars, substitute, transform, walk
from te_lite.loops.perfect_nest import nested
from te_lite.loops.stmt import Buffer, For, If, Stmt, Store, seq

from .box_store import Epilogue, epilogue_of
from .ring_parts import Pipe

OTHERS = 40
"""Registers of a thread beside sums and what is read, for addresses and counters."""


def with_reads_ahead(pipe: Pipe, registers: int, ranges: Simplifier, large: bool) -> Pipe:
    """A pipe that reads ahead what it needs of other arrays, whatever conditions say, if threads have so many
    registers: of a `large` one, of the size of the result, if there is just one, and one part; or of smaller ones."""
    found = epilogue_of(seq(*pipe.last))
    if found is None or (large and pipe.part is not None) or pipe.added:
        return pipe
    wanted = [x for x in _loads(found) if (x.buffer.size >= found.store.buffer.size) == large]
    for load in wanted if len(wanted) == 1 or not large else ():
        pipe = _with(pipe, load, registers, ranges)
    return pipe


def _with(pipe: Pipe, load: BufferLoad, registers: int, ranges: Simplifier) -> Pipe:
    """A pipe that reads one array ahead, where it can."""
    found = epilogue_of(seq(*pipe.last))
    assert found is not None
    loops = [x for x in (found.across, found.down, found.pair) if x.var in free_vars(load.index)]
    count, inside = prod([x.extent for x in loops]), _inside(found, loops, ranges)
    held = {x.buffer for x in walk(found.store.value) if isinstance(x, BufferLoad) and x.buffer.storage == "local"}
    certain = any(same(load, x) for x in certain_reads(found.store.value))
    if inside is None or not certain or sum([b.size for b in held]) + count + OTHERS > registers:
        return pipe
    at: Expr = as_expr(0)
    for x in loops:
        at = binary("+", binary("*", at, x.extent), x.var)
    ahead = Buffer("ahead", load.buffer.dtype, (count,), "local")
    own, read = BufferLoad(ahead, at), Store(ahead, at, load)
    value = transform(found.store.value, lambda e: own if isinstance(e, BufferLoad) and same(e, load) else None)
    last = _under(found.inside, replace(found.store, value=value))
    return replace(
        pipe,
        held=(*pipe.held, ahead),
        last=(nested((found.across, found.down, found.pair), last),),
        ahead=(*pipe.ahead, nested(loops, _under(inside, read))),
    )


def _under(inside: Sequence[Expr], s: Stmt) -> Stmt:
    return If(logical_and(*inside), s) if inside else s


def _inside(found: Epilogue, loops: Sequence[For], ranges: Simplifier) -> tuple[Expr, ...] | None:
    """The conditions under which any result is stored that is computed of a read, which depends on some of the loops:
    that of the first one, if conditions only end what is stored.  None for others."""
    every = (found.across, found.down, found.pair)
    first: dict[Var, Expr] = {x.var: as_expr(0) for x in every if all(x.var is not y.var for y in loops)}
    for c in found.inside:
        match c:
            case Compare(op="<", a=a, b=b) if not free_vars(b) & first.keys():
                low = ranges.bounds(ranges.simplify(binary("-", a, substitute(a, first))))[0]
                if low is None or low < 0:
                    return None
            case _ if free_vars(c) & first.keys():
                return None
    return tuple([ranges.simplify(substitute(c, first)) for c in found.inside])


def _loads(found: Epilogue) -> list[BufferLoad]:
    """What is read of global memory, each place once."""
    out: list[BufferLoad] = []
    for x in walk(found.store.value):
        if isinstance(x, BufferLoad) and x.buffer.storage == "global" and not any(same(x, y) for y in out):
            out.append(x)
    return out
