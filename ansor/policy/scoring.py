"""Score rows of decision matrices with a cost model, and mask what a block or a register file cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.errors import PartError
from ..core.tasks.measure_values import MeasureInput
from ..core.tasks.task import SearchTask
from ..core.values.parts import asking, called
from ..cost_model import CostModel, reads_features
from ..cost_model.api import PART, Array, TakesFeatures
from ..cost_model.features import source_of
from ..cost_model.prior import AnalyticalModel, shipped_model_of
from ..evolve.neighbours import neighbours
from ..evolve.selection import Row
from ..space.limits import fits
from ..space.programs import programs
from ..space.spaces import Group, Variant
from ..space.states import concrete

Scores = np.ndarray[Any, np.dtype[np.float64]]
WEIGHT_OF_ESTIMATE = 1.0
"""Of the analytical model beside the one that comes with the package.

On an H200, tasks whose computation that one had not seen, it put 0.78 of the pairs of measured programs in order, the
analytical one 0.75, both together 0.80 (`benchmarks/results/shipped_model_h200.json`).
"""
LEAST_SCORE = 1e-9
"""Of what a model of throughputs thinks hopeless, so that the other estimate still tells two apart."""


@dataclass(frozen=True)
class Scorer:
    """The scores of a group by `model`, higher is better; -inf for programs beyond the limits of the hardware.

    A model that reads features gets those of the whole group, the analytical one reads its extents, any other one is
    given the states, one by one.  With a weight `prior` above 0 the scores of a model of throughputs are multiplied by
    that power of the throughput that the analytical model expects.
    """

    task: SearchTask
    model: CostModel
    prior: float = 0.0

    def __call__(self, group: Group) -> Scores:
        """float64 [len(group)].  Raises PartError for a model that raises, gives too few scores, NaN only, or inf."""
        hardware = self.task.hardware_params.completed(self.task.target)
        made = programs(group.variant, group.rows, self.task.target, hardware)
        if isinstance(self.model, AnalyticalModel):
            scores = self.model.predict_programs(self.task, made)
        elif reads_features(self.model):
            features = source_of(self.task.target).population(made, hardware)
            with asking(PART, self.model, "predict_features"):
                scores = self.model.predict_features(self.task, features)
        else:
            states = [concrete(group.variant, row, self.task.target, hardware) for row in group.rows]
            with asking(PART, self.model, "predict"):
                scores = self.model.predict(self.task, states)
        scores = self._checked(scores, len(group))
        if self.prior > 0:
            scores = weighed(scores, AnalyticalModel().predict_programs(self.task, made), self.prior)
        return np.where(fits(made, hardware), scores, -np.inf)

    def _checked(self, scores: Any, count: int) -> Scores:
        name = called(PART, self.model)
        try:
            law = "scores must be numbers with an order, and complex ones have none"
            require(not np.iscomplexobj(scores), PartError, name, law, got=scores)
            out = np.asarray(scores, np.float64)
        except (TypeError, ValueError) as error:
            raise PartError(f"{name}: scores must be numbers, got {type(scores).__name__}: {error}") from error
        law = f"one score per program is needed, for {count} programs"
        require(out.shape == (count,), PartError, name, law, shape=out.shape)
        law = "a score must be a number, or -inf for what cannot be scored; NaN is none"
        require(not count or not np.isnan(out).all(), PartError, name, law, nan=count)
        law = "a score must be finite, or -inf for what cannot be scored; one above all others ranks nothing"
        require(not (out == np.inf).any(), PartError, name, law, infinite=int((out == np.inf).sum()))
        return out


def weighed(scores: Scores, estimates: Scores, weight: float) -> Scores:
    """float64 [n]: throughputs times those of the analytical model, whose logarithms are `estimates`, to a power."""
    return np.where(scores > -np.inf, np.maximum(scores, LEAST_SCORE) * np.exp(weight * estimates), -np.inf)


def features_of(task: SearchTask, rows: Sequence[Row]) -> list[Array]:
    """The features of single programs, float32 [rows, columns] of each; those of a variant are made together."""
    hardware = task.hardware_params.completed(task.target)
    out: dict[int, Array] = {}
    for group, places in _by_variant(rows):
        made = programs(group.variant, group.rows, task.target, hardware)
        out.update(zip(places, source_of(task.target).population(made, hardware), strict=True))
    return [out[k] for k in range(len(rows))]


def scores_of(score: Callable[[Group], Scores], rows: Sequence[Row]) -> Scores:
    """float64 [rows]: the scores of single programs; those of a variant are asked for together."""
    out = np.empty(len(rows))
    for group, places in _by_variant(rows):
        out[places] = score(group)
    return out


def _by_variant(rows: Sequence[Row]) -> list[tuple[Group, list[int]]]:
    """Programs in groups, and where in `rows` those of each are."""
    alike: dict[Variant, list[int]] = {}
    for k, (variant, _) in enumerate(rows):
        alike.setdefault(variant, []).append(k)
    return [(Group(variant, np.stack([rows[k][1] for k in places])), places) for variant, places in alike.items()]


def hand_features(
    model: TakesFeatures, task: SearchTask, inputs: Sequence[MeasureInput], rows: Sequence[Row | None]
) -> None:  # fmt: skip
    """Spare a model, which learns `inputs` next, to work out the features of those that are rows."""
    found = [(inp, row) for inp, row in zip(inputs, rows, strict=True) if row is not None]
    model.at_hand([inp for inp, _ in found], features_of(task, [row for _, row in found]))


def beside(best: Row, n: int, score: Scorer) -> list[Row]:
    """Programs one decision away from the best one, those first that the model likes."""
    if n < 1:
        return []
    variant, row = best
    group = Group(variant, neighbours(variant.space, row))
    scores = score(group)
    order = np.argsort(-scores, kind="stable")
    return [(variant, group.rows[k]) for k in order.tolist() if scores[k] > -np.inf]


def unmeasured(task: SearchTask) -> Scorer:
    """The scores of programs of a task of which nothing was measured.

    They are those of the model that comes with the package for such a task, where there is one, weighed with the
    analytical one.
    """
    shipped = shipped_model_of(task)
    return Scorer(task, AnalyticalModel()) if shipped is None else Scorer(task, shipped, WEIGHT_OF_ESTIMATE)
