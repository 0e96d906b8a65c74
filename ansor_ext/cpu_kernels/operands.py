"""Operands of a product on a CPU: copied in the order in which register tiles read them, and padded.

Rows of a matrix that are a large power of two apart meet in the same few sets of a cache, and on as many pages as
there are rows.  Libraries copy ("pack") the panel that a block of the product needs; the copy is read front to back,
as often as the block has rows.  Here the panel is an ordinary cache read of the tiled stage, computed where a GPU
would fetch it into shared memory: at the end of the outermost level of reduction loops.

An operand whose rows run with the reduction (weights stored [out, reduction]) has no lanes side by side at all.  Its
panel is stored in another order of axes, those of the lanes last.

Padding that a micro-kernel reads is written in vectors, before the product or for each part of its rows:

    for y, x: pad_temp[y, x, :] = data, or 0      before: two parallel loops, and all of it is written and read again
    for parts of the rows: the product

    for parts of the rows                         for each part: one parallel loop, what a part needs stays in a cache,
      pad_temp[some y, x, :]                      and the rows where parts meet are computed twice
      the product

A search that places the padding at random mostly computes it once for each panel, or asks anew for every element of a
product whether it is inside: programs that take twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ansor.core.target.hardware import HardwareParams
from ansor.core.values.options import FREE
from ansor.core.values.schedule_primitives import annotate, compute_at, reorder, split
from ansor.sketch.derivation_rules import fetch_loop
from ansor.sketch.predicates import consumers, may_be_computed_at, needs_tiling
from ansor.sketch.rule import SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.bounds.reads import Form, reads_by_producer
from te_lite.computation.tensor import ComputeOp, PlaceholderOp, Tensor
from te_lite.expr.expr import Call, IterVar, Select
from te_lite.expr.visit import free_vars, walk
from te_lite.loops.register_tile import largest_divisor
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead
from te_lite.schedule.state import State
from te_lite.schedule.storage_steps import StorageOrder

from ..analysis.own_stages import axes_of, extents_of, ordinary_sketches
from ..axes.derive import axes_in_order, plain_read
from ..axes.steps import Reindex

# --------------------------------------------------------------------------------------------------------- packed reads


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


# -------------------------------------------------------------------------------------------------------------- padding


MOST_VECTORS = 8


def paddings(state: State, k: int, hardware: HardwareParams) -> list[int]:
    """The stages that only stage `k` reads, each of which selects whole vectors along its last axis."""
    return [
        p
        for p, stage in enumerate(state.stages[:k])
        if consumers(state, p) == [k]
        and _selects_vectors(stage.op, max(1, hardware.vector_unit_bytes // element_bytes(stage.op.dtype)))
        and may_be_computed_at(state, p)
    ]


def _selects_vectors(op: object, lanes: int) -> bool:
    """Its only loops are those of its axes, the last one of whole vectors, and its conditions do not ask about that."""
    if not isinstance(op, ComputeOp) or op.reduce_axis or not op.axis:
        return False
    last = op.axis[-1]
    asked = [
        free_vars(e.cond if isinstance(e, Select) else e.args[0])
        for body in op.body
        for e in walk(body)
        if isinstance(e, Select) or (isinstance(e, Call) and e.func == "if_then_else")
    ]
    whole = isinstance(last.extent, int) and last.extent % lanes == 0
    return whole and bool(asked) and all(last not in variables for variables in asked)


def padded(state: State, p: int, hardware: HardwareParams, at: tuple[int, int] | None) -> State:
    """With padding `p` computed in vectors, before everything else or, `at`: stage and loop, there."""
    stage = state.stages[p]
    most = MOST_VECTORS * max(1, hardware.vector_unit_bytes // element_bytes(stage.op.dtype))
    extent = stage.iters[-1].extent
    assert isinstance(extent, int)
    state, (_, lanes) = split(state, p, stage.leaf[-1], [largest_divisor(extent, most, most)])
    state = annotate(state, p, lanes.uid, "vectorize")
    return state if at is None else compute_at(state, p, *at)


# ---------------------------------------------------------------------------------------------------------------- tiles


@dataclass(frozen=True)
class TiledInput:
    """An input in tiles along axis `axis` of its read, the last axis of which is `along`.

    `space` says of each of its axes whether it is one of space, not of the reduction.
    """

    source: Tensor
    axis: int
    along: int
    space: tuple[bool, ...]


def tiled_input(state: State, k: int, moves: int, stays: int) -> TiledInput | None:
    """The input of stage `k` that moves with space axis `moves` and not with `stays`, and is read at an axis a
    dimension."""
    op = state.stages[k].compute
    with_it, without = op.axis[moves], op.axis[stays]
    for source in op.input_tensors():
        read = plain_read(op, source)
        if read is None or not isinstance(source.op, PlaceholderOp):
            continue
        axes = axes_in_order(read)
        plain = all(isinstance(index, IterVar) for index in read.indices) and len(axes) == len(read.indices)
        if plain and with_it in axes and without not in axes:
            space = tuple([axis in op.axis for axis in axes])
            return TiledInput(source, axes.index(with_it), len(axes) - 1, space)
    return None


def in_tiles(state: State, tiled: TiledInput, k: int, length: int, scope: str) -> tuple[State, int]:
    """`state` with a copy of the input for stage `k`, `length` points side by side for each term, and its stage.

    Tiles lie one behind the other, so the axes of space go before those of the reduction.  It is filled tile by tile,
    in vectors along what lies side by side in the input.
    """
    source = next(n for n, s in enumerate(state.stages) if s.op.key == tiled.source.op.key)
    state, copy = apply(state, Reindex(source, scope, k, (tiled.axis, length))), source + 1
    order = sorted(range(len(tiled.space)), key=lambda d: not tiled.space[d])
    if order != list(range(len(order))):
        state = apply(state, StorageOrder(copy, (*order, len(order))))
    *axes, inside = state.stages[copy].leaf
    loops = [axes[d] for d in order]
    if tiled.along == tiled.axis:
        state = reorder(state, copy, [*loops, inside])
    else:
        loops.remove(axes[tiled.along])
        state = reorder(state, copy, [*loops, inside, axes[tiled.along]])
    return annotate(state, copy, state.stages[copy].leaf[-1], "vectorize"), copy
