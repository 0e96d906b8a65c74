"""Parallelism inside reductions: rfactor on CPUs, reductions across threads on GPUs (Ansor paper, 4.1)."""

from __future__ import annotations

from typing import ClassVar

from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import REDUCE, ROOT, SPATIAL, Iter, State

from ..core.values.schedule_primitives import annotate, compute_at, follow_split, fuse, reorder, split
from .predicates import (
    THREAD,
    has_cache_write,
    has_reduce_iter,
    is_tiled,
    loop_length,
    may_be_computed_at,
    needs_tiling,
    single_consumer,
    split_steps,
)
from .rule import Condition, Outcome, SketchContext


def fuse_reductions(state: State, k: int) -> tuple[State, Iter]:
    """Fuse all reduction loops of stage `k` (no step when there is one)."""
    loops = [it for it in state.stages[k].iters if it.kind == REDUCE]
    return (state, loops[0]) if len(loops) == 1 else fuse(state, k, [it.uid for it in loops])


class AddRfactor:
    """Make a space axis of a part of the reduction, for parallelism or for vector lanes."""

    paper: ClassVar[str] = "Rule 6, Reduction Factorization."
    departs: ClassVar[str] = ""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        stage = state.stages[k]
        if stage.is_placeholder or has_cache_write(state, k):
            return Condition.SKIP
        space, reduce = loop_length(stage, SPATIAL), loop_length(stage, REDUCE)
        cores = ctx.hardware.num_cores
        if needs_tiling(state, k):
            return Condition.APPLY if space <= reduce and space <= cores * 16 else Condition.SKIP
        return Condition.APPLY if reduce > 1 and reduce > cores else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        space = sum(it.kind == SPATIAL for it in state.stages[k].iters)
        state, fused = fuse_reductions(state, k)
        state, parts = split(state, k, fused.uid, [1])
        out = []
        for part in parts:
            factored = apply(state, RFactor(k, state.stages[k].position(part.uid), space))
            if part is parts[1]:
                leaf = factored.stages[k].leaf
                factored = reorder(factored, k, (*leaf[:space], *leaf[space + 1 :], leaf[space]))
            out.append((factored, k - 1))
        return out


class CrossThreadReduction:
    """Reduce with the threads of a block, inside the consumer where their outer loops agree."""

    paper: ClassVar[str] = "Rule 6 for GPUs: reductions across threads."
    departs: ClassVar[str] = (
        "A consumer that has other loops already (tiles, or a reduction without threads) is not fused with, where "
        "TVM stops with an error; nor is a copy in shared memory, whose threads are those of the block around it."
    )

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        stage = state.stages[k]
        if stage.is_placeholder or has_cache_write(state, k):
            return Condition.SKIP
        space, reduce = loop_length(stage, SPATIAL), loop_length(stage, REDUCE)
        if needs_tiling(state, k):
            ok = space <= ctx.hardware.max_threads_per_block and space < reduce
        else:
            ok = reduce > 1 and reduce > ctx.hardware.warp_size
        return Condition.APPLY if ok else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        state, fused = fuse_reductions(state, k)
        warp = ctx.hardware.warp_size
        target, common = _fusion(state, k)
        source = None
        if target is not None:
            state, source = _thread_split(state, target, warp)
        if target is None or source is None:
            return [(_bind_inner(state, k, fused, warp), k - 1)]
        at = state.stages[target].iters[common - 1]
        state, (_, inner) = follow_split(state, k, fused.uid, source, 1)
        state = annotate(state, k, inner.uid, THREAD)
        return [(compute_at(state, k, target, at.uid), k - 1)]


def _fusion(state: State, k: int) -> tuple[int | None, int]:
    """The consumer that stage `k` may be computed in, and the number of loops they have in common."""
    target = single_consumer(state, k)
    if target is None or state.stages[target].where != ROOT or needs_tiling(state, target):
        return None, 0
    if not may_be_computed_at(state, k):
        return None, 0
    common = state.access.num_common_outer_path(k, target)
    return (target, common) if common else (None, 0)


def _bind_inner(state: State, k: int, loop: Iter, threads: int) -> State:
    state, (_, inner) = split(state, k, loop.uid, [threads])
    return annotate(state, k, inner.uid, THREAD)


def _thread_split(state: State, k: int, threads: int) -> tuple[State, int | None]:
    """The position of the split of stage `k` into threads, made when the stage is untouched; None: there is none."""
    stage = state.stages[k]
    splits = split_steps(state, k)
    if not splits and not is_tiled(stage) and not has_reduce_iter(stage):
        state = _bind_inner(state, k, stage.iters[-1], threads)
        return state, len(state.steps) - 2
    bound = any(it.annotation == THREAD for it in stage.iters)
    return state, splits[0] if len(splits) == 1 and bound else None


def open_rfactor_splits(state: State) -> State:
    """Make the factor of every rfactor undecided: only the step becomes a hole, the stages keep factor 1."""
    steps = list(state.steps)
    for position, step in enumerate(steps):
        if isinstance(step, RFactor):
            before = steps[position - 1]
            assert isinstance(before, Split)
            steps[position - 1] = Split(before.stage, before.iter, before.extent, (None,), before.inner_to_outer)
    return State(state.dag, state.stages, tuple(steps))
