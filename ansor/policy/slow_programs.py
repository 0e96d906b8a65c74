"""Programs that take long and are far from the best, by the analytical model: not worth a measurement.

Where a large tensor becomes one number, half of the programs are a few threads that walk through all of it: seconds
each, and a program that runs cannot be stopped but with the process that has the data.  The estimate need not be good
to tell those apart.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..core.tasks.task import SearchTask
from ..cost_model.analytical_model import AnalyticalModel
from ..evolve.buckets import Row
from ..space.choices import Population
from .scoring import Scorer, scores_of

LONG = 0.02
"""Seconds: what takes no longer is measured as soon as it is doubted."""
TIMES = 10.0
"""The best that is expected of a population, so many times, is hopeless; estimates are seldom off by so much."""
LARGE = 1 << 28
"""Operations of a task from which on some program takes `LONG`."""


class SlowPrograms:
    """Says which programs of a task are slow beside the best of `sample`, a population, and of those it was asked for.

    On CPUs, and of small tasks, none is.
    """

    def __init__(self, task: SearchTask, sample: Callable[[], Population]) -> None:
        self._applies = task.target.is_gpu and task.compute_dag.flop_ct >= LARGE
        self._score = Scorer(task, AnalyticalModel())
        self._sample = sample
        self._best = -np.inf

    def holds(self, row: Row) -> bool:
        """Whether a program is one of them."""
        if not self._applies:
            return False
        if self._best == -np.inf:
            self._best = max([self._score(group).max(initial=-np.inf) for group in self._sample()], default=-np.inf)
        score = float(scores_of(self._score, [row])[0])
        self._best = max(self._best, score)
        return bool(np.exp(-score) > max(LONG, TIMES * np.exp(-self._best)))
