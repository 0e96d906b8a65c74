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

from te_lite.schedule.state import State

from ..analytical.machine import machine_of
from ..core.errors import TaskError
from ..core.target.target import Target
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.sizes import nbytes
from .api import Array, PythonBasedModel
from .features import FEATURES, source_of
from .trees import Trees, load_trees

FOLDER = Path(__file__).parent / "shipped"
MOST_SECONDS = 2e-4
"""What operations or bytes take at best, in the largest tasks that the trees were trained on."""
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
    return _read(_place(target)) if source_of(target) is FEATURES else None


def _place(target: Target) -> Path:
    return FOLDER / f"{target.family}.ubj"


def shipped_model_of(task: SearchTask) -> ShippedModel | None:
    """The model that comes with the package, for a task like those that it has seen; None for a much larger one.

    Trees know no larger values than those they were trained with.  On an H200, of 15 products and convolutions
    of KernelBench that take 0.5 to 19 ms, the first choice among the programs of a log took 1.23 times as long as the
    best one by the analytical model alone, 1.46 times by both together and 2.07 times by the trees.
    """
    return shipped_model(task.target) if has_shipped_model(task) else None


def has_shipped_model(task: SearchTask) -> bool:
    """Whether the package has a model for a task; reads none."""
    return _place(task.target).is_file() and least_seconds(task) <= MOST_SECONDS


def least_seconds(task: SearchTask) -> float:
    """The time that operations or bytes take at best on the machine of a task."""
    machine = machine_of(task.target, task.hardware_params)
    moved = sum(nbytes(t.shape, t.dtype) for t in task.compute_dag.tensors)
    return max(max(0.0, task.compute_dag.flop_ct) / machine.flops, moved / machine.dram)


@lru_cache(maxsize=8)
def _read(path: Path) -> ShippedModel | None:
    if not path.is_file():
        return None
    try:
        return ShippedModel(replace(load_trees(path, FEATURES.schema), trained_on=0))
    except TaskError as error:
        logger.warning("the model that comes with the package is not used: %s", error)
        return None
