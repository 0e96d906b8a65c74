"""The model that believes nothing: what every other model has to beat."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from te_lite.schedule.state import State

from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.seeds import chosen_seed
from .api import Array, PythonBasedModel


class RandomModel(PythonBasedModel):
    """Scores at random, uniformly in [0, 1); `seed` decides the sequence.  Raises TaskError for a negative one."""

    reads_features = True

    def __init__(self, seed: int | None = None) -> None:
        self._rng = np.random.default_rng(chosen_seed("RandomModel", seed))

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is learnt."""

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        return self._rng.random(len(states))

    def predict_features(self, task: SearchTask, features: Array) -> Array:
        return self._rng.random(len(features))
