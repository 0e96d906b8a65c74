"""The loop around a policy: ask for candidates, measure them, tell the results.

On a device of its own, round k is asked for while round k - 1 is measured: it knows the results through round k - 2,
never "whatever is there by now", so that a seed decides the run.  Where programs run on the processor that searches,
each round waits for the one before.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Any

from te_lite.state import State

from .measure.api import MeasureInput, MeasureResult
from .registry import backend
from .task import SearchTask

if TYPE_CHECKING:
    from .measure.measurer import Batch, ProgramMeasurer


FIRST_ROUND = 32


def one_round(
    policy: Any, task: SearchTask, num_measure: int, measurer: ProgramMeasurer
) -> tuple[list[MeasureInput], list[MeasureResult]]:
    """Ask for up to `num_measure` candidates, measure them, tell the policy."""
    batch = _begin(policy, task, num_measure, measurer)
    return list(batch.inputs), _end(policy, batch, measurer)


def search_loop(
    policy: Any,
    task: SearchTask,
    trials: int,
    early_stopping: int | None,
    per_round: int,
    measurer: ProgramMeasurer,
    retries: int = 0,
    time_limit: float | None = None,
) -> State | None:
    """Rounds until `trials` are measured, and the best state of them; the best few are timed in turns at the end.

    The first rounds are smaller than `per_round`, since what they bring is worth most to those after them.

    It ends earlier when nothing new is found `retries` + 1 times in a row, after `early_stopping` trials without a
    better program, or after `time_limit` seconds; what is under way then is still measured.
    """
    measurer.reset()
    rounds = _Rounds(measurer, task, early_stopping, time_limit)
    ahead = 0 if backend(task.target.kind.name).shares_host else 1
    pending: deque[Batch] = deque()
    asked = empty = 0
    while asked < trials and empty <= retries and not rounds.over():
        count = min(per_round, max(FIRST_ROUND, asked // 2), trials - asked)
        batch = _begin(policy, task, count, measurer)
        asked += len(batch.inputs)
        empty = 0 if batch.inputs else empty + 1
        pending.append(batch)
        while len(pending) > (ahead if batch.inputs else 0):
            _end(policy, pending.popleft(), measurer)
    for batch in pending:
        _end(policy, batch, measurer)
    best = measurer.confirm(task)
    return None if best is None else best.state


def _begin(policy: Any, task: SearchTask, count: int, measurer: ProgramMeasurer) -> Batch:
    measurer.display.phase("search", count)
    return measurer.start(task, policy, [MeasureInput(task, state) for state in policy.ask(count)])


def _end(policy: Any, batch: Batch, measurer: ProgramMeasurer) -> list[MeasureResult]:
    results = measurer.finish(batch)
    if results:
        policy.tell(batch.inputs, results)
    return results


class _Rounds:
    """Whether a search has gone on for long enough."""

    def __init__(
        self, measurer: ProgramMeasurer, task: SearchTask, early_stopping: int | None, time_limit: float | None
    ) -> None:
        self.measurer = measurer
        self.key = task.workload_key
        self.early_stopping = early_stopping
        self.deadline = None if time_limit is None else time.monotonic() + time_limit

    def over(self) -> bool:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return True
        best = self.measurer.best.get(self.key)
        return (
            self.early_stopping is not None
            and best is not None
            and self.measurer.count - best.trial >= self.early_stopping
        )
