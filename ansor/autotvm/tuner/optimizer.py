"""Where a model sees its best configurations: by looking at all of them, or by simulated annealing.

Annealing walks with many points at once, one array operation a step; all of them are scored in one call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np

from te_lite.errors import require

from ..errors import TemplateError
from ..knob import Array
from .unseen import Unseen

Score = Callable[[Array], Array]
MOST_LOOKED_AT = 1 << 14


@runtime_checkable
class ModelOptimizer(Protocol):
    """Finds configurations that a model scores high."""

    def find(self, score: Score, n: int, unseen: Unseen, rng: np.random.Generator) -> list[int]:
        """Up to `n` different fresh indices, the best first; `score` gives float64 [m] for int64 [m]."""


class LookAtAll:
    """Scores every configuration that is left; of equals a random one comes first.

    Raises TemplateError for a space that is too large to be listed.
    """

    def find(self, score: Score, n: int, unseen: Unseen, rng: np.random.Generator) -> list[int]:
        left = unseen.listed
        require(left is not None, TemplateError, "LookAtAll", "the space is too large; use 'sa'", points=len(unseen))
        assert left is not None
        mixed = rng.permutation(left)
        best: list[int] = mixed[np.argsort(-score(mixed), kind="stable")[:n]].tolist()
        return best


class SimulatedAnnealingOptimizer:
    """`parallel_size` points take `n_iter` steps, or fewer when `early_stop` of them in a row found nothing better.

    A step changes one knob.  A worse point is accepted with probability exp(difference / temperature), where the
    temperature falls linearly from `temp[0]` to `temp[1]`, in units of the spread of the first scores.  With
    `persistent` the next search starts where this one ended.
    """

    def __init__(
        self, n_iter: int = 200, temp: tuple[float, float] = (0.03, 0.0), persistent: bool = True,
        parallel_size: int = 128, early_stop: int = 50,
    ) -> None:  # fmt: skip
        law = "n_iter, parallel_size and early_stop must be at least 1"
        ok = min(n_iter, parallel_size, early_stop) >= 1
        require(ok, TemplateError, "SimulatedAnnealingOptimizer", law, got=(n_iter, parallel_size, early_stop))
        self.n_iter = n_iter
        self.temp = temp
        self.persistent = persistent
        self.parallel_size = parallel_size
        self.early_stop = early_stop
        self._points: Array | None = None

    def find(self, score: Score, n: int, unseen: Unseen, rng: np.random.Generator) -> list[int]:
        space = unseen.space
        points = self._points if self._points is not None else space.sample_ints(self.parallel_size, rng)
        scores = score(points)
        spread = float(scores.std()) or 1.0
        found, values = _best(n, points, scores, unseen)
        idle = 0
        for temperature in np.linspace(*self.temp, self.n_iter):
            moved = _moved(space.dims, space.digits(points), rng) @ space.places
            after = score(moved)
            chance = np.exp(np.minimum((after - scores) / (temperature * spread + 1e-5), 0.0))
            accepted = rng.random(len(points)) < chance
            points, scores = np.where(accepted, moved, points), np.where(accepted, after, scores)
            better, better_values = _best(n, np.append(found, moved), np.append(values, after), unseen)
            idle = idle + 1 if np.array_equal(better, found) else 0
            found, values = better, better_values
            if idle >= self.early_stop:
                break
        self._points = points if self.persistent else None
        best: list[int] = found.tolist()
        return best


def _moved(dims: tuple[int, ...], digits: Array, rng: np.random.Generator) -> Array:
    """The digits with one knob of each row changed; knobs with a single choice stay."""
    sizes = np.array(dims, np.int64)
    movable = np.flatnonzero(sizes > 1)
    if not len(movable):
        return digits
    rows, knobs = np.arange(len(digits)), rng.choice(movable, len(digits))
    moved: Array = digits.copy()
    moved[rows, knobs] = (digits[rows, knobs] + rng.integers(1, sizes[knobs])) % sizes[knobs]
    return moved


def _best(n: int, indices: Array, values: Array, unseen: Unseen) -> tuple[Array, Array]:
    """The `n` best of the fresh indices, each once, the best first."""
    indices, first = np.unique(indices, return_index=True)
    values = values[first]
    fresh = unseen.fresh(indices)
    indices, values = indices[fresh], values[fresh]
    order = np.argsort(-values, kind="stable")[:n]
    return indices[order], values[order]


def chosen_optimizer(optimizer: str | ModelOptimizer, points: int) -> ModelOptimizer:
    """The optimizer of a name: "all", "sa", or "auto", which looks at all of a space that is small enough.

    Raises TemplateError for another name, or an object without a method find.
    """
    if optimizer == "auto":
        optimizer = "all" if points <= MOST_LOOKED_AT else "sa"
    if optimizer == "all":
        return LookAtAll()
    if optimizer == "sa":
        return SimulatedAnnealingOptimizer()
    if isinstance(optimizer, str) or not isinstance(optimizer, ModelOptimizer):
        law = "the optimizer must be 'auto', 'all', 'sa', or an object with a method find"
        raise TemplateError(f"XGBTuner: {law}, got {optimizer!r}")
    return optimizer
