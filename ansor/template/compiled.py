"""Templates whose programs are compiled (targets `c` and `cuda`): measured by the builder and runner of `ansor`.

What a template returns, a schedule and its tensors, is a program of a search task; it is built, checked against the
reference and timed in worker processes like any other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
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

Begun = tuple[api.MeasureInput, Future[api.BuildResult]]


class CompiledMeasurer:
    """Builds several configurations at a time and runs them one after the other; outputs are always checked."""

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
        return [self._finish(begun) for begun in [self._begin(inp) for inp in inputs]]

    def _begin(self, inp: MeasureInput) -> Begun | MeasureResult:
        start = time.monotonic()
        try:
            program = self._program(inp)
        except TeError as error:
            spent = time.monotonic() - start
            return failed(api.MeasureErrorNo.INSTANTIATION_ERROR, str(error), spent, int(time.time()))
        return program, self._builder.submit(program)

    def _finish(self, begun: Begun | MeasureResult) -> MeasureResult:
        if isinstance(begun, MeasureResult):
            return begun
        program, build = begun
        res = self._runner.run(program, build.result())
        error_no = api.MeasureErrorNo(res.error_no)
        return res if res.ok else failed(error_no, res.error_msg, res.all_cost, res.timestamp)

    def close(self) -> None:
        """Stop the workers."""
        self._builder.close()
        self._runner.close()
