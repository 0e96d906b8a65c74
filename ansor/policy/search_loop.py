"""The loop around a policy: ask for candidates, measure them, tell the results.

Before the first round come what a log has already, where the same call continues it, and trial 0: the programs that
nobody searched for.

On a device of its own, round k is asked for while round k - 1 is measured: it knows the results through round k - 2,
never "whatever is there by now", so that a seed decides the run.  Where programs run on the processor that searches,
each round waits for the one before.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from te_lite.schedule.state import State

from ..core.tasks.measure_values import Baseline, MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.checks import counted
from ..measure.batch import Batch
from ..measure.measurer import ProgramMeasurer
from ..measure.pipeline import alone
from ..measure.time_limit import TimeLimit, now
from ..records.files import PathLike
from ..records.lines import Record, logger, recorded_key, validated_records
from ..records.of_task import other_targets
from ..records.recorder import RecordToFile
from ..sketch.plain import untuned_state
from .default_schedule import default_state
from .early_stopping import AUTO, stopped
from .exchange import checked_states
from .protocols import Announces, AsksAhead, DrawsUpDefault, Foresees, Predicts
from .search_failure import SearchFailed, failing, reporting
from .tuning_options import TuningOptions


@runtime_checkable
class Continues(Protocol):
    """A policy that can go on where a log stops."""

    def continue_from(self, filename: Path, records: Sequence[Record]) -> None:
        """Take the believed records of a log as measured, unless it has begun or was given a log already."""


def log_to_continue(options: TuningOptions) -> Path | None:
    """The log that a run goes on with: the first that its callbacks write and that holds something."""
    logs = [c.filename for c in options.measure_callbacks if isinstance(c, RecordToFile)] if options.resume else []
    return next((log for log in logs if log.is_file() and log.stat().st_size > 0), None)


def check_logs(tasks: Sequence[SearchTask], options: TuningOptions) -> None:
    """Raises TaskError where a log that a run writes has records of another computation under a task's key."""
    for callback in options.measure_callbacks:
        if isinstance(callback, RecordToFile):
            callback.check(tasks)


def say_other_targets(log: PathLike, records: Sequence[Record], tasks: Sequence[SearchTask]) -> None:
    """Warn of records of a log that are for other processors than the targets of the tasks (`other_targets`)."""
    keys = dict.fromkeys([recorded_key(inp.task) for inp, _ in records])
    for target in dict.fromkeys([task.target for task in tasks]):
        if text := other_targets(str(log), keys, target):
            logger.warning("%s", text)


def continue_log(policies: Sequence[Any], options: TuningOptions) -> list[Record]:
    """Let the policies that can go on with the log of a run, and give its records.

    Raises JournalError when it cannot be read.
    """
    log, able = log_to_continue(options), [p for p in policies if isinstance(p, Continues)]
    if log is None or not able:
        return []
    records = list(validated_records(log))
    for policy in able:
        policy.continue_from(log, records)
    return records


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
