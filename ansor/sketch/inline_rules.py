"""Rules for stages that need no tiles of their own: inline, place, unroll, or leave alone (Ansor paper, 4.1)."""

from __future__ import annotations

from typing import ClassVar

from te_lite.errors import ScheduleError, require
from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import apply
from te_lite.schedule.state import SPATIAL, Iter, Stage, State

from ..core.values.schedule_primitives import annotate, compute_at, reorder, split
from .predicates import CONST_INDICES, always_inlined, axis_name, consumers, named_axes, producers
from .rule import Condition, Outcome, SketchContext


class AlwaysInline:
    """Inline a stage when that is always right."""

    paper: ClassVar[str] = "Rule 2, Always Inline."
    departs: ClassVar[str] = ""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if always_inlined(state, k, ctx.target.is_gpu) else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        return [(apply(state, ComputeInline(k)), k - 1)]


class SimplifyComputeWithConstTensor:
    """Unroll the loops over a constant matrix (winograd's transforms) and tile the others once."""

    paper: ClassVar[str] = "Not in the paper; written for winograd."
    departs: ClassVar[str] = ""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if CONST_INDICES in state.stages[k].op.attrs else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        unrolled = named_axes(state.stages[k], CONST_INDICES)
        outer, inner, last = [], [], []
        for it in state.stages[k].iters:
            if it.uid in unrolled:
                state = annotate(state, k, it.uid, "unroll")
                last.append(it.uid)
            else:
                name = f"{state.stages[k].op.name}.{axis_name(state.stages[k], it.uid)}"
                law = f"a reduction axis must be listed in {CONST_INDICES}"
                require(it.kind == SPATIAL, ScheduleError, name, law)
                state, (a, b) = split(state, k, it.uid, [None])
                outer.append(a.uid)
                inner.append(b.uid)
        return [(reorder(state, k, outer + inner + last), k - 1)]


def loop_before_unrolled(stage: Stage) -> Iter | None:
    """The loop just outside the first unrolled one."""
    for outside, it in zip(stage.iters, stage.iters[1:], strict=False):
        if it.annotation == "unroll":
            return outside
    return None


class SpecialComputeLocationGPU:
    """Compute the gathered input of a constant-matrix stage right before its unrolled loops."""

    paper: ClassVar[str] = "Not in the paper; written for winograd's input tiles."
    departs: ClassVar[str] = "A consumer whose loops are all unrolled is skipped; TVM stops with an error."

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        if not producers(state, k) or not always_inlined(state, k, is_gpu=True):
            return Condition.SKIP
        readers = consumers(state, k)
        if len(readers) != 1 or CONST_INDICES not in state.stages[readers[0]].op.attrs:
            return Condition.SKIP
        return Condition.APPLY_AND_SKIP_REST if loop_before_unrolled(state.stages[readers[0]]) else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        target = consumers(state, k)[0]
        loop = loop_before_unrolled(state.stages[target])
        assert loop is not None
        return [(compute_at(state, k, target, loop.uid), k - 1)]


class SkipStage:
    """Leave the stage as it is."""

    paper: ClassVar[str] = "Rule 1, Skip."
    departs: ClassVar[str] = ""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        return [(state, k - 1)]
