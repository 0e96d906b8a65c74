"""Scores before any measurement: the analytical model, and trees that come with the package.

The extension `shipped_model` has a file of trees for each family of targets.  Where nothing of a task is known, their
throughput and the one that the analytical model expects are multiplied (`ansor/policy/scoring.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from te_lite.bounds.bounds import infer_bounds
from te_lite.errors import TeError
from te_lite.extensions import part
from te_lite.schedule.state import State

from ..analytical.machine import CPU, Machine, machine_of
from ..analytical.roofline import seconds
from ..core.errors import TaskError
from ..core.target.target import Target
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.checks import nbytes
from ..space.programs import Programs
from .api import Array, PythonBasedModel
from .features import FEATURES, source_of
from .trees import Trees, load_trees


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
        if isinstance(machine, CPU):
            machine = replace(machine, packs=task.packs)
        return -np.log(seconds(programs, machine))


# ------------------------------------------------------------------------------------- trees that come with the package


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
    place = _place(target)
    return _read(place) if place is not None and source_of(target) is FEATURES else None


def _place(target: Target, task: SearchTask | None = None) -> Path | None:
    trees = part("shipped_trees")
    return None if trees is None else trees(target, task)


def shipped_model_of(task: SearchTask) -> ShippedModel | None:
    """The model that comes with the package, for a task like those that it has seen; None for a much larger one."""
    return shipped_model(task.target) if has_shipped_model(task) else None


def has_shipped_model(task: SearchTask) -> bool:
    """Whether the package has a model for a task; reads none."""
    return _place(task.target, task) is not None


def least_seconds(task: SearchTask) -> float:
    """The time that operations or bytes take at best on the machine of a task."""
    machine = machine_of(task.target, task.hardware_params)
    moved = sum(nbytes(t.shape, t.dtype) for t in task.compute_dag.tensors)
    return max(max(0.0, task.compute_dag.flop_ct) / machine.flops, moved / machine.dram)


@lru_cache(maxsize=8)
def _read(path: Path) -> ShippedModel | None:
    try:
        return ShippedModel(replace(load_trees(path, FEATURES.schema), trained_on=0))
    except TaskError as error:
        logger.warning("the model that comes with the package is not used: %s", error)
        return None
