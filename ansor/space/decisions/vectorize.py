"""Which inner loops of a program are the lanes of vectors.

Which loops can become lanes depends on structure only; `most_lanes` reads extents, ints or lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from te_lite.bounds.bounds import Bounds
from te_lite.expr.lanes import product, smaller, where
from te_lite.schedule.loop_value import root_axes
from te_lite.schedule.state import INLINED, REDUCE, Iter, State
from te_lite.schedule.step import Step

from ...core.target.hardware import HardwareParams
from ...core.values.schedule_primitives import annotate, fuse
from ...sketch.predicates import is_tiled
from .decision import Choice, Draft, Number, Numbers, Phase, Setting
from .loops import always_unrolled, annotated_loops, loops_of_programs, without_units


class Vectorize(Number):
    """How many of the innermost loops of a stage are lanes, fused (0: none); they end where parallel ones begin."""

    name = "vectorize"
    cpu_weight = 0.02
    phase = Phase.BOUNDED
    beside = "parallel"
    turn = 3
    shapes_steps = True

    def values(self, sketch: State, setting: Setting) -> Mapping[int, tuple[int, ...]]:
        counts = {k: len(lane_loops(sketch, k)) for k in loops_of_programs(sketch)}
        return {k: tuple(range(count + 1)) for k, count in counts.items() if count}

    def draw(self, parts: Sequence[Choice], draft: Draft) -> None:
        state = draft.bounds.state
        for c in parts:
            draft.rows[:, c.column] = 0
            if state.stages[c.stage].where != INLINED:
                depth = draft.number("parallel", c.stage)
                most = most_lanes(state, c.stage, depth, draft.setting.options.max_vectorize_size)
                drawn = 1 + (draft.rng.random(len(draft.rows)) * most).astype(np.int64)
                draft.rows[:, c.column] = np.minimum(drawn, most)

    def lanes(self, given: Numbers, bounds: Bounds, others: Mapping[str, Numbers]) -> Numbers:
        state, depths = bounds.state, others["parallel"]
        free = {k: len(state.stages[k].leaf) - depths.get(k, 0) for k in given}
        return {k: smaller(count, smaller(len(lane_loops(state, k)), free[k])) for k, count in given.items()}

    def simplest(self, meant: Numbers, bounds: Bounds) -> Numbers:
        return {k: without_units(bounds.state.stages[k].iters[::-1], count) for k, count in meant.items()}

    def apply(self, state: State, k: int, numbers: Numbers, hardware: HardwareParams) -> State:
        count = numbers.get(k, 0)
        if not count:
            return state
        uids = list(state.stages[k].leaf[-count:])
        loop = state.stages[k].vars[uids[0]]
        if count > 1:
            state, loop = fuse(state, k, uids)
        return annotate(state, k, loop.uid, "vectorize")

    def count(self, steps: Sequence[Step]) -> Mapping[int, int]:
        return {step.stage: fused for step, fused in annotated_loops(steps, "vectorize")}


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
