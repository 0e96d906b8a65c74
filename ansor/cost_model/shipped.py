"""Trees that come with the package, trained on logs of many tasks: an opinion of programs before any was measured.

`shipped/FAMILY.ubj` has those of a family of targets (`benchmarks.shipped_model` makes it).  Where nothing of a task is
known, their throughput and the one that the analytical model expects are multiplied (`ansor/policy/scoring.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from te_lite.state import State

from ..core.errors import TaskError
from ..core.measure_values import MeasureInput, MeasureResult
from ..core.target import Target
from ..core.task import SearchTask
from .api import Array, PythonBasedModel
from .features import FEATURES, source_of
from .trees import Trees, load_trees

FOLDER = Path(__file__).parent / "shipped"
logger = logging.getLogger("ansor")


class ShippedModel(PythonBasedModel):
    """Scores programs by trees that are there already; nothing is learnt."""

    reads_features = True
    scores_throughput = True

    def __init__(self, trees: Trees) -> None:
        self.trees = trees

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is learnt."""

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        """float64 [len(states)], about the throughput beside the best program's; -inf for a state without bounds."""
        return self.trees.predict(FEATURES.stacked(states, task.hardware_params, self.trees.columns))

    def predict_features(self, task: SearchTask, features: Array) -> Array:
        """float64 [n] for float32 [n, rows, columns]; -inf for a program that has only rows of zeros."""
        return self.trees.predict(features)


def shipped_model(target: Target) -> ShippedModel | None:
    """The model that comes with the package for a target; None where there is none, or features are others now.

    Its trees count no programs, since no log of the user's has them.
    """
    return _read(FOLDER / f"{target.family}.ubj") if source_of(target) is FEATURES else None


@lru_cache(maxsize=8)
def _read(path: Path) -> ShippedModel | None:
    if not path.is_file():
        return None
    try:
        return ShippedModel(replace(load_trees(path, FEATURES.schema), trained_on=0))
    except TaskError as error:
        logger.warning("the model that comes with the package is not used: %s", error)
        return None
