"""Apply steps to states, and replay step lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..computation.computation import Computation
from ..errors import ScheduleError, require
from .state import State, initial_state
from .step import Step


def apply(state: State, step: Step) -> State:
    """The state after one more step.  Raises ScheduleError when the step does not fit."""
    for k in step.stages:
        ok = 0 <= k < len(state.stages)
        require(ok, ScheduleError, f"step {step.tag}", f"there are {len(state.stages)} stages", stage=k)
    after: State = step.effect(state)
    return replace(after, steps=(*state.steps, step))


def replay(dag: Computation, steps: Iterable[Step]) -> State:
    """The state that `steps` make from the unscheduled `dag`."""
    state = initial_state(dag)
    for step in steps:
        state = apply(state, step)
    return state
