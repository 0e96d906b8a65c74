"""What a sketch rule is.

A rule looks at one stage of a state and says whether it applies; applying gives the states that follow, each with
the stage to look at next.  States are made by appending steps only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from te_lite.errors import require
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.state import State

from ..core.errors import PartError
from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from ..core.values.options import SketchOptions

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
    law = "the condition must be 0, 1 or 2 (PASS, APPLY or APPLY_AND_SKIP_REST)"
    require(ok, PartError, subject, law, got=got)
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
