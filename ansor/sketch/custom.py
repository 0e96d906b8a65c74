"""Sketch rules of one's own, whose answers are checked: a walk over them must come to an end."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from te_lite.errors import require
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State
from te_lite.schedule.step import Step

from ..core.errors import PartError
from ..core.values.checks import require_part
from ..core.values.parts import asking_own
from .rule import Condition, Outcome, PreloadCustomSketchRule, SketchContext, SketchRule, condition_of

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
    law = "a list of sketch rules is needed"
    require(isinstance(rules, list | tuple), PartError, subject, law, got=rules)
    needed = "a PreloadCustomSketchRule, or an object with paper, departs, condition and apply,"
    for rule in rules:
        require_part(rule, SketchRule, "custom sketch rule", needed)
    return tuple([CheckedRule(rule) for rule in rules])


def require_end(rules: Sequence[SketchRule], states: int) -> None:
    """Raise PartError when rules of one's own made more states than a search can look at."""
    names = ", ".join(rule_name(r.rule) for r in rules if isinstance(r, CheckedRule))
    law = f"the rules make more than {MOST_STATES} states at once"
    require(not names or states <= MOST_STATES, PartError, f"sketch rules {names}", law)
