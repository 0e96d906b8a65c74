"""What a long loop over registers reads next is asked for in time.

    for k in 2048:   12 sums += A[6 * k ...] * B[16 * k ...]        24 and 64 bytes a turn, of 48 and 128 KiB

The first cache holds neither, and processors foresee such streams only in part: the sums wait.  So each turn asks for
the lines that come some turns later.  A stream that moves by a few bytes a turn is left to the processor: of each of
its lines many turns would ask.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from te_lite.c_text import BYTES
from te_lite.expr import BufferLoad, Expr, const
from te_lite.stmt import Buffer, For, ForKind, Stmt, exprs_of, stmts_of
from te_lite.visit import free_vars, walk

from .indices import Indices, Linear

LONG = 128 << 10
"""Bytes of all streams of a loop.  With 44 KiB (a product of 512 terms) asking took 1 % longer, with 66 as long; with
84 (1,024 terms) 6 % longer on two idle cores, and 2 % less where a neighbour was busy; with 168 (2,048 terms) 3 to 12 %
less.  The first cache of a core had 32 KiB, the second one 512."""
LINE = 64
AHEAD = 1024
"""Bytes of lines: 16 turns that move by a line or more, some 100 cycles of a tile, the time of the last cache."""
LEAST_STEP = 16
"""Bytes that a stream moves in a turn."""


def fetched_ahead(
    loop: For, around: Sequence[For], registers: Collection[object], indices: Indices
) -> list[BufferLoad]:
    """An element of each line to ask for in a turn of `loop`; none where all that it reads is not long.

    The loops `around` it, from the outside in, count where they go on with a stream.
    """
    lines: dict[tuple[Buffer, frozenset[tuple[Expr, int]], int], tuple[Linear, BufferLoad]] = {}
    for load, form in _streams(loop, registers, indices):
        line = form.const * BYTES[load.dtype] // LINE
        lines.setdefault((load.buffer, frozenset(form.terms.items()), line), (form, load))
    moved = sum([min(_step(loop, form, load), LINE) * _turns(loop, around, form) for form, load in lines.values()])
    return [_later(loop, form, load) for form, load in lines.values()] if moved > LONG else []


def _turns(loop: For, around: Sequence[For], form: Linear) -> int:
    """Those of `loop` and of the loops around it in which the stream just goes on."""
    turns = loop.extent
    for outer in reversed(around):
        if outer.kind is ForKind.PARALLEL or form.terms.get(outer.var, 0) != form.terms[loop.var] * turns:
            break
        turns *= outer.extent
    return turns


def _streams(loop: For, registers: Collection[object], indices: Indices) -> Iterator[tuple[BufferLoad, Linear]]:
    """The loads of memory that move evenly forward with the loop, their index that of lane 0."""
    lanes = {s.var: const(0) for s in stmts_of(loop.body) if isinstance(s, For)}
    for load in _loads(loop.body):
        if load.buffer not in registers:
            form = indices.linear(load.index, lanes)
            even = not any(loop.var in free_vars(atom) for atom in form.terms if atom is not loop.var)
            if even and _step(loop, form, load) >= LEAST_STEP:
                yield load, form


def _loads(body: Stmt) -> Iterator[BufferLoad]:
    for s in stmts_of(body):
        for e in exprs_of(s):
            yield from [x for x in walk(e) if isinstance(x, BufferLoad)]


def _step(loop: For, form: Linear, load: BufferLoad) -> int:
    """Bytes that a load moves in a turn."""
    return form.terms.get(loop.var, 0) * BYTES[load.dtype]


def _later(loop: For, form: Linear, load: BufferLoad) -> BufferLoad:
    turns = AHEAD // min(_step(loop, form, load), LINE)
    return BufferLoad(load.buffer, form.plus(Linear({}, turns * form.terms[loop.var])).expr())
