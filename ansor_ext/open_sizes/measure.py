"""Measuring programs for all sizes at points, in the worker processes of a runner; callbacks hear of every result."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ansor.core.tasks.measure_values import MeasureInput
from ansor.core.tasks.protocols import MeasureCallback, Runner
from ansor.core.tasks.task import SearchTask
from codegen_c.errors import CompileError, EmitError
from te_lite.lowering.lower import lower
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.replay import replay

from .at_points import BuiltAtPoints
from .measured import Steps, Values, open_input

Seconds = dict[Steps, dict[Values, float]]
"""What programs took at points, infinite where they failed."""


@dataclass
class Measuring:
    """Measures programs for all sizes at the points of `tasks`; `seconds` has all that is known, and grows.

    `left` trials are left, until `until` on the monotonic clock; `callbacks` hear of every result, and built programs
    lie in `folder`.
    """

    dag: ComputeDAG
    tasks: Mapping[Values, SearchTask]
    seconds: Seconds
    callbacks: Sequence[MeasureCallback]
    runner: Runner
    folder: Path
    left: int
    until: float

    def measure(self, steps: Steps, points: Sequence[Values]) -> bool:
        """Measure a program at those points at which it was not; one that fails is not tried at others.

        Gives whether that was done: not where trials or time are missing.
        """
        known = self.seconds.get(steps, {})
        missing = [values for values in points if values not in known]
        if not missing or not all(map(math.isfinite, known.values())):
            return True
        if len(missing) > self.left or time.monotonic() > self.until:
            return False
        try:
            built = BuiltAtPoints(lower(replay(self.dag, steps)), list(self.tasks), self.tasks[missing[0]].target)
        except (CompileError, EmitError):
            self.seconds.setdefault(steps, {})[missing[0]] = math.inf
            return True
        for values in missing:
            if not math.isfinite(self._measured(built, steps, values)):
                break
        return True

    def _measured(self, built: BuiltAtPoints, steps: Steps, values: Values) -> float:
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
