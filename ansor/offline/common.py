"""What runners that need no device share: a builder that builds nothing, and the identity of a program."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

from te_lite.schedule.loop_steps import Split
from te_lite.schedule.step import Step

from ..core.tasks.measure_values import FAILED_COST, BuildResult, MeasureInput, MeasureResult

ProgramKey = tuple[str, str, tuple[Step, ...]]


class NoBuilder:
    """Every candidate counts as built at once; neither a compiler nor a device is asked for."""

    n_parallel = 1

    def submit(self, inp: MeasureInput) -> Future[BuildResult]:
        """A build that is done."""
        done: Future[BuildResult] = Future()
        done.set_result(BuildResult("", (), 0, "", 0.0))
        return done

    def close(self) -> None:
        """There is nothing to stop."""


def failed_build(built: BuildResult) -> MeasureResult:
    """The result of a candidate whose build failed."""
    return MeasureResult((FAILED_COST,), built.error_no, built.error_msg, built.time_cost, 0)


def program_key(inp: MeasureInput) -> ProgramKey:
    """Workload key, target kind and steps; the extents that splits carry are advisory and left out."""
    return inp.task.workload_key, inp.task.target.results, tuple([without_extents(step) for step in inp.steps])


def without_extents(step: Step) -> Step:
    """A step without the extent that a split carries, which is advisory."""
    return replace(step, extent=0) if isinstance(step, Split) else step
