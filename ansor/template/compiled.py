"""Templates whose programs are compiled (targets `c` and `cuda`): measured by the builder and runner of `ansor`.

What a template returns, a schedule and its tensors, is a program of a search task; it is built, checked against the
reference and timed in worker processes like any other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import ansor.measure.api as api
from ansor.hardware import host_cores
from ansor.measure.local import LocalBuilder as ProgramBuilder
from ansor.measure.local import LocalRunner as ProgramRunner
from ansor.task import SearchTask
from te_lite import ComputeDAG
from te_lite.errors import TeError

from .measure import MeasureInput, MeasureResult, failed
from .task import Task

if TYPE_CHECKING:
    from .local import LocalBuilder, LocalRunner


class CompiledMeasurer:
    """Builds several configurations at a time and runs them one after the other."""

    def __init__(self, task: Task, builder: LocalBuilder, runner: LocalRunner) -> None:
        self.task = task
        self.n_parallel = builder.n_parallel or host_cores()
        self._builder = ProgramBuilder(builder.timeout, self.n_parallel)
        self._runner = ProgramRunner(
            runner.timeout, runner.number, runner.repeat, runner.min_repeat_ms, runner.cooldown_interval
        )
        self._search_task: SearchTask | None = None

    def _program(self, inp: MeasureInput) -> api.MeasureInput:
        """The configuration as a program.  Raises TeError when the template, or its schedule, refuses it."""
        schedule, tensors = self.task.instantiate(inp.config)
        if self._search_task is None:
            self._search_task = SearchTask(compute_dag=ComputeDAG(tensors), target=self.task.target)
        return api.MeasureInput(self._search_task, steps=schedule.state.steps)

    def measure(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """The results, in the order of the inputs."""
        started: list[tuple[api.MeasureInput, object] | MeasureResult] = []
        for inp in inputs:
            begin = time.monotonic()
            try:
                program = self._program(inp)
            except TeError as error:
                spent = time.monotonic() - begin
                no = api.MeasureErrorNo.INSTANTIATION_ERROR
                started.append(failed(no, str(error), spent, int(time.time())))
                continue
            started.append((program, self._builder.submit(program)))
        built = [item if isinstance(item, MeasureResult) else (item[0], item[1].result()) for item in started]  # type: ignore[attr-defined]
        return [item if isinstance(item, MeasureResult) else self._runner.run(*item) for item in built]

    def close(self) -> None:
        """Stop the workers."""
        self._builder.close()
        self._runner.close()
