"""Double-buffered shared tiles: the next tiles of a reduction are fetched while a block computes on these.

A block waits for global memory once in an iteration of its outermost reduction loops, unless other blocks fill the
time. Fetched an iteration ahead, and on sm_80 and newer by copies that do not occupy the thread, tiles are there when
they are needed; the price is twice the shared memory, which may cost resident blocks.
"""

from __future__ import annotations

from te_lite.expr.storage import storage_class
from te_lite.schedule.replay import apply
from te_lite.schedule.state import ATTACHED, REDUCE, State

from .steps import DoubleBuffer


def can_be_fetched_ahead(state: State, k: int) -> bool:
    """Stage k is a copy in shared memory, computed at a reduction loop of the stage that reads it."""
    stage = state.stages[k]
    if stage.where != ATTACHED or stage.attach is None or stage.op.reduce_axis or stage.double_buffer:
        return False
    loop = state.stages[stage.attach.stage].vars[stage.attach.iter]
    return storage_class(stage.op.scope) == "shared" and loop.kind == REDUCE


def double_buffered(sketch: State) -> State | None:
    """`sketch` with all its shared copies fetched an iteration ahead; None when there is none that can be."""
    state = sketch
    for k in range(len(sketch.stages)):
        if can_be_fetched_ahead(sketch, k):
            state = apply(state, DoubleBuffer(k))
    return None if state is sketch else state
