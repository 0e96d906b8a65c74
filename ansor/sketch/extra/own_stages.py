"""Rules around the stages that a rule of its own schedules: these are left alone until everything else is decided.

A rule that decides a stage with all its loops in one go (`skinny`, `sliced_tiles`, `tensor_core`) lets the rules of the
target deal with the other stages first.  They see the stage as it is, fetch nothing for it, and may cut its reduction
into parts, which another kernel adds up.  Rules of a CPU have the usual ones behind them (`cpu_sketches`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from te_lite.schedule.replay import apply
from te_lite.schedule.state import State
from te_lite.schedule.step import CacheWrite

from ..cache_rules import AddCacheRead
from ..generate import CPU_RULES, default_rules
from ..predicates import consumers, fusion_target
from ..reduction_rules import CrossThreadReduction
from ..rule import Condition, Outcome, SketchContext, SketchRule
from .split_reduction import SplitReduction, ThreadsOfSplit, derive

Mine = Callable[[SketchContext, State, int], bool]
"""Whether a stage is one of the rule's own."""
Factors = Callable[[SketchContext, State, int], tuple[int, ...]]
"""The numbers of parts worth trying for the reduction of a stage."""


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


class PartsOverBlocks(SplitReduction):
    """Make `factor` parts of the reduction of such a stage a space axis, where it is among the `factors` for it."""

    def __init__(self, factor: int, factors: Factors) -> None:
        super().__init__(factor)
        self.factors = factors

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if self.factor in self.factors(ctx, state, k) else Condition.SKIP


def rules_around(ctx: SketchContext, mine: Mine, sums_of_parts: bool = True) -> tuple[SketchRule, ...]:
    """The rules of the target with nothing done to such stages and what they read.

    `sums_of_parts`: parts of reductions are added up by the threads of a block, or by one, as in `split_reduction`.
    """
    rules: list[SketchRule] = [LeaveAlone(mine)]
    for rule in default_rules(ctx.target):
        match rule:
            case AddCacheRead():
                rules.append(OtherCacheReads(mine))
            case CrossThreadReduction() if sums_of_parts:
                rules.append(ThreadsOfSplit())
            case _:
                rules.append(rule)
    return tuple(rules)


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
