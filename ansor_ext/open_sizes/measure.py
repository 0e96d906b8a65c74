"""Measuring programs for all sizes at points, in the worker processes of a runner; callbacks hear of every result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ansor.core.tasks.measure_values import BuildResult, MeasureInput
from ansor.core.tasks.protocols import MeasureCallback, Runner
from ansor.core.tasks.task import SearchTask
from te_lite.later import when_called
from te_lite.lowering.lower import lower
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.replay import replay

from .at_points import built
from .measured import Steps, Values, open_input


class AtPoints(Protocol):
    """A program for all sizes that was compiled."""

    def at(self, values: Values, folder: Path) -> BuildResult:
        """What a runner takes for a point, inside of `folder`."""


BUILT: Mapping[str, Callable[..., AtPoints | None]] = {
    "c": built,
    "cuda": when_called("ansor_ext.open_sizes.cuda_at_points", "built"),
}
"""What compiles a lowered program for some points and a target, of an invariant task or not, by the kind of the target;
None where it cannot."""

Seconds = dict[Steps, dict[Values, float]]
"""What programs took at points, infinite where they failed."""


@dataclass
class Measuring:
    """Measures programs for all sizes at the points of `tasks`; `seconds` has all that is known, and grows.

    `left` trials are left, until `until` on the monotonic clock; `callbacks` hear of every result, and built programs
    lie in `folder`, those of `invariant` tasks compiled as such.
    """

    dag: ComputeDAG
    tasks: Mapping[Values, SearchTask]
    seconds: Seconds
    callbacks: Sequence[MeasureCallback]
    runner: Runner
    folder: Path
    left: int
    until: float
    invariant: bool = False

    def measure(self, steps: Steps, points: Sequence[Values]) -> bool:
        """Measure a program at those points at which it was not, as far as trials last; one that fails is not tried at
        others.

        Gives whether that was done: not where trials or time are missing.
        """
        known = self.seconds.get(steps, {})
        missing = [values for values in points if values not in known]
        if not missing or not all(map(math.isfinite, known.values())):
            return True
        if not self.left or time.monotonic() > self.until:
            return False
        target = self.tasks[missing[0]].target
        func = lower(replay(self.dag, steps))
        program = BUILT[target.kind.name](func, list(self.tasks), target, self.invariant)
        if program is None:
            self.seconds.setdefault(steps, {})[missing[0]] = math.inf
            return True
        for values in (affordable := missing[: self.left]):
            if not math.isfinite(self._measured(program, steps, values)):
                return True
        return affordable == missing

    def _measured(self, built: AtPoints, steps: Steps, values: Values) -> float:
        """The seconds of a program at a point."""
        task = self.tasks[values]
        self.left -= 1
        result = self.runner.run(MeasureInput(task, steps=steps), built.at(values, self.folder))
        record = open_input(self.dag, task, values, steps)
        for callback in self.callbacks:
            callback.callback(None, [record], [result])
        seconds = result.cost if result.ok else math.inf
        self.seconds.setdefault(steps, {})[values] = seconds
        return seconds
