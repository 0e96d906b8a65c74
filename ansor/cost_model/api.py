"""The protocol of cost models, the base class of a model of one's own, and the model that believes nothing.

A search has candidates in one of two forms.  A population comes as one array of features, no program of which was
ever written out; single programs come as states.  Every model scores states; one that also scores features says so by
`reads_features = True`, and the search then need not make states only to have them scored:

    if reads_features(model):
        scores = model.predict_features(task, features)
    else:
        scores = model.predict(task, [concrete(row) for row in population])

A model whose scores mean nothing yet says so by `ready = False`, and the search may ask another one meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from te_lite.errors import require
from te_lite.schedule.state import State

from ..core.errors import PartError
from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.checks import chosen_seed
from ..core.values.parts import called

Array = np.ndarray[Any, np.dtype[Any]]
PART = "cost model"


@runtime_checkable
class CostModel(Protocol):
    """Scores programs of a task, higher is better; may learn from measurements."""

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measured programs, failures among them."""

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        """float64 [len(states)]; -inf for a program that cannot be scored, never NaN."""


@runtime_checkable
class FeatureModel(CostModel, Protocol):
    """A cost model that scores whole populations by their features."""

    reads_features: bool

    def predict_features(self, task: SearchTask, features: Array) -> Array:
        """float64 [n] for float32 [n, rows, columns] as `ansor.features.extract` gives it; -inf as in `predict`.

        The order of the rows of a program has no meaning, and a row of zeros says nothing: programs with fewer rows
        than others are filled up with such.
        """


def reads_features(model: CostModel) -> TypeGuard[FeatureModel]:
    """Whether a model scores features; one that does not say so is given states."""
    return isinstance(model, FeatureModel) and _flag(model, "reads_features", model.reads_features)


@runtime_checkable
class SaysReadsFeatures(Protocol):
    """A cost model that says whether it reads features."""

    reads_features: bool


def lacks_features(model: CostModel) -> bool:
    """Whether a model says that it reads features, and has no method for it."""
    says = isinstance(model, SaysReadsFeatures) and _flag(model, "reads_features", model.reads_features)
    return says and not reads_features(model)


@runtime_checkable
class TakesFeatures(Protocol):
    """A cost model that is spared working out features that are at hand."""

    def at_hand(self, inputs: Sequence[MeasureInput], features: Sequence[Array]) -> None:
        """Features of programs that it learns in the next `update`: float32 [rows, columns] of each."""


@runtime_checkable
class SaysReady(Protocol):
    """A cost model that says whether its scores mean something by now."""

    @property
    def ready(self) -> bool:
        """False before it has learnt."""


def is_ready(model: CostModel) -> bool:
    """Whether the scores of a model mean something; those of one that does not say so do."""
    return _flag(model, "ready", model.ready) if isinstance(model, SaysReady) else True


@runtime_checkable
class SaysScoresThroughput(Protocol):
    """A cost model that says whether its scores are throughputs."""

    scores_throughput: bool


def _flag(model: CostModel, name: str, value: Any) -> bool:
    """What a model says of itself.  Raises PartError, naming model and flag, for what is neither True nor False."""
    law = f"{name} must be True or False" + ("; it is a method, make it a property" if callable(value) else "")
    require(isinstance(value, bool | np.bool_), PartError, called(PART, model), law, got=value)
    return bool(value)


def scores_throughput(model: CostModel) -> bool:
    """Whether the scores of a model are proportional to throughputs as it sees them: their logarithms can be added."""
    return isinstance(model, SaysScoresThroughput) and _flag(model, "scores_throughput", model.scores_throughput)


class PythonBasedModel:
    """Base of cost models of one's own: override `update` and `predict`.

    A subclass that defines `predict_features` as well sets `reads_features = True`; one whose scores are throughputs,
    up to a factor, sets `scores_throughput = True`, and the search may weigh them with another estimate.
    """

    reads_features: bool = False
    scores_throughput: bool = False

    @property
    def ready(self) -> bool:
        """Whether the scores mean something by now."""
        return True

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        raise NotImplementedError

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        raise NotImplementedError


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
