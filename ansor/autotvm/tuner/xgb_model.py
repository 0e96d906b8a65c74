"""The cost model of the XGBoost tuner: trees over the features of configurations, trained anew for every plan.

reg    the label of a configuration is its FLOPS divided by the best of its task, 0 for a failure
rank   only the order of the configurations of a task counts

Configurations of other tasks are samples like any other, with a weight that fades as the task's own samples come in:
1 / 2^(n / 64), nothing below 0.05.

Ranking weighs its samples by small numbers, so a leaf may have as little as 0.05 of them.  With 1, as autotvm has it,
the best of 200 trials was not within 5% of the optimum in 1 of 50 searches of a model of the accelerator's ten
convolutions, with 0.05 in none; squared errors missed it in 3.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.errors import require

from ..errors import TemplateError
from ..knob import Array
from ..measure import MeasureInput, MeasureResult
from ..task import Task
from .features import FeatureTable, numbers_in

LOSSES = {"reg": "reg:squarederror", "rank": "rank:pairwise"}
PARAMS: Mapping[str, Any] = {
    "max_depth": 3, "gamma": 0.0001, "min_child_weight": 0.05, "subsample": 1.0, "eta": 0.3, "lambda": 1.0,
    "alpha": 0.0, "tree_method": "hist", "verbosity": 0, "seed": 0,
}  # fmt: skip
ROUNDS = 60
HALF_LIFE = 64
LEAST_WEIGHT = 0.05


@dataclass(frozen=True)
class Samples:
    """Measured configurations of one task: float32 rows [n, columns], float64 labels [n] from 0 to 1."""

    rows: Array
    labels: Array

    @property
    def tell(self) -> bool:
        """Whether they tell configurations apart."""
        return len(self.labels) > 1 and bool((self.labels != self.labels[0]).any())


class KnobModel:
    """Scores indices of a task's space, higher is better.

    Raises TemplateError for an unknown feature type or loss.
    """

    def __init__(self, task: Task, feature_type: str, loss_type: str, num_threads: int | None) -> None:
        law = f"loss_type must be one of {', '.join(LOSSES)}"
        require(loss_type in LOSSES, TemplateError, "XGBTuner", law, got=loss_type)
        self.task = task
        self.feature_type = feature_type
        self.loss_type = loss_type
        self.num_threads = num_threads or 1
        self._table = FeatureTable(task.config_space, feature_type)
        self._numbers = numbers_in(task.args)
        self._others: list[Samples] = []
        self._booster: Any = None

    def learn_from_others(self, pairs: Sequence[tuple[MeasureInput, MeasureResult]]) -> None:
        """Take in records of other tasks; those with other features or numbers of arguments are left out."""
        tasks: dict[tuple[Any, ...], Task] = {}
        told: dict[tuple[Any, ...], dict[int, float]] = {}
        for inp, res in pairs:
            key = (inp.target, inp.workload)
            index = tasks.setdefault(key, inp.task).config_space.index_of(inp.config)
            if index is not None:
                told.setdefault(key, {})[index] = 1 / res.cost if res.ok else 0.0
        for key, rates in told.items():
            table, numbers = FeatureTable(tasks[key].config_space, self.feature_type), numbers_in(tasks[key].args)
            samples = Samples(
                _beside(table.rows(np.array(list(rates), np.int64)), numbers), _labels(np.array(list(rates.values())))
            )
            if (table.columns, len(numbers)) == (self._table.columns, len(self._numbers)) and samples.tell:
                self._others.append(samples)

    def _rows(self, indices: Array) -> Array:
        """float32 [n, columns]; the numbers of the arguments are features once other tasks are known."""
        rows = self._table.rows(indices)
        return _beside(rows, self._numbers) if self._others else rows

    def fit(self, indices: Array, scores: Array) -> bool:
        """Train on the task's own results and those of others; whether there was anything to learn.

        `indices` int64 [n], `scores` float64 [n] in FLOPS, 0 for a failure.
        """
        own = Samples(self._rows(indices), _labels(scores))
        weight = 0.5 ** (len(indices) / HALF_LIFE)
        groups = [(s, weight) for s in self._others if weight >= LEAST_WEIGHT]
        groups += [(own, 1.0)] if own.tell else []
        self._booster = self._train(groups) if groups else None
        return bool(groups)

    def _train(self, groups: Sequence[tuple[Samples, float]]) -> Any:
        xgboost = importlib.import_module("xgboost")
        rows = np.concatenate([s.rows for s, _ in groups])
        matrix = xgboost.DMatrix(rows, label=np.concatenate([s.labels for s, _ in groups]), nthread=self.num_threads)
        weights = np.array([w for _, w in groups])
        sizes = [len(s.labels) for s, _ in groups]
        if self.loss_type == "rank":
            matrix.set_group(sizes)
            matrix.set_weight(weights)
        else:
            matrix.set_weight(np.repeat(weights, sizes))
        params = {**PARAMS, "objective": LOSSES[self.loss_type], "nthread": self.num_threads}
        return xgboost.train(params, matrix, ROUNDS)

    def predict(self, indices: Array) -> Array:
        """float64 [n] for int64 [n]; `fit` must have learnt something."""
        rows = self._rows(indices)
        scores: Array = np.asarray(self._booster.inplace_predict(np.ascontiguousarray(rows)), np.float64)
        return scores


def _beside(rows: Array, numbers: Sequence[float]) -> Array:
    """The rows, each with the same numbers appended."""
    return np.concatenate([rows, np.tile(np.array(numbers, np.float32), (len(rows), 1))], axis=1)


def _labels(rates: Array) -> Array:
    """Rates divided by the greatest; zeros when all are."""
    labels: Array = rates / max(float(rates.max(initial=0.0)), 1e-300)
    return labels
