"""Packed reads: a tile of an operand is copied into neighbouring lines before it is used many times.

Rows of a matrix that are a large power of two apart meet in the same few sets of a cache, and on as many pages as
there are rows.  Libraries copy ("pack") the panel that a block of the product needs; the copy is read front to back,
as often as the block has rows.  Here the panel is an ordinary cache read of the tiled stage, computed where a GPU
would fetch it into shared memory: at the end of the outermost level of reduction loops.
"""

from __future__ import annotations

from te_lite.reads import reads_by_producer
from te_lite.replay import apply
from te_lite.state import State
from te_lite.step import CacheRead

from ...core.schedule_primitives import compute_at
from ..cache_rules import fetch_loop
from ..generate import generate_sketches
from ..predicates import needs_tiling
from ..rule import SketchContext
from ..shared_memory import element_bytes
from .padded_shared import axes_of, extents_of

SHORTEST_ROW_BYTES = 512


def panels(state: State, reader: int) -> list[int]:
    """The inputs that a tiled reduction reads row by row, the lanes of its innermost space axis side by side.

    Only what it reads directly counts: a cache read redirects no reads inside of the stages inlined into it.
    """
    op = state.stages[reader].op
    space, extents = len(op.axis), extents_of(op)
    found = []
    for k, reads in enumerate(reads_by_producer(state.ops, inlined=frozenset())):
        source = state.stages[k]
        mine = [read.forms for read in reads if read.reader == reader]
        if not source.is_placeholder or not source.op.shape or not mine:
            continue
        row = source.op.shape[-1] * element_bytes(source.op.dtype)
        along = all(space - 1 in axes_of(form[-1], extents) for form in mine)
        down = any(max(axes_of(index, extents), default=-1) >= space for form in mine for index in form[:-1])
        if along and down and row >= SHORTEST_ROW_BYTES:
            found.append(k)
    return found


def packed(sketch: State) -> State | None:
    """`sketch` with the panels of its tiled reductions packed; None when there is none."""
    state = sketch
    for reader in reversed(range(len(sketch.stages))):
        stage = sketch.stages[reader]
        if stage.is_placeholder or not stage.op.reduce_axis or not needs_tiling(sketch, reader):
            continue
        for k in sorted(panels(state, reader), reverse=True):
            state = apply(state, CacheRead(k, "local", (reader,)))
            reader += 1
            state = compute_at(state, k + 1, reader, fetch_loop(state.stages[reader]).uid)
    return None if state is sketch else state


def packed_read_sketches(ctx: SketchContext) -> list[State]:
    """The ordinary CPU sketches that have something to pack."""
    if ctx.target.is_gpu:
        return []
    found = [packed(s) for s in generate_sketches(ctx.dag, ctx.target, ctx.hardware, options=ctx.options)]
    return [s for s in found if s is not None]
