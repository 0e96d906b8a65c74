"""The smallest policy: what a search policy must have, and no more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from te_lite.schedule.state import State

from ..core.errors import TaskError
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.checks import require_whole
from ..measure.measurer import ProgramMeasurer
from .search_loop import search_loop


class EmptyPolicy:
    """The smallest policy: it knows one program, the unscheduled one."""

    def __init__(self, task: SearchTask, init_search_callbacks: Sequence[Any] | None = None) -> None:
        self.task = task
        self._asked = False

    def ask(self, n: int) -> list[State]:
        require_whole(TaskError, "EmptyPolicy.ask", n=n)
        states = [] if self._asked else [self.task.compute_dag.init_state][:n]
        self._asked |= n > 0
        return states

    def tell(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is learnt."""

    def search(
        self, num_measure_trials: int, early_stopping: int | str | None, num_measures_per_round: int,
        measurer: ProgramMeasurer, time_limit: float | None = None,
    ) -> State | None:  # fmt: skip
        """Measure, and give the best state."""
        return search_loop(
            self, self.task, num_measure_trials, early_stopping, num_measures_per_round, measurer, 0, time_limit
        )
