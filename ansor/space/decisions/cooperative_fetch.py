"""How a copy to shared memory is fetched: the elements of one vector load.

All threads of a block fetch together; good widths divide the innermost run of the copy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from te_lite.bounds.bounds import Bounds
from te_lite.expr.lanes import where
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import apply
from te_lite.schedule.state import ATTACHED, State

from ...core.target.hardware import HardwareParams
from ...core.values.schedule_primitives import annotate, follow_fused_split, fuse
from ...sketch.predicates import THREAD, spatial_split_steps
from ...sketch.shared_memory import element_bytes
from .decision import Choice, Draft, Number, Numbers, Phase, Setting
from .draw import pick

WIDTHS = (1, 2, 4, 8, 16)


class Fetch(Number):
    """The vector width with which a shared copy is fetched: one of those that divide its run."""

    name = "fetch"
    gpu_weight = 0.05
    phase = Phase.BOUNDED
    turn = 0
    last_first = True

    def values(self, sketch: State, setting: Setting) -> Mapping[int, tuple[int, ...]]:
        return {k: vector_widths(sketch, k, setting.hardware) for k in copies(sketch)}

    def draw(self, parts: Sequence[Choice], draft: Draft) -> None:
        for c in parts:
            run = np.broadcast_to(np.asarray(copy_run(draft.bounds, c.stage)), (len(draft.rows),))
            widths = np.array(c.values, np.int64)
            draft.rows[:, c.column] = widths[pick(run[:, None] % widths == 0, draft.rng)]

    def apply(self, state: State, k: int, numbers: Numbers, hardware: HardwareParams) -> State:
        if k not in numbers:
            return state
        stage = state.stages[k]
        assert stage.attach is not None
        sources = spatial_split_steps(state, stage.attach.stage)
        state, fused = fuse(state, k, stage.leaf)
        first = len(state.stages[k].vars)
        state = apply(state, Split(k, state.stages[k].position(fused.uid), 0, (numbers[k],)))
        rest, vector = state.stages[k].vars[first:]
        state = annotate(state, k, vector.uid, "vectorize")
        state, (_, thread) = follow_fused_split(state, k, rest.uid, sources, 1)
        return annotate(state, k, thread.uid, THREAD)


def copies(state: State) -> list[int]:
    """The copies in shared memory whose loops are still to be shared out: those of a layout of their own are not."""
    found = [k for k, s in enumerate(state.stages) if s.where == ATTACHED and s.op.name.endswith(".shared")]
    found = [k for k in found if not any(ask.layout for ask in state.stages[k].asks)]
    return [k for k in found if all(it.annotation == "none" for it in state.stages[k].iters)]


def vector_widths(state: State, k: int, hardware: HardwareParams) -> tuple[int, ...]:
    """The numbers of elements of shared copy `k` that one vector load may have."""
    most = max(1, hardware.vector_unit_bytes // element_bytes(state.stages[k].op.dtype))
    return tuple([w for w in WIDTHS if w <= most])


def copy_run(bounds: Bounds, k: int) -> Any:
    """The innermost extent of a shared copy that is not 1 (ints or lanes); good widths divide it."""
    run: Any = 1
    for region in bounds.regions[k][: len(bounds.state.stages[k].op.axis)]:
        run = where(region.extent > 1, region.extent, run)
    return run
