"""Software prefetching: requests for what a long loop over registers reads next.

    for k in 2048:   12 sums += A[6 * k ...] * B[16 * k ...]        24 and 64 bytes an iteration, of 48 and 128 KiB

The first cache holds neither, and processors foresee such streams only in part: the sums wait.  So each iteration asks
for the lines that come some iterations later.  A stream that moves by a few bytes an iteration is left to the
processor: of each of its lines many iterations would ask.

    for panel:  for tile in 10:  for window in 9:  for k in 512:   10 sums += A[...] * B[...]       288 KiB a panel

The first tile reads each panel from memory, as slowly as memory is, and the others wait for nothing.  So every tile
asks for its share of the next panel, in front of each of its innermost loops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import Binary, BufferLoad, Const, Expr, Var, binary, const
from te_lite.expr.visit import free_vars, walk
from te_lite.loops.stmt import Buffer, For, ForKind, Stmt, exprs_of, stmts_of

from .indices import Indices, Linear

LONG = 128 << 10
"""Bytes of all streams of a loop: in shorter ones asking takes longer than it saves (docs/results/cpu.md)."""
LINE = 64
AHEAD = 1024
"""Bytes of lines: 16 iterations that move by a line or more, some 100 cycles of a tile, the time of the last cache."""
LEAST_STEP, WIDEST = 16, 4 * LINE
"""Bytes that a stream moves in an iteration; those of a panel lie side by side."""
LARGE = 1 << 20
"""Bytes of an array: smaller ones stay in the caches of the cores that read them, where asking costs time."""
MOST_LINES = 96
"""Of a panel in one place: more wait for each other longer than the sums take."""


def fetched_ahead(
    loop: For, around: Sequence[For], registers: Collection[object], indices: Indices
) -> list[BufferLoad]:
    """An element of each line to ask for in an iteration of `loop`; none where all that it reads is not long.

    The loops `around` it, from the outside in, count where they go on with a stream.
    """
    lines: dict[tuple[Buffer, frozenset[tuple[Expr, int]], int], tuple[Linear, BufferLoad]] = {}
    for load, form in _streams(loop, registers, indices):
        line = form.const * BYTES[load.dtype] // LINE
        lines.setdefault((load.buffer, frozenset(form.terms.items()), line), (form, load))
    moved = sum([min(_step(loop, form, load), LINE) * _iterations(loop, around, form) for form, load in lines.values()])
    return [_later(loop, form, load) for form, load in lines.values()] if moved > LONG else []


@dataclass(frozen=True)
class NextPanel:
    """`lines` of a panel that is read later: that of `first`, and others `step` elements further each."""

    first: BufferLoad
    lines: int
    step: int


def next_panels(loop: For, around: Sequence[For], registers: Collection[object], indices: Indices) -> list[NextPanel]:
    """What to ask for in front of `loop`: the share of each panel that follows on those which it reads.

    A panel is what `loop` and those `around` it that go on with a stream read, and what those around them read again.
    """
    streams: dict[tuple[Buffer, frozenset[tuple[Expr, int]]], tuple[Linear, BufferLoad]] = {}
    for load, form in _streams(loop, registers, indices):
        key = load.buffer, frozenset(form.terms.items())
        if load.buffer.size * BYTES[load.dtype] < LARGE:
            continue
        if key not in streams or form.const < streams[key][0].const:
            streams[key] = form, load
    found = [_next_panel(loop, around, form, load) for form, load in streams.values()]
    return [panel for panel in found if panel is not None]


def _next_panel(loop: For, around: Sequence[For], form: Linear, load: BufferLoad) -> NextPanel | None:
    """From the inside out: loops that read the panel, loops that read it again, and what counts the panels."""
    base, shares, place = form.without(loop.var), 1, Linear({}, 0)
    inside = _going_on(loop, around, form)
    for goes_on in inside:
        base, place = base.without(goes_on.var), place.plus(Linear({goes_on.var: shares}, 0))
        shares *= goes_on.extent
    panel, tiles = form.terms[loop.var] * loop.extent * shares, 1
    outer = list(around[: len(around) - len(inside)])
    while outer and outer[-1].kind is not ForKind.PARALLEL and not _moves(form, outer[-1].var):
        again = outer.pop()
        place = place.plus(Linear({again.var: shares * tiles}, 0))
        tiles *= again.extent
    counter = next((atom for atom, c in base.terms.items() if c == panel), None)
    match counter:
        case Binary(op="//", a=a, b=Const(value=count)):  # loops in one: it has the panel and its tiles
            place = place.plus(Linear({binary("%", a, const(count, a.dtype)): shares * tiles}, 0))
            tiles *= int(count)
    step = LINE // BYTES[load.dtype]
    lines = -(-panel // (step * shares * tiles))
    if counter is None or tiles == 1 or _step(loop, form, load) > WIDEST or lines > MOST_LINES:
        return None
    index = base.plus(Linear({}, panel)).plus(place, lines * step)
    return NextPanel(BufferLoad(load.buffer, index.expr()), lines, step)


def _moves(form: Linear, var: Var) -> bool:
    return any(var in free_vars(atom) for atom in form.terms)


def _iterations(loop: For, around: Sequence[For], form: Linear) -> int:
    """Those of `loop` and of the loops around it in which the stream just goes on."""
    return loop.extent * prod([outer.extent for outer in _going_on(loop, around, form)])


def _going_on(loop: For, around: Sequence[For], form: Linear) -> list[For]:
    """The loops of one task around `loop` in which the stream just goes on, from the inside out."""
    found: list[For] = []
    step = form.terms[loop.var] * loop.extent
    for outer in reversed(around):
        if outer.kind is ForKind.PARALLEL or form.terms.get(outer.var, 0) != step:
            break
        found.append(outer)
        step *= outer.extent
    return found


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
    """Bytes that a load moves in an iteration."""
    return form.terms.get(loop.var, 0) * BYTES[load.dtype]


def _later(loop: For, form: Linear, load: BufferLoad) -> BufferLoad:
    iterations = AHEAD // min(_step(loop, form, load), LINE)
    return BufferLoad(load.buffer, form.plus(Linear({}, iterations * form.terms[loop.var])).expr())
