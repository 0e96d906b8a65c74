"""Measuring on this machine: in this process, or in several at a time.

In this process (the default) a trial costs nothing but itself, and nothing limits its time.  With `n_parallel` workers
it may hang or crash: the limits are enforced from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ansor.measure.local import LocalBuilder as ProgramBuilder
from ansor.measure.local import LocalRunner as ProgramRunner
from te_lite.errors import require

from ..cluster.runner import RPCRunner
from ..core.device.backend import backend as backend_of
from ..core.target.hardware import host_cores
from ..core.tasks.measure_values import MeasureErrorNo, MeasureResult
from ..core.values.checks import require_positive
from ..measure.channel import result_from_json, result_to_json
from ..measure.forks import Forks
from ..measure.workers import Reply, WorkerPool
from .compiled import CompiledMeasurer, CompiledPrograms
from .errors import TemplateError
from .fleet import FleetMeasure
from .measure import MeasureInput, Measurer, OpensMeasurer, RunOptions, TemplateBackend, failed
from .task import Task
from .trial import trial

STAGE_ERRORS = (
    (MeasureErrorNo.BUILD_TIMEOUT, MeasureErrorNo.COMPILE_HOST),
    (MeasureErrorNo.RUN_TIMEOUT, MeasureErrorNo.RUNTIME_DEVICE),
)
"""A worker that is late, and one that dies, while it builds and while it runs."""


@dataclass(frozen=True)
class LocalBuilder:
    """`timeout` seconds for a build; `n_parallel` worker processes, or None for none.

    `backend` replaces the one of the task's target.  Raises TemplateError for numbers that are not positive.
    """

    timeout: float = 10
    n_parallel: int | None = None
    backend: TemplateBackend | None = None

    def __post_init__(self) -> None:
        require_positive(TemplateError, "LocalBuilder", timeout=self.timeout, n_parallel=self.n_parallel or 1)
        ok = self.n_parallel is None or isinstance(self.n_parallel, int)
        require(ok, TemplateError, "LocalBuilder", "n_parallel must be an integer or None", got=self.n_parallel)

    def with_runner(self, runner: LocalRunner | RPCRunner) -> OpensMeasurer:
        """The measurements of this builder and a runner.  Raises TemplateError for another kind of runner."""
        if isinstance(runner, RPCRunner):
            return FleetMeasure(self.timeout, self.n_parallel or host_cores(), self.backend, runner)
        ok = isinstance(runner, LocalRunner)
        law = "the runner must be 'local', a LocalRunner or an RPCRunner"
        require(ok, TemplateError, "measure_option", law, got=runner)
        return LocalMeasure(self, runner)


class LocalRunner(ProgramRunner):
    """A figure is the mean of at least `number` calls that last `min_repeat_ms`; `repeat` figures, `timeout` seconds.

    With `check_correctness` the output of every program is compared with a reference.
    Raises TemplateError for numbers that are not positive.
    """

    def __init__(
        self,
        timeout: float = 10,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: int = 0,
        cooldown_interval: float = 0.0,
        check_correctness: bool = True,
    ) -> None:
        require_positive(TemplateError, "LocalRunner", timeout=timeout, number=number, repeat=repeat)
        ok = min_repeat_ms >= 0 and cooldown_interval >= 0
        require(ok, TemplateError, "LocalRunner", "min_repeat_ms and cooldown_interval must be at least 0")
        super().__init__(timeout, number, repeat, min_repeat_ms, cooldown_interval)
        self.check_correctness = check_correctness


@dataclass(frozen=True)
class LocalMeasure:
    """A builder and a runner: what `measure_option` makes."""

    builder: LocalBuilder
    runner: LocalRunner

    def open(self, task: Task) -> Measurer:
        """A measurer of a task.  Raises BackendError when its target cannot be had here."""
        backend = self.builder.backend
        if backend is None:
            device = backend_of(task.target.kind.name)
            backend = device.templates
            if backend is None:
                device.check(str(task.target))
                return self._compiled(task)
        if self.builder.n_parallel is None:
            return InProcess(task, backend, self.runner.options)
        limits = (self.builder.timeout, self.runner.timeout)
        return InWorkers(task, backend, self.runner.options, self.builder.n_parallel, limits)

    def _compiled(self, task: Task) -> Measurer:
        n_parallel = self.builder.n_parallel or host_cores()
        builder = ProgramBuilder(self.builder.timeout, n_parallel)
        return CompiledMeasurer(task, CompiledPrograms(), builder, self.runner, n_parallel)


class InProcess:
    """Trials one after the other in this process."""

    n_parallel = 1

    def __init__(self, task: Task, backend: TemplateBackend, options: RunOptions) -> None:
        self.task, self.backend, self.options = task, backend, options

    def measure(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """The results, in the order of the inputs."""
        return [trial(self.backend, self.task, inp.config, self.options, lambda: None) for inp in inputs]

    def close(self) -> None:
        """There is nothing to stop."""


class InWorkers:
    """`n_parallel` trials at a time, each in a fork of this process; `limits` are seconds for building and running."""

    def __init__(
        self, task: Task, backend: TemplateBackend, options: RunOptions, n_parallel: int, limits: tuple[float, float]
    ) -> None:
        self.n_parallel = n_parallel
        self._limits = limits
        self._task, self._backend, self._options = task, backend, options
        self._pool: WorkerPool | None = None

    def _trial(self, job: dict[str, Any], built: Callable[[], None]) -> dict[str, Any]:
        """One trial, in the worker."""
        config = self._task.config_space.get(int(job["index"]))
        return {"result": result_to_json(trial(self._backend, self._task, config, self._options, built))}

    def measure(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """The results, in the order of the inputs.  Raises MeasureError when no process can be forked."""
        indices = [inp.config.index for inp in inputs]
        require(None not in indices, TemplateError, "measure", "a configuration of the task's space is needed")
        if self._pool is None:
            self._pool = WorkerPool(self.n_parallel, Forks(self._trial))
        try:
            self._pool.start()
            trials = [self._pool.submit({"index": k}, self._limits, _result) for k in indices]
            return [t.result() for t in trials]
        except BaseException:
            self.close()
            raise

    def pids(self) -> list[int]:
        """The numbers of the worker processes."""
        return [] if self._pool is None else self._pool.pids()

    def close(self) -> None:
        """End the workers."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


def _result(reply: Reply) -> MeasureResult:
    """What became of a trial: its result, or a worker that was late or died while it built or ran."""
    if not reply.failure:
        return result_from_json(reply.data["result"])
    late, death = STAGE_ERRORS[reply.stage]
    return failed(late if reply.failure == "timeout" else death, reply.message, reply.seconds)


@runtime_checkable
class TakesRunner(Protocol):
    """A builder that knows how to measure together with a runner."""

    def with_runner(self, runner: Any) -> OpensMeasurer:
        """The measurements of this builder and a runner.  Raises TemplateError for a runner that does not fit."""


def measure_option(builder: Any = "local", runner: Any = "local") -> OpensMeasurer:
    """What `Tuner.tune` measures with; "local" is a LocalBuilder or LocalRunner with the default options.

    Raises TemplateError for a builder that has no `with_runner`, or a runner that does not go with the builder.
    """
    builder = LocalBuilder() if builder == "local" else builder
    law = "the builder must be 'local', a LocalBuilder, or an object with a method with_runner"
    require(isinstance(builder, TakesRunner), TemplateError, "measure_option", law, got=builder)
    made: OpensMeasurer = builder.with_runner(LocalRunner() if runner == "local" else runner)
    return made
