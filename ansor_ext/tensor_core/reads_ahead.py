"""What results are computed of beside their sums, read before the products of a ring instead of behind them.

    for t: wait; d += A * B                           ahead[j, i] = R[j, i]
    for j, i: C[j, i] = f(d[j, i], R[j, i])           for t: wait; d += A * B
                                                      for j, i: C[j, i] = f(d[j, i], ahead[j, i])

An array to which a product is added has as many bytes as the result.  Threads that multiply have nothing else to do
while the first tiles arrive, and perhaps registers left.  Where blocks compute several parts of the result, another
group multiplies meanwhile.  What the copy engine can fetch in boxes does not take registers (`added_boxes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from codegen_cuda.passes.reads_first import certain_reads
from te_lite.expr.expr import BufferLoad, Expr, binary, logical_and, same
from te_lite.expr.visit import free_vars, transform, walk
from te_lite.loops.stmt import Buffer, If, Stmt, Store, seq

from .box_store import Epilogue, epilogue_of
from .ring_parts import Pipe

OTHERS = 40
"""Registers of a thread beside sums and what is read, for addresses and counters."""


def with_reads_ahead(pipe: Pipe, registers: int) -> Pipe:
    """A pipe of one part of the result that reads ahead what it needs of an array of that size, if there is just one,
    which is read whatever conditions say, and threads have so many registers."""
    found = epilogue_of(seq(*pipe.last))
    if found is None or pipe.part is not None or pipe.added:
        return pipe
    result, loads = found.store.buffer, _loads(found)
    large = [x for x in loads if x.buffer.size >= result.size]
    always = list(certain_reads(found.store.value))
    if (
        len(large) != 1
        or not any(same(large[0], x) for x in always)
        or pipe.sums + _held(found, loads) + OTHERS > registers
    ):
        return pipe
    (load,), across = large, found.across
    ahead = Buffer("ahead", load.buffer.dtype, (4 * across.extent,), "local")
    at = binary("+", binary("*", across.var, 4), binary("+", binary("*", found.down.var, 2), found.pair.var))

    def instead(e: Expr) -> Expr | None:
        return BufferLoad(ahead, at) if isinstance(e, BufferLoad) and same(e, load) else None

    last = _around(found, replace(found.store, value=transform(found.store.value, instead)))
    return replace(pipe, held=(*pipe.held, ahead), last=(last,), ahead=(_around(found, Store(ahead, at, load)),))


def _loads(found: Epilogue) -> list[BufferLoad]:
    """What is read of global memory, each place once."""
    out: list[BufferLoad] = []
    for x in walk(found.store.value):
        if isinstance(x, BufferLoad) and x.buffer.storage == "global" and not any(same(x, y) for y in out):
            out.append(x)
    return out


def _held(found: Epilogue, loads: Sequence[BufferLoad]) -> int:
    """The registers of a thread for all values of loads, of which some are those of several results."""
    loops = (found.across, found.down, found.pair)
    return sum(prod([x.extent for x in loops if x.var in free_vars(load.index)]) for load in loads)


def _around(found: Epilogue, store: Store) -> Stmt:
    inner = If(logical_and(*found.inside), store) if found.inside else store
    return replace(found.across, body=replace(found.down, body=replace(found.pair, body=inner)))
