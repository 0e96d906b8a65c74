"""Score rows of decision matrices with a cost model, and mask what a block or a register file cannot hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.task import SearchTask
from ..cost_model import CostModel, reads_features
from ..cost_model.analytical_model import AnalyticalModel
from ..features import extract
from ..space.choices import Group
from ..space.limits import fits
from ..space.programs import programs
from ..space.states import concrete

Scores = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Scorer:
    """The scores of a group by `model`, higher is better; -inf for programs beyond the limits of the hardware.

    A model that reads features gets those of the whole group, the analytical one reads its extents, any other one is
    given the states, one by one.
    """

    task: SearchTask
    model: CostModel

    def __call__(self, group: Group) -> Scores:
        """float64 [len(group)].  Raises TaskError when the model gives another number of scores."""
        hardware = self.task.hardware_params.completed(self.task.target)
        made = programs(group.variant, group.rows, self.task.target, hardware)
        if isinstance(self.model, AnalyticalModel):
            scores = self.model.predict_programs(self.task, made)
        elif reads_features(self.model):
            scores = self.model.predict_features(self.task, extract(made, hardware))
        else:
            states = [concrete(group.variant, row, self.task.target, hardware) for row in group.rows]
            scores = self.model.predict(self.task, states)
        scores = np.asarray(scores, np.float64)
        law = f"one score per program is needed, for {len(group)} programs"
        require(scores.shape == (len(group),), TaskError, type(self.model).__name__, law, shape=scores.shape)
        return np.where(fits(made, hardware), scores, -np.inf)
