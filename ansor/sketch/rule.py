"""What a sketch rule is; rules of one's own, whose answers are checked.

A rule looks at one stage of a state and says whether it applies; applying gives the states that follow, each with
the stage to look at next.  States are made by appending steps only.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from te_lite.errors import require
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State
from te_lite.schedule.step import Step

from ..core.errors import PartError
from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from ..core.values.checks import require_part
from ..core.values.options import SketchOptions
from ..core.values.parts import asking_own

Outcome = tuple[State, int]


class Condition(IntEnum):
    """`APPLY` forks: later rules see the same state too.  `APPLY_AND_SKIP_REST` does not."""

    SKIP = 0
    APPLY = 1
    APPLY_AND_SKIP_REST = 2


@dataclass(frozen=True)
class SketchContext:
    """What rules may ask besides the state; `policy` is what custom rules get as their first argument.

    `stored_as_read`: inputs whose layout is free come in the order in which the program reads them.
    """

    dag: ComputeDAG
    target: Target
    hardware: HardwareParams
    options: SketchOptions = field(default_factory=SketchOptions)
    policy: Any = None
    stored_as_read: bool = False


@runtime_checkable
class SketchRule(Protocol):
    """`paper`: what the rule is for, in the terms of the Ansor paper; `departs`: where it leaves TVM on purpose."""

    paper: ClassVar[str]
    departs: ClassVar[str]

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        """Whether the rule applies to stage `k`."""
        ...

    def apply(self, ctx: SketchContext, state: State, k: int) -> Sequence[Outcome]:
        """The states that follow, each with the next stage to visit (-1: finished)."""
        ...


def condition_of(subject: str, got: Any) -> Condition:
    """What the condition of a rule gave.  Raises PartError, naming `subject`, for what is none: True says no which."""
    ok = isinstance(got, int | np.integer) and not isinstance(got, bool) and got in (0, 1, 2)
    require(ok, PartError, subject, "the condition must be 0, 1 or 2 (PASS, APPLY or APPLY_AND_SKIP_REST)", got=got)
    return Condition(int(got))


class PreloadCustomSketchRule:
    """A rule of the user's own; custom rules are asked before all others.

    `meet_condition_func(policy, state, stage_id)` returns PASS, APPLY or APPLY_AND_SKIP_REST;
    `apply_func(policy, state, stage_id)` returns a list of `[state, next stage id]`.  A state may be wrapped in an
    object that carries it as `state_object`.
    """

    PASS = 0
    APPLY = 1
    APPLY_AND_SKIP_REST = 2

    paper: ClassVar[str] = "User-defined derivation rule (section 4.1)."
    departs: ClassVar[str] = "A condition other than 0, 1, 2 and a result that is no state are refused."

    def __init__(
        self,
        meet_condition_func: Callable[[Any, State, int], int],
        apply_func: Callable[[Any, State, int], Sequence[Sequence[Any]]],
        rule_name: str = "CustomSketchRule",
    ) -> None:
        law = "a condition and an action are needed, two functions of (policy, state, stage)"
        ok = callable(meet_condition_func) and callable(apply_func)
        require(ok, PartError, rule_name, law, got=(meet_condition_func, apply_func))
        self.meet_condition_func = meet_condition_func
        self.apply_func = apply_func
        self.rule_name = rule_name

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return condition_of(self.rule_name, self.meet_condition_func(ctx.policy, state, k))

    def apply(self, ctx: SketchContext, state: State, k: int) -> Sequence[Outcome]:
        found = self.apply_func(ctx.policy, state, k)
        law = "apply_func must return a list of pairs of a state and the next stage id"
        require(isinstance(found, list | tuple), PartError, self.rule_name, law, got=found)
        return [self._outcome(item) for item in found]

    def _outcome(self, item: Sequence[Any]) -> Outcome:
        law = "apply_func must return pairs of a state and the next stage id"
        require(isinstance(item, list | tuple) and len(item) == 2, PartError, self.rule_name, law, got=item)
        state, following = getattr(item[0], "state_object", item[0]), item[1]
        require(isinstance(state, State) and isinstance(following, int), PartError, self.rule_name, law, got=item)
        return state, following


# --------------------------------------------------------------------------------------------------- rules of one's own


MOST_STEPS_A_STAGE = 100
MOST_STATES = 20_000


def rule_name(rule: SketchRule) -> str:
    """What to call a rule in a sentence."""
    return rule.rule_name if isinstance(rule, PreloadCustomSketchRule) else type(rule).__name__


@dataclass(frozen=True)
class CheckedRule:
    """A rule that is refused, by PartError, when it raises, gives no state, or one that leads nowhere."""

    rule: SketchRule
    paper: ClassVar[str] = "A rule of one's own."
    departs: ClassVar[str] = ""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        subject = f"sketch rule {rule_name(self.rule)!r}"
        with asking_own(subject, "the condition"):
            return condition_of(subject, self.rule.condition(ctx, state, k))

    def apply(self, ctx: SketchContext, state: State, k: int) -> Sequence[Outcome]:
        """What the rule gives."""
        subject = f"sketch rule {rule_name(self.rule)!r}"
        with asking_own(subject, "the action"):
            found: Any = self.rule.apply(ctx, state, k)
        law = "where it applies it must give a list of pairs, a state and the stage to look at next"
        require(isinstance(found, list | tuple) and len(found) > 0, PartError, subject, law, got=found)
        for item in found:
            pair = isinstance(item, list | tuple) and len(item) == 2
            require(pair and isinstance(item[0], State) and type(item[1]) is int, PartError, subject, law, got=item)
            _leads_on(subject, len(ctx.dag.ops), state, k, item)
            _splits_fit(subject, state, item[0].steps[len(state.steps) :])
        return [(after, following) for after, following in found]


def _leads_on(subject: str, stages: int, state: State, k: int, outcome: Outcome) -> None:
    after, following = outcome
    steps = len(state.steps)
    law = "a state must go on from the one it is given, but this one is of another computation"
    require(after.dag is state.dag, PartError, subject, law, got=after.dag)
    require(after.steps[:steps] == state.steps, PartError, subject, "a state must go on from the one it is given")
    law = f"the stage to look at next must be one of its {len(after.stages)}, or -1 for none"
    require(-1 <= following < len(after.stages), PartError, subject, law, got=following)
    law = f"stage {k} is given back as it is, for ever; the stage to look at next comes before it, such as {k - 1}"
    require(following < k or len(after.steps) > steps, PartError, subject, law)
    most = MOST_STEPS_A_STAGE * stages
    law = f"goes on for ever: a sketch of {stages} stages has more than {most} steps by now"
    require(len(after.steps) <= most, PartError, subject, law)


def _splits_fit(subject: str, state: State, steps: Sequence[Step]) -> None:
    """Raise PartError for lengths of a split that are more than its loop; warn where they leave a rest."""
    for step in steps:
        if isinstance(step, Split):
            loop = state.stages[step.stage].vars[state.stages[step.stage].leaf[step.iter]]
            if isinstance(loop.extent, int):
                _fits(f"{subject}: split of {loop.name}", loop.extent, step)
        state = apply(state, step)


def _fits(subject: str, extent: int, step: Split) -> None:
    known = math.prod([length for length in step.lengths if isinstance(length, int)])
    law = f"lengths must fit a loop of {extent} iterations"
    require(known <= extent, PartError, subject, law, lengths=step.lengths)
    if extent % known:
        warnings.warn(f"{subject}: {known} does not divide {extent}, so its programs have guards", stacklevel=2)


def checked_rules(rules: Sequence[SketchRule], subject: str = "custom_rules") -> tuple[SketchRule, ...]:
    """The rules, checked whenever they are asked.  Raises PartError, naming `subject`, for what is no list of rules."""
    require(isinstance(rules, list | tuple), PartError, subject, "a list of sketch rules is needed", got=rules)
    needed = "a PreloadCustomSketchRule, or an object with paper, departs, condition and apply,"
    for rule in rules:
        require_part(rule, SketchRule, "custom sketch rule", needed)
    return tuple([CheckedRule(rule) for rule in rules])


def require_end(rules: Sequence[SketchRule], states: int) -> None:
    """Raise PartError when rules of one's own made more states than a search can look at."""
    names = ", ".join(rule_name(r.rule) for r in rules if isinstance(r, CheckedRule))
    law = f"the rules make more than {MOST_STATES} states at once"
    require(not names or states <= MOST_STATES, PartError, f"sketch rules {names}", law)
