"""Rules that add stages holding copies: shared-memory reads and accumulators (section 4.1 of the Ansor paper)."""

from __future__ import annotations

from typing import ClassVar

from te_lite.schedule.loop_value import root_axes
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead, CacheWrite
from te_lite.schedule.state import REDUCE, Iter, Stage, State

from ..core.values.schedule_primitives import compute_at
from .predicates import (
    NO_SPLIT,
    consumers,
    fusion_target,
    has_cross_thread_reduction,
    named_axes,
    needs_tiling,
    whole_space,
)
from .rule import Condition, Outcome, SketchContext


def fetch_loop(stage: Stage) -> Iter:
    """The loop of a tiled reduction at which its inputs are fetched: the end of the outermost reduction level."""
    missing = set(range(len(stage.op.axis), stage.num_roots)) - named_axes(stage, NO_SPLIT)
    reductions = [it for it in stage.iters if it.kind == REDUCE]
    for it in reductions:
        missing -= root_axes(stage, it.uid)
        if not missing:
            return it
    return reductions[0]


class AddCacheRead:
    """Fetch what a tiled stage reads through shared memory."""

    paper: ClassVar[str] = "Rule 5 for inputs: cache reads in shared memory (GPU, appendix)."
    departs: ClassVar[str] = (
        "Only consumers that are tiled reductions and read the stage directly get a cache; TVM stops with an error "
        "when the first one is and another is not.  An operation with several outputs gets none either."
    )

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        readers = consumers(state, k) if state.stages[k].op.num_outputs == 1 else []
        first_fits = bool(readers) and _fetches(state, k, readers[0])
        return Condition.APPLY_AND_SKIP_REST if first_fits else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        readers = [r for r in consumers(state, k) if _fetches(state, k, r)]
        for inserted, reader in enumerate(readers):
            state = apply(state, CacheRead(k, "shared", (reader + inserted,)))
            target = reader + inserted + 1
            state = compute_at(state, k + 1, target, fetch_loop(state.stages[target]).uid)
        return [(state, k)]


def _fetches(state: State, k: int, reader: int) -> bool:
    if not needs_tiling(state, reader) or has_cross_thread_reduction(state, reader):
        return False
    return bool(state.stages[reader].op.reduce_axis) and k in state.access.read_from[reader]


class AddCacheWrite:
    """Accumulate in a cache and copy it out, which gives a consumer to fuse with."""

    paper: ClassVar[str] = "Rule 5, Add Cache Stage."
    departs: ClassVar[str] = (
        "A consumer that is tiled already does not count as fusible; a stage without axes to split gets no cache, "
        "which could not be fused with its copy."
    )

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        if not needs_tiling(state, k) or fusion_target(state, k) is not None:
            return Condition.SKIP
        if len(whole_space(state.stages[k])) == len(state.stages[k].op.axis):
            return Condition.SKIP
        return Condition.APPLY_AND_SKIP_REST if ctx.target.is_gpu else Condition.APPLY

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        return [(apply(state, CacheWrite(k, "local")), k)]
