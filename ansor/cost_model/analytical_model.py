"""The analytical model as a cost model: scores before there are any measurements, and cheap ones for a first cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite.bounds.bounds import infer_bounds
from te_lite.errors import TeError
from te_lite.schedule.state import State

from ..analytical.machine import Machine, machine_of
from ..analytical.roofline import seconds
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..space.programs import Programs
from .api import PythonBasedModel

Array = np.ndarray[Any, np.dtype[Any]]


class AnalyticalModel(PythonBasedModel):
    """Scores a program by minus the logarithm of its estimated seconds.

    `machine` is what the programs will run on; without it, what the target and the hardware parameters of a task say
    (`machine_of`).  Nothing is learnt, and nothing is random.
    """

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is learnt."""

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        """float64 [len(states)], higher is better; -inf for a state that has no bounds.

        Raises TaskError for a target that no analytical model describes.
        """
        scores = np.full(len(states), -np.inf)
        for k, state in enumerate(states):
            try:
                programs = Programs(infer_bounds(state))
            except TeError:
                continue
            scores[k] = self.predict_programs(task, programs)[0]
        return scores

    def predict_programs(self, task: SearchTask, programs: Programs) -> Array:
        """float64 [programs.n]: scores of a whole population in one pass.  Raises TaskError as `predict` does."""
        machine = machine_of(task.target, task.hardware_params) if self.machine is None else self.machine
        return -np.log(seconds(programs, machine))
