"""Templates whose programs are measured by a builder and a runner of `ansor`: compiled ones, and all on a fleet.

What a template returns, a schedule and its tensors, is a program of a search task; it is built, checked against the
reference and timed in worker processes like any other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import ansor.core.tasks.measure_values as values
import ansor.core.tasks.protocols as protocols
from te_lite import ComputeDAG
from te_lite.errors import TeError

from ..core.tasks.task import SearchTask
from .config import ConfigEntity
from .measure import FAILED_COST, MeasureInput, MeasureResult, failed
from .task import Task

Begun = tuple[values.MeasureInput, Future[values.BuildResult]]
Programs = Callable[[Task, ConfigEntity], values.MeasureInput]


class CompiledPrograms:
    """A configuration as a program of a search task.  Raises TeError when the template, or its schedule, refuses it."""

    def __init__(self) -> None:
        self._search_task: SearchTask | None = None

    def __call__(self, task: Task, config: ConfigEntity) -> values.MeasureInput:
        schedule, tensors = task.instantiate(config)
        if self._search_task is None:
            self._search_task = SearchTask(compute_dag=ComputeDAG(tensors), target=task.target)
        return values.MeasureInput(self._search_task, steps=schedule.state.steps)


class CompiledMeasurer:
    """Builds several configurations at a time; they are run one after the other here, side by side on a fleet.

    `programs` makes a program of a configuration.
    """

    def __init__(
        self, task: Task, programs: Programs, builder: protocols.Builder, runner: protocols.Runner, n_parallel: int
    ) -> None:  # fmt: skip
        self.task = task
        self.n_parallel = n_parallel
        self._programs = programs
        self._builder = builder
        self._runner = runner
        self._threads: ThreadPoolExecutor | None = None

    def measure(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """The results, in the order of the inputs."""
        begun = [self._begin(inp) for inp in inputs]
        if not protocols.is_elsewhere(self._runner):
            return [self._finish(b) for b in begun]
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.n_parallel, thread_name_prefix="ansor-template")
        return list(self._threads.map(self._finish, begun))

    def _begin(self, inp: MeasureInput) -> Begun | MeasureResult:
        start = time.monotonic()
        try:
            program = self._programs(self.task, inp.config)
        except TeError as error:
            return failed(values.MeasureErrorNo.INSTANTIATION_ERROR, str(error), time.monotonic() - start)
        return program, self._builder.submit(program)

    def _finish(self, begun: Begun | MeasureResult) -> MeasureResult:
        if isinstance(begun, MeasureResult):
            return begun
        program, build = begun
        res = self._runner.run(program, build.result())
        return res if res.ok else replace(res, costs=(FAILED_COST,), device="")

    def close(self) -> None:
        """Stop the workers."""
        self._builder.close()
        self._runner.close()
        if self._threads is not None:
            self._threads.shutdown(wait=True, cancel_futures=True)
