"""Apply steps to states, and replay step lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ..computation.computation import Computation
from ..errors import ScheduleError, require
from . import apply_loop, apply_stage
from .state import State, initial_state
from .step import (
    Annotate,
    CacheRead,
    CacheWrite,
    ComputeAlong,
    ComputeAt,
    ComputeInline,
    ComputeRoot,
    DoubleBuffer,
    FollowFusedSplit,
    FollowSplit,
    FreePragma,
    Fuse,
    JoinAxes,
    JoinReductions,
    Pipeline,
    PostponeDivision,
    Pragma,
    Reindex,
    Reorder,
    RFactor,
    SetScope,
    Split,
    Step,
    StorageAlign,
    StorageOrder,
    Swizzled,
)

_APPLY: dict[type, Callable[[State, Any], State]] = {
    Annotate: apply_loop.apply_annotate,
    Fuse: apply_loop.apply_fuse,
    Pragma: apply_loop.apply_pragma,
    FreePragma: apply_loop.apply_pragma,
    Reorder: apply_loop.apply_reorder,
    Split: apply_loop.apply_split,
    FollowSplit: apply_loop.apply_follow_split,
    FollowFusedSplit: apply_loop.apply_follow_fused_split,
    StorageAlign: apply_loop.apply_storage_align,
    StorageOrder: apply_loop.apply_storage_order,
    Swizzled: apply_loop.apply_swizzled,
    ComputeAt: apply_stage.apply_compute_at,
    ComputeInline: apply_stage.apply_compute_inline,
    ComputeRoot: apply_stage.apply_compute_root,
    CacheRead: apply_stage.apply_cache_read,
    Reindex: apply_stage.apply_reindex,
    JoinAxes: apply_stage.apply_join_axes,
    CacheWrite: apply_stage.apply_cache_write,
    RFactor: apply_stage.apply_rfactor,
    DoubleBuffer: apply_stage.apply_double_buffer,
    Pipeline: apply_stage.apply_pipeline,
    SetScope: apply_stage.apply_set_scope,
    JoinReductions: apply_stage.apply_join_reductions,
    ComputeAlong: apply_stage.apply_compute_along,
    PostponeDivision: apply_stage.apply_postpone_division,
}


def apply(state: State, step: Step) -> State:
    """The state after one more step.  Raises ScheduleError when the step does not fit."""
    for k in step.stages:
        ok = 0 <= k < len(state.stages)
        require(ok, ScheduleError, f"step {step.tag}", f"there are {len(state.stages)} stages", stage=k)
    after = _APPLY[type(step)](state, step)
    return replace(after, steps=(*state.steps, step))


def replay(dag: Computation, steps: Iterable[Step]) -> State:
    """The state that `steps` make from the unscheduled `dag`."""
    state = initial_state(dag)
    for step in steps:
        state = apply(state, step)
    return state
