"""Stages without data reuse: elementwise, broadcast, injective and pooling operations, bound by memory.

Ansor leaves such a stage as it is: on a GPU one element for each thread.  Here a thread computes `items` vectors of
`lanes` elements, the vectors of neighbouring threads side by side:

    for point in n / (items * lanes)        blocks and threads (how many of each is sampled as for any plain kernel)
      for item in items                     n / items elements further on each
        for lane in lanes                   one access of 16 bytes or less

A short reduction (pooling) stands around the lanes and is summed up in registers.  On a CPU the split of the fused
loops, or of the innermost one of a pooling, is left open and sampled like any tile.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ansor.core.values.schedule_primitives import annotate, compute_at, fuse, reorder, split
from ansor.sketch.predicates import has_reduce_iter, loop_length, may_be_computed_at, needs_tiling, producers
from ansor.sketch.rule import SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.expr.expr import Expr
from te_lite.expr.visit import free_vars
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheWrite, RFactor
from te_lite.schedule.state import INLINED, REDUCE, ROOT, SPATIAL, State

from ..analysis.own_stages import ordinary_sketches

ITEMS = (1, 2, 4, 8)
FULL_THREADS = 128 * 512
SHORT_REDUCTION = 64


@dataclass(frozen=True, slots=True)
class Grain:
    """What one thread computes: `items` vectors of `lanes` elements."""

    items: int
    lanes: int


def is_plain(state: State, k: int) -> bool:
    """Stage `k` is a root whose loops nobody touched, without data reuse and without a long reduction."""
    stage = state.stages[k]
    if stage.is_placeholder or stage.where != ROOT or stage.leaf != tuple(range(stage.num_roots)) or not stage.op.axis:
        return False
    lane = stage.op.axis[-1]
    fixed = not any(isinstance(v.extent, Expr) and lane in free_vars(v.extent) for v in stage.op.reduce_axis)
    short = prod([it.extent for it in stage.iters if it.kind == REDUCE]) <= SHORT_REDUCTION  # type: ignore[misc]
    held = any(s.attach is not None and s.attach.stage == k for s in state.stages)
    marked = any(it.annotation != "none" for it in stage.iters)
    return fixed and short and not held and not marked and stage.op.num_outputs == 1 and not needs_tiling(state, k)


# --------------------------------------------------------------------------------------------------- GPU


def grains(ctx: SketchContext, state: State, k: int) -> list[Grain]:
    """What threads may compute of plain stage `k`, other than what Ansor has them do.

    Lanes are a power of two that divides the loop they are taken from, up to the bytes of one access.  Several items
    are for stages that leave every multiprocessor 512 threads.  In a program with other kernels only the widest
    vector is tried.
    """
    stage = state.stages[k]
    held = reduction_of(state, k)
    points = loop_length(stage, SPATIAL)
    run = points if held is None else stage.vars[len(stage.op.axis) - 1].extent
    widest = max(1, ctx.hardware.vector_unit_bytes // element_bytes(stage.op.dtype))
    lanes = [w for w in (1, 2, 4, 8, 16) if w <= widest and run % w == 0]  # type: ignore[operator]
    kernels = {n for n, s in enumerate(state.stages) if s.where == ROOT and not s.is_placeholder}
    alone = kernels <= {k, held}
    if not alone:
        lanes = lanes[-1:]
    out = [Grain(n, w) for n in ITEMS for w in lanes if n == 1 or (alone and points >= FULL_THREADS * n * w)]
    moved = held is not None and held != k
    return [g for g in out if moved or g != Grain(1, 1)]


def reduction_of(state: State, k: int) -> int | None:
    """The stage that does the short reduction of output stage `k`: itself, or what it reads element by element."""
    if has_reduce_iter(state.stages[k]):
        return k
    read = [p for p in producers(state, k) if not state.stages[p].is_placeholder]
    if len(read) == 1 and has_reduce_iter(state.stages[read[0]]) and is_plain(state, read[0]):
        matched = state.access.elementwise_match(read[0], k) and may_be_computed_at(state, read[0])
        return read[0] if matched else None
    return None


def coarsen(state: State, k: int, grain: Grain) -> State:
    """Plain output stage `k` with a thread's share split off; what is left to bind is one outer loop."""
    held = reduction_of(state, k)
    if held == k:
        state, k = apply(state, CacheWrite(k, "local")), k + 1
    leaf = state.stages[k].leaf
    if held is None:
        state, whole = fuse(state, k, leaf)
    else:
        state, (outer, lane) = split(state, k, leaf[-1], [grain.lanes])
        state, whole = fuse(state, k, [*leaf[:-1], outer.uid])
    points = whole.extent
    assert isinstance(points, int)
    if held is None:
        per_item = -(-points // (grain.items * grain.lanes))
        state, (item, point, lane) = split(state, k, whole.uid, [per_item, grain.lanes])
    else:
        state, (item, point) = split(state, k, whole.uid, [-(-points // grain.items)])
    state = reorder(state, k, [point.uid, item.uid, lane.uid])
    state = annotate(annotate(state, k, item.uid, "unroll"), k, lane.uid, "vectorize")
    return state if held is None else _sum_in_registers(state, held, k, item.uid)


def _sum_in_registers(state: State, held: int, k: int, item: int) -> State:
    """Compute the reduction `held` at the items of stage `k`, its lanes innermost."""
    state = compute_at(state, held, k, item)
    space = [it.uid for it in state.stages[held].iters if it.kind == SPATIAL]
    reduce = [it.uid for it in state.stages[held].iters if it.kind == REDUCE]
    state = reorder(state, held, [*space[:-1], *reduce, space[-1]])
    return annotate(state, held, space[-1], "vectorize")


# --------------------------------------------------------------------------------------------------- CPU


def open_lanes(state: State, k: int) -> State:
    """Plain stage `k` with its lanes split off, how many is undecided; loops that are not lanes stay outside."""
    stage = state.stages[k]
    space = [it.uid for it in stage.iters if it.kind == SPATIAL]
    reduce = [it.uid for it in stage.iters if it.kind == REDUCE]
    if reduce:
        state, (outer, lane) = split(state, k, space[-1], [None])
        return reorder(state, k, [*space[:-1], outer.uid, *reduce, lane.uid])
    whole = space[0]
    if len(space) > 1:
        state, fused = fuse(state, k, space)
        whole = fused.uid
    return split(state, k, whole, [None, None])[0]


# --------------------------------------------------------------------------------------------------- both


def injective_sketches(ctx: SketchContext) -> list[State]:
    """The ordinary sketches with plain stages coarsened: on a GPU an output, once for each grain; on a CPU, where a
    program has no other stages, all outputs and short reductions at once."""
    out: list[State] = []
    for sketch in ordinary_sketches(ctx):
        own = [k for k, s in enumerate(sketch.stages) if not s.is_placeholder and s.where != INLINED]
        plain = [k for k in own if is_plain(sketch, k)]
        if ctx.target.is_gpu:
            outputs = [k for k in plain if sketch.access.is_output(k)]
            out += [coarsen(sketch, k, grain) for k in outputs for grain in grains(ctx, sketch, k)]
        elif plain == own and not any(isinstance(step, RFactor) for step in sketch.steps):
            state = sketch
            for k in plain:
                if sketch.access.is_output(k) or has_reduce_iter(sketch.stages[k]):
                    state = open_lanes(state, k)
            out.append(state)
    return out
