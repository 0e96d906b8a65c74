"""Trial 0 of a search: the programs that nobody searched for are drawn up, and handed to the measurer."""

from __future__ import annotations

from typing import Any

from te_lite.schedule.state import State

from ..core.tasks.baseline import Baseline
from ..core.tasks.task import SearchTask
from ..measure.measurer import ProgramMeasurer
from ..sketch.plain import untuned_state
from .default_schedule import default_state
from .protocols import DrawsUpDefault
from .search_failure import SearchFailed, failing


def start_baselines(task: SearchTask, policy: Any, measurer: ProgramMeasurer) -> None:
    """Begin to measure the programs of a task that nobody searched for, those that the measurer does not know yet.

    Raises SearchFailed, when the others are begun, where the default schedule cannot be drawn up, and what
    `ProgramMeasurer.start` raises.
    """
    failure: SearchFailed | None = None
    for which in measurer.missing_baselines(task):
        try:
            with failing(task, policy):
                state = _state(task, policy, which)
        except SearchFailed as error:
            failure = error
            continue
        if state is not None:
            measurer.start_baseline(task, policy, which, state)
    if failure is not None:
        raise failure


def _state(task: SearchTask, policy: Any, which: Baseline) -> State | None:
    if which is Baseline.UNTUNED:
        return untuned_state(task)
    return policy.default_state() if isinstance(policy, DrawsUpDefault) else default_state(task)
