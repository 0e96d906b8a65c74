"""How far one task is: what the scheduler decides from, and all it keeps of a task's measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..core.tasks.measure_values import MeasureResult

LEAST_COST = 1e-12


@dataclass(frozen=True)
class TaskProgress:
    """A task after some rounds of measurements.

    `cost` is the least latency in seconds, infinite as long as no program worked; trial number `best_trial` (from 1)
    found it.  `history` holds the least latency after each round.  `exhausted` says that the last round had nothing
    left to measure.
    """

    trials: int = 0
    cost: float = math.inf
    best_trial: int = 0
    history: tuple[float, ...] = ()
    exhausted: bool = False

    @property
    def rounds(self) -> int:
        return len(self.history)

    @property
    def valid(self) -> bool:
        """Whether a program of the task worked."""
        return math.isfinite(self.cost)

    def after_round(self, costs: Sequence[float]) -> TaskProgress:
        """The progress after one more round with these latencies (seconds, infinite for a failure)."""
        cost, best_trial = self.cost, self.best_trial
        for trial, measured in enumerate(costs, self.trials + 1):
            if measured < cost:
                cost, best_trial = measured, trial
        return TaskProgress(self.trials + len(costs), cost, best_trial, (*self.history, cost), not costs)

    def confirmed(self, cost: float) -> TaskProgress:
        """The progress when the best few programs were timed in turns, and the best of them takes `cost` seconds."""
        return replace(self, cost=cost)

    def dead(self, patience: int | None) -> bool:
        """Nothing is left to measure, or the last `patience` trials found nothing better (None: no such limit)."""
        return self.exhausted or (patience is not None and self.trials - self.best_trial >= patience)


def cost_of(result: MeasureResult) -> float:
    """The latency of a result in seconds, infinite after a failure; at least 1e-12, less is no time."""
    return max(result.cost, LEAST_COST) if result.ok else math.inf
