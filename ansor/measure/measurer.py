"""Drive builder and runner over candidates, keep count, and tell everybody of each result as soon as it is there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansor.progress import Display, make_display
from ansor.registry import backend
from te_lite.state import State

from .api import Builder, BuildResult, MeasureCallback, MeasureInput, MeasureResult, Runner

if TYPE_CHECKING:
    from ansor.task import SearchTask

BATCH_PER_WORKER = 4
logger = logging.getLogger("ansor")


@dataclass
class Best:
    """The best program of a workload so far; `trial` is the number of the measurement that found it."""

    cost: float
    state: State
    trial: int


class ProgramMeasurer:
    """Measures candidates in batches.

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
        self.reset()

    def reset(self) -> None:
        """Forget counts and best programs."""
        self.count = 0
        self.errors_in_a_row = 0
        self.best: dict[str, Best] = {}

    def measure(self, task: SearchTask, policy: Any, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """Build and run all inputs.

        Raises MeasureError when measurement as a whole cannot go on, and what callbacks raise.  The workers are
        stopped then, and on Ctrl-C.
        """
        results: list[MeasureResult] = []
        try:
            self._measure(task, policy, inputs, results)
        except BaseException:
            self.builder.close()
            self.runner.close()
            raise
        return results

    def _measure(
        self, task: SearchTask, policy: Any, inputs: Sequence[MeasureInput], results: list[MeasureResult]
    ) -> None:
        batch = BATCH_PER_WORKER * self.builder.n_parallel
        one_after_the_other = backend(task.target.kind.name).shares_host
        for start in range(0, len(inputs), batch):
            part = inputs[start : start + batch]
            self.display.phase("build", len(part))
            builds: Iterator[BuildResult] = self.builder.build(part)
            if one_after_the_other:
                builds = iter(list(builds))
            self.display.phase("run", len(part))
            runs = self.runner.run(zip(part, builds, strict=True))
            for inp, result in zip(part, runs, strict=True):
                results.append(result)
                self._note(task, policy, inp, result)

    def _note(self, task: SearchTask, policy: Any, inp: MeasureInput, result: MeasureResult) -> None:
        for callback in self.callbacks:
            callback.callback(policy, [inp], [result])
        self.count += 1
        known = self.best.get(task.workload_key)
        if result.ok and (known is None or result.cost < known.cost):
            known = self.best[task.workload_key] = Best(result.cost, inp.state, self.count)
        self.display.result(task, inp, result, None if known is None else known.cost)
        self.errors_in_a_row = 0 if result.ok else self.errors_in_a_row + 1
        if self.errors_in_a_row == self.max_continuous_error:
            logger.warning("%d candidates in a row failed; the last one: %s", self.errors_in_a_row, result.error_msg)
