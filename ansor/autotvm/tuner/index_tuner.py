"""Tuners that learn nothing: all configurations in order, or in random order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..task import Task
from .tuner import Tuner

BLOCK = 64


class GridSearchTuner(Tuner):
    """All configurations, in the order of their indices; those within `range_idx`, both ends included, if given."""

    def __init__(
        self, task: Task, range_idx: tuple[int, int] | None = None, rng: np.random.Generator | None = None
    ) -> None:
        super().__init__(task, rng, range_idx)
        self._next = 0

    def plan(self) -> Sequence[int]:
        found = self.unseen.ahead(self._next, BLOCK)
        self._next = found[-1] + 1 if found else self.space.range_length
        return found


class RandomTuner(Tuner):
    """All configurations in random order, none twice; those within `range_idx`, both ends included, if given."""

    def __init__(
        self, task: Task, range_idx: tuple[int, int] | None = None, rng: np.random.Generator | None = None
    ) -> None:
        super().__init__(task, rng, range_idx)

    def plan(self) -> Sequence[int]:
        return self.unseen.sample(BLOCK, self.rng)
