"""The loop around a policy: ask for candidates, measure them, tell the results.

On a device of its own, round k is asked for while round k - 1 is measured: it knows the results through round k - 2,
never "whatever is there by now", so that a seed decides the run.  Where programs run on the processor that searches,
each round waits for the one before.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from te_lite.schedule.state import State

from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.wording import counted
from ..measure.batch import Batch
from ..measure.measurer import ProgramMeasurer
from ..measure.pipeline import alone
from ..measure.time_limit import TimeLimit, now
from .early_stopping import AUTO, stopped
from .exchange import checked_states
from .protocols import Announces, AsksAhead, Foresees, Predicts
from .search_failure import SearchFailed, reporting

FIRST_ROUND = 32


def one_round(
    policy: Any, task: SearchTask, num_measure: int, measurer: ProgramMeasurer
) -> tuple[list[MeasureInput], list[MeasureResult]]:
    """Ask for up to `num_measure` candidates, measure them, tell the policy."""
    with measurer.closing_on_error():
        batch = begin_round(policy, task, num_measure, measurer)
        results = end_round(policy, batch, measurer)
    return [inp for inp, _ in batch.measured], results


def search_loop(
    policy: Any,
    task: SearchTask,
    trials: int,
    early_stopping: int | str | None,
    per_round: int,
    measurer: ProgramMeasurer,
    retries: int = 0,
    time_limit: float | None = None,
) -> State | None:
    """Rounds until `trials` are measured, and the best state of them, after the best few were timed in turns.

    The first rounds are smaller than `per_round`, since what they bring is worth most to those after them.

    It ends earlier when nothing new is found `retries` + 1 times in a row, after `early_stopping` trials without a
    better program (with "auto", when the policy says that nothing more is to be had), or after `time_limit` seconds, a
    part of which is for the turns: rounds get smaller when the end is near, and programs that were not begun by then
    are not measured, but for the first of a round.
    """
    measurer.reset()
    judge = partial(stopped, task, policy, measurer) if early_stopping == AUTO else lambda: False
    patience = None if isinstance(early_stopping, str) else early_stopping
    progress = _Progress(patience, measurer.limited(time_limit), judge)
    with measurer.closing_on_error():
        _rounds(policy, task, trials, per_round, measurer, retries, progress)
        measurer.confirm(task)
        measurer.say_if_over(measurer.count < trials)
        best = measurer.best_of(task)
    return None if best is None else best.state


def _rounds(
    policy: Any, task: SearchTask, trials: int, per_round: int, measurer: ProgramMeasurer, retries: int,
    progress: _Progress,
) -> None:  # fmt: skip
    ahead = 0 if alone(task, measurer.runner) else int(policy.rounds_ahead) if isinstance(policy, AsksAhead) else 1
    pending: deque[Batch] = deque()
    asked = empty = 0
    while asked < trials and empty <= retries and not progress.over():
        count = min(per_round, max(FIRST_ROUND, asked // 2), trials - asked, progress.room())
        batch = begin_round(policy, task, count, measurer)
        asked += len(batch.inputs)
        empty = 0 if batch.inputs else empty + 1
        pending.append(batch)
        while len(pending) > (ahead if batch.inputs else 0):
            progress.add(end_round(policy, pending.popleft(), measurer))
    for batch in pending:
        end_round(policy, batch, measurer)


def begin_round(
    policy: Any, task: SearchTask, num_measure: int, measurer: ProgramMeasurer, until: Callable[[], float] | None = None
) -> Batch:
    """Ask for up to `num_measure` candidates, and begin to build and run them.

    `until` says, when they are known, how long they have.
    Raises SearchFailed, and PartError for a policy of the user's own that raises, or gives what are no programs of the
    task.
    """
    measurer.display.phase(f"choosing {counted(num_measure, 'program')} to measure")
    begun = now()
    with reporting(task, policy, "ask"):
        if isinstance(policy, Announces):
            policy.announce(measurer.runner)
        chosen = policy.candidates if isinstance(policy, Foresees) else partial(_candidates, policy, task)
        inputs = chosen(num_measure)
    seconds = now() - begun
    measurer.until = measurer.until if until is None else until()
    batch = measurer.start(task, policy, inputs)
    batch.spent.search += seconds
    return batch


def _candidates(policy: Any, task: SearchTask, n: int) -> list[MeasureInput]:
    """Up to `n` programs that a policy asks for, with what it thinks of them if it says that."""
    states = checked_states(policy, task, policy.ask(n), n)
    expected = policy.predicted(states) if isinstance(policy, Predicts) else [None] * len(states)
    return [MeasureInput(task, state, prediction=one) for state, one in zip(states, expected, strict=True)]


def end_round(
    policy: Any, batch: Batch, measurer: ProgramMeasurer, meanwhile: Callable[[], None] | None = None
) -> list[MeasureResult]:
    """Wait for the results of a round, and tell the policy; `meanwhile` is called again and again.

    Raises SearchFailed, which has the results.
    """
    results = measurer.finish(batch, meanwhile)
    begun = now()
    try:
        if results:
            with reporting(batch.task, policy, "tell"):
                policy.tell([inp for inp, _ in batch.measured], results)
            batch.spent.search += now() - begun
            measurer.learnt(batch)
    except SearchFailed as failure:
        failure.results = results
        raise
    return results


class _Progress:
    """Whether a search has gone on for long enough, by the results of whole rounds in the order of their candidates."""

    def __init__(self, early_stopping: int | None, limit: TimeLimit, judge: Callable[[], bool]) -> None:
        self.early_stopping = early_stopping
        self.limit = limit
        self.judge = judge
        self.count = 0
        self.best_cost = float("inf")
        self.best_trial = 0

    def add(self, results: list[MeasureResult]) -> None:
        for result in results:
            self.count += 1
            if result.ok and result.cost < self.best_cost:
                self.best_cost, self.best_trial = result.cost, self.count

    def room(self) -> int:
        """How many programs the time that is left has room for, if they take as long as those before; at least one."""
        now, until = time.monotonic(), self.limit.until
        if self.count == 0 or until == math.inf:
            return sys.maxsize
        return max(1, int(self.count * (until - now) / max(now - self.limit.begun, 1e-9)))

    def over(self) -> bool:
        if self.limit.over:
            return True
        found = self.best_trial > 0
        stuck = self.early_stopping is not None and found and self.count - self.best_trial >= self.early_stopping
        return stuck or self.judge()
