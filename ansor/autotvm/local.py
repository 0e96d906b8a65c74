"""Measuring on this machine: in this process, or in several at a time.

In this process (the default) a trial costs nothing but itself, and nothing limits its time.  With `n_parallel` workers
it may hang or crash: the limits are enforced from outside.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ansor.measure.local import LocalBuilder as ProgramBuilder
from ansor.measure.local import LocalRunner as ProgramRunner
from te_lite.errors import require

from ..cluster.runner import RPCRunner
from ..core.backends import backend as backend_of
from ..core.hardware import host_cores
from ..core.measure_values import MeasureResult
from .compiled import CompiledMeasurer, CompiledPrograms
from .errors import TemplateError
from .fleet import FleetMeasure
from .forked import ForkedPool
from .measure import MeasureInput, Measurer, OpensMeasurer, RunOptions, TemplateBackend
from .task import Task
from .trial import trial


def _check_positive(owner: str, **values: Any) -> None:
    for name, value in values.items():
        ok = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
        require(ok, TemplateError, owner, f"{name} must be a positive number", got=value)


@dataclass(frozen=True)
class LocalBuilder:
    """`timeout` seconds for a build; `n_parallel` worker processes, or None for none.

    `backend` replaces the one of the task's target.  Raises TemplateError for numbers that are not positive.
    """

    timeout: float = 10
    n_parallel: int | None = None
    backend: TemplateBackend | None = None

    def __post_init__(self) -> None:
        _check_positive("LocalBuilder", timeout=self.timeout, n_parallel=self.n_parallel or 1)
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


@dataclass(frozen=True)
class LocalRunner:
    """A figure is the mean of at least `number` calls that last `min_repeat_ms`; `repeat` figures, `timeout` seconds.

    With `check_correctness` the output of every program is compared with a reference.
    Raises TemplateError for numbers that are not positive.
    """

    timeout: float = 10
    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    cooldown_interval: float = 0.0
    check_correctness: bool = True

    def __post_init__(self) -> None:
        _check_positive("LocalRunner", timeout=self.timeout, number=self.number, repeat=self.repeat)
        ok = self.min_repeat_ms >= 0 and self.cooldown_interval >= 0
        require(ok, TemplateError, "LocalRunner", "min_repeat_ms and cooldown_interval must be at least 0")

    @property
    def options(self) -> RunOptions:
        """What the backend is told."""
        return RunOptions(self.number, self.repeat, self.min_repeat_ms, self.check_correctness)


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
        n_parallel, runner = self.builder.n_parallel or host_cores(), self.runner
        programs = ProgramRunner(
            runner.timeout, runner.number, runner.repeat, runner.min_repeat_ms, runner.cooldown_interval
        )
        builder = ProgramBuilder(self.builder.timeout, n_parallel)
        return CompiledMeasurer(task, CompiledPrograms(), builder, programs, n_parallel)


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
    """`n_parallel` trials at a time, each in a worker process, with limits of seconds for building and for running."""

    def __init__(
        self, task: Task, backend: TemplateBackend, options: RunOptions, n_parallel: int, limits: tuple[float, float]
    ) -> None:
        self.n_parallel = n_parallel
        space = task.config_space
        self._pool = ForkedPool(
            n_parallel, lambda index, built: trial(backend, task, space.get(index), options, built), limits
        )

    def measure(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """The results, in the order of the inputs."""
        indices = [inp.config.index for inp in inputs]
        known = [k for k in indices if k is not None]
        require(len(known) == len(indices), TemplateError, "measure", "a configuration of the task's space is needed")
        return self._pool.map(known)

    def close(self) -> None:
        """End the workers."""
        self._pool.close()


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
