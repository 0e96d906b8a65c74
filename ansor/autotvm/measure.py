"""How configurations are measured: the values, and the protocol that a device follows.

A device supplies a `TemplateBackend`: it turns a configuration into a program or says why not, and runs programs.  The
backend object of a target kind (`ansor.core.registry`) has it as its attribute `templates`; other backends compile what
`Task.instantiate` returns (compiled.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..core.measure_values import MeasureErrorNo, MeasureResult
from .config import ConfigEntity
from .task import Task

FAILED_COST = 1e9


@dataclass(frozen=True)
class MeasureInput:
    """A configuration of a task, to be measured."""

    target: str
    task: Task
    config: ConfigEntity

    @property
    def workload(self) -> tuple[Any, ...]:
        return self.task.workload


@dataclass(frozen=True)
class Refusal:
    """A program that could not be built or run: an error number and one sentence."""

    error_no: MeasureErrorNo
    reason: str


@dataclass(frozen=True)
class RunOptions:
    """How a program is timed: the mean of `number` calls, `repeat` figures; checked against a reference or not.

    A simulator, which gives the same figure every time, may do less.
    """

    number: int = 4
    repeat: int = 3
    min_repeat_ms: int = 0
    check_correctness: bool = True


class TemplateBackend(Protocol):
    """What runs configurations.  An exception counts as a refusal, too: error 1 from `build`, error 4 from `run`."""

    def build(self, task: Task, config: ConfigEntity) -> Any | Refusal:
        """The program of a configuration, or why there is none; must be quick to refuse."""

    def run(self, task: Task, program: Any, options: RunOptions) -> Sequence[float] | Refusal:
        """Seconds per call, `options.repeat` figures or fewer; or what went wrong."""


class Measurer(Protocol):
    """Measures configurations of one task, `n_parallel` at a time."""

    n_parallel: int

    def measure(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """The results, in the order of the inputs; a candidate that fails is a result, never an exception."""

    def close(self) -> None:
        """Stop what was started."""


class OpensMeasurer(Protocol):
    """What `Tuner.tune` takes as its measure option."""

    def open(self, task: Task) -> Measurer:
        """A measurer of a task.  Raises BackendError when the target cannot be had here."""


def failed(error_no: MeasureErrorNo, reason: str, seconds: float, timestamp: int) -> MeasureResult:
    """The result of a candidate that failed after `seconds`."""
    return MeasureResult((FAILED_COST,), int(error_no), reason, seconds, timestamp)


__all__ = [
    "FAILED_COST", "MeasureErrorNo", "MeasureInput", "MeasureResult", "Measurer", "OpensMeasurer", "Refusal",
    "RunOptions", "TemplateBackend", "failed",
]  # fmt: skip
