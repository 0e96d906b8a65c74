"""How configurations are measured: the values, and what a measurer is.

A device supplies a `TemplateBackend`: it turns a configuration into a program or says why not, and runs programs.  The
backend object of a target kind has it as its attribute `templates` (`ansor.core.device.backend`); other backends
compile what `Task.instantiate` returns (compiled.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..core.device.backend import TemplateBackend
from ..core.tasks import measure_values as values
from ..core.tasks.measure_values import MeasureErrorNo, MeasureResult, Refusal, RunOptions
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


class Measurer(Protocol):
    """Measures configurations of one task, `n_parallel` at a time."""

    n_parallel: int

    def measure(self, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """The results, in the order of the inputs; a candidate that fails is a result, never an exception."""

    def close(self) -> None:
        """Stop what was started."""


@runtime_checkable
class OpensMeasurer(Protocol):
    """What `Tuner.tune` takes as its measure option."""

    def open(self, task: Task) -> Measurer:
        """A measurer of a task.  Raises BackendError when the target cannot be had here."""


def failed(error_no: int, message: str, seconds: float) -> MeasureResult:
    """The result of a configuration that failed after `seconds`, now, with the cost that autotvm's records have."""
    return values.failed(error_no, message, seconds, cost=FAILED_COST)


__all__ = [
    "FAILED_COST", "MeasureErrorNo", "MeasureInput", "MeasureResult", "Measurer", "OpensMeasurer", "Refusal",
    "RunOptions", "TemplateBackend", "failed",
]  # fmt: skip
