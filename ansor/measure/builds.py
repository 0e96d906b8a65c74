"""Builds of programs whose turn comes later; what nobody asks for goes with the other files of the builder."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future

from te_lite.schedule.step import Step

from ..core.tasks.measure_values import BuildResult, MeasureInput
from ..core.tasks.protocols import Builder
from .answers import built_by, submitted

Key = tuple[str, str, tuple[Step, ...]]


class Builds:
    """Programs that are queued, each once, and waited for later."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._begun: dict[Key, Future[BuildResult]] = {}

    def begin(self, inputs: Iterable[MeasureInput]) -> None:
        """Queue programs that are not, and do not wait for them.  Raises what `submitted` raises."""
        for inp in inputs:
            if _key(inp) not in self._begun:
                self._begun[_key(inp)] = submitted(self.builder, inp)

    def results(self, inputs: Iterable[MeasureInput]) -> list[BuildResult]:
        """What became of programs, of those that were not queued before, too.  Raises what `built_by` raises."""
        builds = [self._taken(inp) for inp in inputs]
        return [built_by(self.builder, build) for build in builds]

    def _taken(self, inp: MeasureInput) -> Future[BuildResult]:
        build = self._begun.pop(_key(inp), None)
        return submitted(self.builder, inp) if build is None else build


def _key(inp: MeasureInput) -> Key:
    return inp.task.workload_key, inp.task.target.key, inp.steps
