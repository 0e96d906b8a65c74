"""One trial: build a configuration, run the program, and say in which of the two stages it failed, if it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from ansor.measure.jobs import JobFailure, refuse_odd_times, stage

from ..core.tasks.measure_values import MeasureErrorNo, MeasureResult
from .config import ConfigEntity
from .errors import InstantiationError
from .measure import Refusal, RunOptions, TemplateBackend, failed
from .task import Task


def trial(
    backend: TemplateBackend, task: Task, config: ConfigEntity, options: RunOptions, built: Callable[[], None]
) -> MeasureResult:
    """The result; `built` is called between the two stages."""
    start = time.monotonic()
    try:
        program = _accepted(MeasureErrorNo.INSTANTIATION_ERROR, lambda: backend.build(task, config))
        built()
        costs = _accepted(MeasureErrorNo.RUNTIME_DEVICE, lambda: _checked(backend.run(task, program, options)))
    except JobFailure as failure:
        return failed(failure.error_no, failure.message, time.monotonic() - start)
    return MeasureResult(costs, 0, "", time.monotonic() - start, int(time.time()))


def _accepted(error_no: MeasureErrorNo, work: Callable[[], Any]) -> Any:
    """What `work` gives.  Raises JobFailure for a refusal, and for whatever else goes wrong."""
    with stage(error_no):
        try:
            value = work()
        except InstantiationError as error:
            raise JobFailure(error_no, str(error)) from error
        if isinstance(value, Refusal):
            raise JobFailure(value.error_no, value.reason)
        return value


def _checked(costs: Sequence[float] | Refusal) -> tuple[float, ...] | Refusal:
    if isinstance(costs, Refusal):
        return costs
    seconds = tuple([float(c) for c in costs])
    refuse_odd_times(seconds)
    return seconds
