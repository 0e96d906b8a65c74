"""Packed reads: a tile of an operand is copied into neighbouring lines before it is used many times.

Rows of a matrix that are a large power of two apart meet in the same few sets of a cache, and on as many pages as
there are rows.  Libraries copy ("pack") the panel that a block of the product needs; the copy is read front to back,
as often as the block has rows.  Here the panel is an ordinary cache read of the tiled stage, computed where a GPU
would fetch it into shared memory: at the end of the outermost level of reduction loops.

An operand whose rows run with the reduction (weights stored [out, reduction]) has no lanes side by side at all.  Its
panel is stored in another order of axes, those of the lanes last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansor.core.values.layout_option import FREE
from ansor.core.values.schedule_primitives import compute_at
from ansor.sketch.cache_rules import fetch_loop
from ansor.sketch.generate import ordinary_sketches
from ansor.sketch.predicates import needs_tiling
from ansor.sketch.rule import SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.bounds.reads import Form, reads_by_producer
from te_lite.computation.tensor import PlaceholderOp
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead
from te_lite.schedule.state import State
from te_lite.schedule.storage_steps import StorageOrder

from ..analysis.read_axes import axes_of, extents_of

SHORTEST_ROW_BYTES = 512


@dataclass(frozen=True)
class Panel:
    """An input to pack, and the order of its axes in the panel; None where it stays as it is.

    The axes behind the first `leading` are those that the reduction runs along.
    """

    source: int
    order: tuple[int, ...] | None
    leading: int = 0


def panels(ctx: SketchContext, state: State, reader: int, lane: int | None = None) -> list[Panel]:
    """The inputs that a tiled reduction reads with its reduction down the rows, or the lanes down the columns.

    The lanes are those of its space axis `lane`, the innermost one unless it is given.  Only what it reads directly
    counts: a cache read redirects no reads inside of the stages inlined into it.  What is stored as it is read needs
    no packing.
    """
    lane = len(state.stages[reader].op.axis) - 1 if lane is None else lane
    free = state.stages[reader].op.attrs.get(FREE, ()) if ctx.stored_as_read else ()
    found = []
    for k, reads in enumerate(reads_by_producer(state.ops, inlined=frozenset())):
        mine = [read.forms for read in reads if read.reader == reader]
        op = state.stages[k].op
        if not mine or not isinstance(op, PlaceholderOp) or op.output() in free:
            continue
        panel = _panel(state, reader, lane, k, mine)
        if panel is not None:
            found.append(panel)
    return found


def _panel(state: State, reader: int, lane: int, k: int, forms: Sequence[tuple[Form, ...]]) -> Panel | None:
    """How to pack input `k`, which `reader` with lanes along axis `lane` reads in these ways; None for no gain."""
    op, source = state.stages[reader].op, state.stages[k].op
    space, extents = len(op.axis), extents_of(op)
    moved = [[axes_of(index, extents) for index in form] for form in forms]
    lanes = [d for d in range(len(source.shape)) if any(lane in axes[d] for axes in moved)]
    folds = [d for d in range(len(source.shape)) if any(max(axes[d], default=-1) >= space for axes in moved)]
    last = len(source.shape) - 1
    if not lanes or not folds:
        return None
    if last not in lanes and last in folds:
        order = (*[d for d in range(last + 1) if d not in lanes], *lanes)
        return Panel(k, order, max(set(range(last + 1)) - set(folds), default=-1) + 1)
    along = all(lane in axes[last] for axes in moved)
    far = source.shape[last] * element_bytes(source.dtype) >= SHORTEST_ROW_BYTES
    return Panel(k, None) if along and folds[0] < last and far else None


def packed(ctx: SketchContext, sketch: State) -> State | None:
    """`sketch` with the panels of its tiled reductions packed; None when there is none."""
    state = sketch
    for reader in reversed(range(len(sketch.stages))):
        stage = sketch.stages[reader]
        if stage.is_placeholder or not stage.op.reduce_axis or not needs_tiling(sketch, reader):
            continue
        for panel in reversed(panels(ctx, state, reader)):
            k = panel.source
            state = apply(state, CacheRead(k, "local", (reader,)))
            reader += 1
            if panel.order is not None:
                state = apply(state, StorageOrder(k + 1, panel.order))
            state = compute_at(state, k + 1, reader, fetch_loop(state.stages[reader]).uid)
    return None if state is sketch else state


def packed_read_sketches(ctx: SketchContext) -> list[State]:
    """The ordinary CPU sketches that have something to pack."""
    if ctx.target.is_gpu:
        return []
    found = [packed(ctx, s) for s in ordinary_sketches(ctx)]
    return [s for s in found if s is not None]
