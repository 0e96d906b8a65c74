"""Annotate loops: vectorized and unrolled ones.

Which loops can become lanes depends on structure only; `most_lanes` reads extents, ints or lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from te_lite.lanes import product, smaller, where
from te_lite.loop_value import root_axes
from te_lite.replay import apply
from te_lite.state import INLINED, REDUCE, Iter, Stage, State
from te_lite.step import Pragma

from ..core.schedule_primitives import annotate, fuse
from ..sketch.predicates import UNROLL_INNER, has_reduce_iter, is_tiled, named_axes

CPU_UNROLL = (0, 16, 64, 512)
GPU_UNROLL = (0, 16, 64, 512, 1024)


def loops_of_programs(state: State) -> list[int]:
    """The stages that have loops of their own."""
    return [k for k, s in enumerate(state.stages) if not s.is_placeholder and s.where != INLINED]


# ------------------------------------------------------------------------------------------------ vectorize


def lane_loops(state: State, k: int) -> list[Iter]:
    """The innermost loops of stage `k` that may become lanes, innermost first; a tiled stage gives its last tile."""
    stage = state.stages[k]
    tiled, unrolled = is_tiled(stage), {it.uid for it in always_unrolled(stage)}
    out: list[Iter] = []
    for it in reversed(stage.iters):
        held = state.attached_to(k, it.uid) or it.uid in unrolled
        if held or it.kind == REDUCE or it.annotation != "none":
            break
        if tiled and any(root_axes(stage, it.uid) & root_axes(stage, inner.uid) for inner in out):
            break
        out.append(it)
    return out


def most_lanes(bounded: State, k: int, depth: Any, max_size: int) -> Any:
    """How many loops of stage `k`, at most, become up to `max_size` lanes; its `depth` outermost run in parallel.

    Loops of a tile are lanes together only where they lie side by side: the inner ones run through whole axes.
    """
    stage, tiled = bounded.stages[k], is_tiled(bounded.stages[k])
    count: Any = 0
    lanes: Any = 1
    most: Any = max_size
    for it in lane_loops(bounded, k):
        lanes = lanes * it.extent
        count = count + where(lanes <= most, 1, 0)
        if tiled:
            whole = product([stage.vars[root].extent for root in root_axes(stage, it.uid)])
            most = where(it.extent == whole, most, 0)
    return smaller(count, len(stage.leaf) - depth)


def add_vectorize(state: State, counts: Mapping[int, int]) -> State:
    """Fuse and vectorize the `counts[k]` innermost loops of every stage `k`."""
    for k in loops_of_programs(state):
        count = counts.get(k, 0)
        if count:
            uids = list(state.stages[k].leaf[-count:])
            loop = state.stages[k].vars[uids[0]]
            if count > 1:
                state, loop = fuse(state, k, uids)
            state = annotate(state, k, loop.uid, "vectorize")
    return state


# ------------------------------------------------------------------------------------------------ unroll


def unrolled_stages(state: State) -> list[int]:
    """The stages that get a limit below which their loops are unrolled: those with a reduction."""
    return [k for k in loops_of_programs(state) if has_reduce_iter(state.stages[k])]


def add_unroll(state: State, limits: Mapping[int, int]) -> State:
    """Give stage `k` the limit `limits[k]` (in steps) below which its loops are unrolled."""
    for k in loops_of_programs(state):
        for it in always_unrolled(state.stages[k]):
            state = annotate(state, k, it.uid, "unroll")
        if k in limits:
            state = apply(state, Pragma(k, 0, f"auto_unroll_max_step${limits[k]}"))
    return state


def always_unrolled(stage: Stage) -> list[Iter]:
    """The loops of the innermost tile that the operation asks to unroll."""
    listed = named_axes(stage, UNROLL_INNER)
    out: list[Iter] = []
    seen: set[int] = set()
    for it in reversed(stage.iters) if listed else ():
        axes = root_axes(stage, it.uid)
        if axes <= seen:
            continue
        seen |= axes
        if len(axes) == 1 and axes <= listed and it.annotation == "none":
            out.append(it)
    return out
