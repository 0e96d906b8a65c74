"""Parts of the reductions of stages that a rule of its own schedules, one block each: another kernel adds them up."""

from __future__ import annotations

from collections.abc import Callable

from ansor.sketch.derivation_rules import AddCacheRead
from ansor.sketch.generate import default_rules
from ansor.sketch.reduction_rules import CrossThreadReduction
from ansor.sketch.rule import Condition, Outcome, SketchContext, SketchRule
from te_lite.schedule.state import State

from ..analysis.own_stages import LeaveAlone, Mine, OtherCacheReads
from .split_reduction import SplitReduction, ThreadsOfSplit

Factors = Callable[[SketchContext, State, int], tuple[int, ...]]
"""The numbers of parts worth trying for the reduction of a stage."""


class PartsOverBlocks(SplitReduction):
    """Make `factor` parts of the reduction of such a stage a space axis, where it is among the `factors` for it."""

    def __init__(self, factor: int, factors: Factors) -> None:
        super().__init__(factor)
        self.factors = factors

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if self.factor in self.factors(ctx, state, k) else Condition.SKIP


class PartsInCluster(PartsOverBlocks):
    """The same with nothing done to the stage that adds up the parts, as blocks of a cluster do so."""

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        return [(self.in_parts(ctx, state, k), k + 1)]


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
