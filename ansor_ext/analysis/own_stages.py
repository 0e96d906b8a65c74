"""Rules around the stages that a rule of its own schedules: these are left alone until everything else is decided.

A rule that decides a stage with all its loops in one go (`skinny`, `sliced_tiles`, `tensor_core`) lets the rules of the
target deal with the other stages first.  They see the stage as it is, and fetch nothing for it.  Rules of a CPU have
the usual ones behind them (`cpu_sketches`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from ansor.sketch.cache_rules import AddCacheRead
from ansor.sketch.generate import CPU_RULES
from ansor.sketch.predicates import consumers, fusion_target
from ansor.sketch.rule import Condition, Outcome, SketchContext, SketchRule
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheWrite
from te_lite.schedule.state import State

Mine = Callable[[SketchContext, State, int], bool]
"""Whether a stage is one of the rule's own."""


class LeaveAlone:
    """Stages of the rule's own are left as they are."""

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM, whose stages are decided one by one."

    def __init__(self, mine: Mine) -> None:
        self.mine = mine

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if self.mine(ctx, state, k) else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        return [(state, k - 1)]


class OtherCacheReads(AddCacheRead):
    """Fetch through shared memory as ever, but nothing that such a stage reads."""

    def __init__(self, mine: Mine) -> None:
        self.mine = mine

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        read = any(self.mine(ctx, state, reader) for reader in consumers(state, k))
        return Condition.SKIP if read else super().condition(ctx, state, k)


def derive(ctx: SketchContext, rules: tuple[SketchRule, ...], state: State, k: int) -> list[State]:
    """The sketches that `rules` make of `state` from stage `k` down to the first."""
    if k < 0:
        return [state]
    out: list[State] = []
    for rule in rules:
        condition = rule.condition(ctx, state, k)
        if condition != Condition.SKIP:
            for after, following in rule.apply(ctx, state, k):
                out += derive(ctx, rules, after, following)
        if condition == Condition.APPLY_AND_SKIP_REST:
            break
    return out


def with_reader(state: State, k: int) -> tuple[State, int | None]:
    """`state` with a stage that takes up element by element what stage `k` computes, and the number of that stage.

    Where no stage does so already the result is written from local storage; None where that is not possible.
    """
    if fusion_target(state, k) is None:
        state = apply(state, CacheWrite(k, "local"))
    return state, fusion_target(state, k)


def cpu_sketches(ctx: SketchContext, rules: Sequence[SketchRule], mark: str = "vectorize") -> list[State]:
    """The sketches that rules of a CPU make, each with the usual ones behind it: those with an annotation of theirs."""
    if ctx.target.is_gpu:
        return []
    start, last = ctx.dag.init_state, len(ctx.dag.ops) - 1
    found = [s for rule in rules for s in derive(ctx, (rule, *CPU_RULES), start, last)]
    mine = [s for s in found if any(it.annotation == mark for stage in s.stages for it in stage.iters)]
    return list({s.steps: s for s in mine}.values())
