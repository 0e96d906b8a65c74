"""Drive builder and runner over candidates, keep count, and tell everybody of each result as soon as it is there."""

from __future__ import annotations

import bisect
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.state import State

from ..core.errors import MeasureError
from ..core.measure_values import DeviceUse, MeasureInput, MeasureResult
from ..core.protocols import Builder, KeepsUsage, MeasureCallback, PairedRunner, ReportsUse, Runner
from ..core.task import SearchTask
from .pipeline import Pipeline
from .progress import Display, make_display

FINALISTS = 5
logger = logging.getLogger("ansor")


TaskKey = tuple[str, str]


def key_of(task: SearchTask) -> TaskKey:
    """Workload key and target kind."""
    return task.workload_key, task.target.results


@dataclass
class Best:
    """The best program of a task so far; `trial` is the number of the measurement that found it."""

    cost: float
    state: State
    trial: int


@dataclass(frozen=True, eq=False)
class Batch:
    """Candidates under way; `results` by number, from `first` on, as far as they are known."""

    task: SearchTask
    policy: Any
    inputs: tuple[MeasureInput, ...]
    first: int
    results: dict[int, MeasureResult]

    @property
    def complete(self) -> bool:
        return len(self.results) == len(self.inputs)


class ProgramMeasurer:
    """Measures candidates in batches; `start` the next one before you `finish` the last, and the device never waits.

    Callbacks hear of every single result when it arrives, so what was measured survives whatever comes next.
    After `max_continuous_error` failures in a row a warning is given once; tuning goes on.
    """

    DEFAULT_MAX_CONTINUOUS_ERROR = 150

    def __init__(
        self,
        builder: Builder,
        runner: Runner,
        callbacks: Sequence[MeasureCallback] = (),
        verbose: int = 1,
        max_continuous_error: int | None = None,
    ) -> None:
        self.builder = builder
        self.runner = runner
        self.callbacks = tuple(callbacks)
        self.max_continuous_error = max_continuous_error or self.DEFAULT_MAX_CONTINUOUS_ERROR
        self.display: Display = make_display(verbose)
        self.display.devices(self.usage)
        self._pipeline = Pipeline(builder, runner)
        self._batches: list[Batch] = []
        self._shown: Batch | None = None
        self._numbers = 0
        self.reset()

    def reset(self) -> None:
        """Forget counts and best programs."""
        self.count = 0
        self.errors_in_a_row = 0
        self.best: dict[TaskKey, Best] = {}
        self._leaders: dict[TaskKey, list[tuple[float, int, MeasureInput]]] = {}

    def best_of(self, task: SearchTask) -> Best | None:
        """The best program of a task so far."""
        return self.best.get(key_of(task))

    def measure(self, task: SearchTask, policy: Any, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """Build and run all inputs.  Raises as `finish` does."""
        return self.finish(self.start(task, policy, inputs))

    def start(self, task: SearchTask, policy: Any, inputs: Sequence[MeasureInput]) -> Batch:
        """Begin with a batch of candidates and do not wait for it; on a GPU they are built and run meanwhile.

        Raises the backend's error when the target cannot be had here.
        """
        batch = Batch(task, policy, tuple(inputs), self._numbers, {})
        self._numbers += len(inputs)
        self._batches.append(batch)
        self.display.phase("build and run", len(inputs))
        with self.closing_on_error():
            self._pipeline.start(list(enumerate(inputs, batch.first)))
        return batch

    @contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """Whatever goes wrong inside, Ctrl-C too, stops the workers; callbacks hear of what was measured by then."""
        try:
            yield
        except BaseException:
            try:
                self.close()
            except Exception as error:
                logger.warning("while stopping: %s", error)
            raise

    def finish(self, batch: Batch) -> list[MeasureResult]:
        """Wait for a batch and give its results in order; callbacks hear of those of later batches, too.

        Raises MeasureError when measurement as a whole cannot go on, and what callbacks raise.  The workers are
        stopped then, and on Ctrl-C.
        """
        require(batch in self._batches, MeasureError, "batch", "it was given back or dropped before", first=batch.first)
        self.display.phase("build and run", len(batch.inputs) - len(batch.results))
        with self.closing_on_error(), self._showing(batch):
            while not batch.complete:
                self._arrived(*self._pipeline.take())
        self._batches.remove(batch)
        self._tell_usage()
        return [batch.results[batch.first + k] for k in range(len(batch.inputs))]

    @contextmanager
    def _showing(self, batch: Batch) -> Iterator[None]:
        """The display hears of a batch while it is waited for, of its results by then at once."""
        self._shown = batch
        try:
            for number, result in batch.results.items():
                self._show(batch, number, result)
            yield
        finally:
            self._shown = None

    def usage(self) -> list[DeviceUse]:
        """What each device did so far; empty for a runner that does not say (`ReportsUse`)."""
        return self.runner.usage() if isinstance(self.runner, ReportsUse) else []

    def _tell_usage(self) -> None:
        """Callbacks that keep it (`KeepsUsage`) hear what the devices did."""
        uses = self.usage()
        for callback in self.callbacks if uses else ():
            if isinstance(callback, KeepsUsage):
                callback.usage(uses)

    def close(self) -> None:
        """Stop the workers and forget what was not measured yet; callbacks hear of all that was."""
        left = self._pipeline.close()
        try:
            for number, result in left:
                self._arrived(number, result)
        finally:
            self._batches.clear()

    def confirm(self, task: SearchTask) -> Best | None:
        """The best program of a task after its best few were timed once more, in turns; None when nothing ran.

        One figure each may have been lucky; in turns all meet the same machine.  Records and callbacks hear nothing of
        this.  A runner that cannot compare (`PairedRunner`) leaves things as they are.
        """
        known, leaders = self.best_of(task), self._leaders.get(key_of(task), [])
        runner = self.runner
        if known is None or not isinstance(runner, PairedRunner) or len(leaders) < 2:
            return known
        inputs = [inp for _, _, inp in leaders]
        with self.closing_on_error():
            times = runner.compare(inputs, [b.result() for b in [self.builder.submit(inp) for inp in inputs]])
        costs = [float(np.median(t)) if len(t) else float("inf") for t in times]
        winner = int(np.argmin(costs))
        if costs[winner] < float("inf"):
            known = self.best[key_of(task)] = Best(costs[winner], inputs[winner].state, leaders[winner][1])
        return known

    def _arrived(self, number: int, result: MeasureResult) -> None:
        batch = next(b for b in self._batches if b.first <= number < b.first + len(b.inputs))
        batch.results[number] = result
        self._note(batch.task, batch.policy, batch.inputs[number - batch.first], result)
        if self._shown in (None, batch):
            self._show(batch, number, result)

    def _show(self, batch: Batch, number: int, result: MeasureResult) -> None:
        known = self.best_of(batch.task)
        best = None if known is None else known.cost
        self.display.result(batch.task, batch.inputs[number - batch.first], result, best)

    def _note(self, task: SearchTask, policy: Any, inp: MeasureInput, result: MeasureResult) -> None:
        for callback in self.callbacks:
            callback.callback(policy, [inp], [result])
        self.count += 1
        known = self.best_of(task)
        if result.ok:
            leaders = self._leaders.setdefault(key_of(task), [])
            bisect.insort(leaders, (result.cost, self.count, inp), key=lambda entry: entry[:2])
            del leaders[FINALISTS:]
        if result.ok and (known is None or result.cost < known.cost):
            self.best[key_of(task)] = Best(result.cost, inp.state, self.count)
        self.errors_in_a_row = 0 if result.ok else self.errors_in_a_row + 1
        if self.errors_in_a_row == self.max_continuous_error:
            logger.warning("%d candidates in a row failed; the last one: %s", self.errors_in_a_row, result.error_msg)
