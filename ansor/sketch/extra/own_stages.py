"""Rules around the stages that a rule of its own schedules: these are left alone until everything else is decided.

A rule that decides a stage with all its loops in one go (`skinny`, `sliced_tiles`, `tensor_core`) lets the rules of the
target deal with the other stages first.  They see the stage as it is, fetch nothing for it, and may cut its reduction
into parts, which another kernel adds up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from te_lite.state import State

from ..cache_rules import AddCacheRead
from ..generate import default_rules
from ..predicates import consumers
from ..reduction_rules import CrossThreadReduction
from ..rule import Condition, Outcome, SketchContext, SketchRule
from .split_reduction import SplitReduction, ThreadsOfSplit

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
