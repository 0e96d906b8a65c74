"""When nothing more is to be had: the last rounds brought nothing better, and the model expects nothing better either.

A model's score of a proposal means something only relative to its score of the best measured program.  If no proposal
of a round scores higher, and the last rounds found no faster program, further trials are mostly wasted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.tasks.measure_values import MeasureResult
from ..core.tasks.protocols import KeepsRemarks
from ..core.tasks.task import SearchTask
from ..core.values.checks import counted
from ..measure.measurer import ProgramMeasurer
from .scoring import Scores
from .search_failure import reporting

AUTO = "auto"
"""As `early_stopping`: a task's search ends when its policy says that nothing more is to be had."""
GAIN = 0.01
"""A program that is better by less is none that was hoped for."""
BARREN_ROUNDS, BARREN_TRIALS = 2, 32


@runtime_checkable
class SaysWhenDone(Protocol):
    """A policy that says whether more is to be had."""

    def nothing_more(self) -> str:
        """Why nothing more is to be had, in a sentence; empty as long as there may be."""


@dataclass
class EarlyStopping:
    """What the rounds of a task brought, and what is expected of the last one that was asked for.

    `expected` is the greatest score among its proposals, divided by that of the best program that is known; infinite
    where no model can say.
    """

    best: float = math.inf
    barren_rounds: int = 0
    barren_trials: int = 0
    expected: float = math.inf

    def asked(self, proposed: Scores, known: Scores, ratios: bool) -> None:
        """A round was asked for, by the scores of its programs and of the best one that is known, if there is one.

        Without `ratios` the scores have an order and nothing else: whatever is above the best program is hoped for.
        """
        if not len(proposed) or not len(known):
            self.expected = math.inf
            return
        most, best = float(proposed.max()), float(known.max())
        self.expected = most / max(best, 1e-30) if ratios else math.inf if most > best else 1.0

    def told(self, results: Sequence[MeasureResult]) -> None:
        """A round has ended."""
        least = min([res.cost for res in results if res.ok], default=math.inf)
        if least < self.best * (1 - GAIN) or not math.isfinite(self.best):
            self.barren_rounds = self.barren_trials = 0
        else:
            self.barren_rounds, self.barren_trials = self.barren_rounds + 1, self.barren_trials + len(results)
        self.best = min(self.best, least)

    def text(self) -> str:
        """Why nothing more is to be had; empty as long as there may be."""
        barren = self.barren_rounds >= BARREN_ROUNDS and self.barren_trials >= BARREN_TRIALS
        if not barren or self.expected > 1 + GAIN:
            return ""
        last = f"the last {counted(self.barren_trials, 'trial')} brought nothing better by {GAIN:.0%}"
        return f"{last}, and the model expects nothing better"


def require_judge(policy: Any, early_stopping: int | str | None) -> None:
    """Raise TaskError for a policy that cannot say when nothing more is to be had, where it is asked to."""
    law = f"early_stopping={AUTO!r} needs a policy with a method nothing_more"
    able = early_stopping != AUTO or isinstance(policy, SaysWhenDone)
    require(able, TaskError, "TuningOptions", law, policy=type(policy).__name__)


def stopped(task: SearchTask, policy: Any, measurer: ProgramMeasurer) -> bool:
    """Whether nothing more is to be had of a task, which is said then, in the log too.

    Raises SearchFailed, and PartError for a policy of the user's own that raises.
    """
    with reporting(task, policy, "nothing_more"):
        reason = policy.nothing_more() if isinstance(policy, SaysWhenDone) else ""
    if reason:
        measurer.display.note(f"{task.desc or task.title}: stopped early: {reason}")
        for callback in measurer.callbacks:
            if isinstance(callback, KeepsRemarks):
                callback.stopped(task, reason)
    return bool(reason)
