"""Searchers to compare one's own with (`contest.py`): chance, evolution, a genetic algorithm, and a Gaussian process.

All of them know the same: the features and decisions of every candidate, and the seconds of those that were tried.
What is proposed and is no candidate, a child or a step, stands for the nearest one that was not tried.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.errors import TaskError
from ..core.host.hints import install
from .contest import Array, Candidates, Maker

Rng = np.random.Generator


class Tried:
    """What searchers share: which programs were tried, and their speeds; a run starts with chance."""

    def __init__(self, candidates: Candidates, rng: Rng) -> None:
        self.candidates, self.rng = candidates, rng
        self.numbers = np.zeros(0, np.int64)
        self.seconds = np.zeros(0)
        self.free = np.ones(len(candidates), np.bool_)

    def tell(self, numbers: Sequence[int], seconds: Array) -> None:
        self.numbers = np.append(self.numbers, numbers)
        self.seconds = np.append(self.seconds, seconds)
        self.free[numbers] = False

    @property
    def speeds(self) -> Array:
        """Of what was tried, relative to its best, float64 [trials]; 0 for failures, and for all while none ran."""
        best = self.seconds.min(initial=np.inf)
        return best / self.seconds if best < np.inf else np.zeros(len(self.seconds))

    @property
    def logs(self) -> Array:
        """log2 of the speeds, float64 [trials], at least -8, as failures are."""
        with np.errstate(divide="ignore"):
            return np.maximum(np.log2(self.speeds), -8.0)

    def chance(self, n: int, without: Sequence[int] = ()) -> list[int]:
        """Up to `n` programs that were not tried."""
        free = self.free.copy()
        free[list(without)] = False
        return [int(k) for k in self.rng.permutation(np.flatnonzero(free))[:n]]

    def nearest(self, place: Array, taken: Sequence[int], n: int = 1) -> list[int]:
        """The `n` programs nearest to a place that are neither tried nor taken; ties in a random order."""
        free = self.free.copy()
        free[list(taken)] = False
        left = self.rng.permutation(np.flatnonzero(free))
        order = np.argsort(self.candidates.distances(place)[left], kind="stable")[:n]
        return [int(k) for k in left[order]]

    def parents(self, n: int) -> Array:
        """The places of `n` tried programs, drawn by rank: the best of T is as likely as the last T / 4 together."""
        ranks = np.argsort(np.argsort(-self.speeds, kind="stable"), kind="stable")
        weights = np.exp(-8.0 * ranks / len(ranks))
        chosen = self.rng.choice(len(ranks), n, p=weights / weights.sum())
        places: Array = self.candidates.places[self.numbers[chosen]]
        return places


class Chance(Tried):
    """Programs at random."""

    def ask(self, n: int) -> list[int]:
        return self.chance(n)


class Genetic(Tried):
    """Children of two good programs: each number from one of the two, some from any program; no model."""

    mutation = 0.1

    def ask(self, n: int) -> list[int]:
        if not len(self.numbers):
            return self.chance(n)
        out: list[int] = []
        for place in self.children(n):
            out += self.nearest(place, out)
        return out

    def children(self, n: int) -> Array:
        """Places between those of two parents each, float32 [n, columns of the places]."""
        ones, others = self.parents(n), self.parents(n)
        mixed = np.where(self.rng.random(ones.shape) < 0.5, ones, others)
        foreign = self.candidates.places[self.rng.integers(len(self.candidates), size=n)]
        found: Array = np.where(self.rng.random(ones.shape) < self.mutation, foreign, mixed)
        return found


class Evolution(Genetic):
    """Children of good programs, of which a learning model chooses, as in Ansor's search; one of twenty by chance."""

    litter, eps = 8, 0.05

    def ask(self, n: int) -> list[int]:
        if len(self.numbers) < 16:
            return self.chance(n)
        litter = self.litter_of(n * self.litter)
        scores = self.scores(np.array(litter))
        chosen = [litter[k] for k in np.argsort(-scores, kind="stable")[: n - int(self.rng.binomial(n, self.eps))]]
        return chosen + self.chance(n - len(chosen), chosen)

    def litter_of(self, n: int) -> list[int]:
        """Different programs that were not tried, about `n`: half at random, half nearest to children and parents."""
        some = n // self.litter
        places = [*self.children(some), *self.parents(some)]
        near = [k for place in places for k in self.nearest(place, (), self.litter // 4)]
        return list(dict.fromkeys([*near, *self.chance(n // 2)]))

    def scores(self, numbers: Array) -> Array:
        """What the model expects, higher is better, float32 [len(numbers)]."""
        return fitted(self.candidates.features[self.numbers], self.logs, self.candidates.features[numbers])


def fitted(known: Array, values: Array, asked: Array, rounds: int = 30) -> Array:
    """What gradient-boosted trees, trained on rows of features and their values, say of other rows."""
    return trained(known, values, rounds)(asked)


def trained(known: Array, values: Array, rounds: int = 30) -> Callable[[Array], Array]:
    """The trees of `fitted`, to be asked several times; a number of a row that is NaN is not known."""
    xgboost = importlib.import_module("xgboost")
    params = {"max_depth": 4, "eta": 0.2, "tree_method": "hist", "nthread": 1, "max_bin": 32, "colsample_bynode": 0.3}
    booster = xgboost.train(params, xgboost.DMatrix(known, values, nthread=1), rounds)

    def predict(asked: Array) -> Array:
        found: Array = booster.predict(xgboost.DMatrix(asked, nthread=1))
        return found

    return predict


class Bayesian(Tried):
    """A Gaussian process over the main components of features and decisions; the greatest expected improvements are
    tried, of the `most` programs of the best expectation."""

    noise, most = 0.05, 256

    def __init__(self, candidates: Candidates, rng: Rng) -> None:
        super().__init__(candidates, rng)
        self.rows = components(candidates)
        self.width = max(float(np.median(_squares(self.rows[:200], self.rows[:200]))), 1e-9)
        self.alike = np.zeros((len(candidates), 0))

    def tell(self, numbers: Sequence[int], seconds: Array) -> None:
        super().tell(numbers, seconds)
        new = np.exp(-_squares(self.rows, self.rows[list(numbers)]) / self.width)
        self.alike = np.concatenate([self.alike, new], axis=1)

    def ask(self, n: int) -> list[int]:
        if len(self.numbers) < 2:
            return self.chance(n)
        asked, mean, deviation = self.expected(max(n, self.most))
        gain = improvement(mean, deviation, float(self.logs.max()))
        return [int(k) for k in asked[np.argsort(-gain, kind="stable")[:n]]]

    def expected(self, most: int) -> tuple[Array, Array, Array]:
        """Up to `most` programs that were not tried, and mean and deviation of the log2 of their speeds."""
        values, left = self.logs, np.flatnonzero(self.free)
        scale = max(float(values.std()), 1e-9)
        kernel = self.alike[self.numbers] + self.noise * np.eye(len(values))
        mean = self.alike[left] @ np.linalg.solve(kernel, values - values.mean()) + values.mean()
        best = np.argsort(-mean, kind="stable")[:most]
        cross = self.alike[left[best]]
        explained = (cross * np.linalg.solve(kernel, cross.T).T).sum(axis=1)
        return left[best], mean[best], scale * np.sqrt(np.maximum(1.0 - explained, 1e-9))


@lru_cache(maxsize=32)
def components(candidates: Candidates, most: int = 24) -> Array:
    """Features and places of programs by their first principal components, float64 [programs, at most `most`]."""
    raw = np.concatenate([candidates.features, candidates.places], axis=1).astype(np.float64)
    spread = raw.std(axis=0)
    rows = (raw - raw.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    _, axes = np.linalg.eigh(rows.T @ rows)
    found: Array = rows @ axes[:, ::-1][:, :most]
    return found


def _squares(a: Array, b: Array) -> Array:
    """The squares of the distances between rows, [len(a), len(b)]."""
    found: Array = np.maximum((a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T, 0.0)
    return found


def improvement(mean: Array, deviation: Array, best: float) -> Array:
    """The expected improvement over `best` of normally distributed values."""
    z = (mean - best) / deviation
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    below = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    found: Array = deviation * (z * below + density)
    return found


class Tpe(Tried):
    """Optuna's tree-structured Parzen estimators over the decisions; a suggestion stands for the nearest program."""

    def __init__(self, candidates: Candidates, rng: Rng) -> None:
        super().__init__(candidates, rng)
        try:
            self.optuna: Any = importlib.import_module("optuna")
        except ImportError as error:
            raise TaskError(f"searcher tpe: the package optuna is not installed; `{install('data')}`") from error
        self.optuna.logging.set_verbosity(self.optuna.logging.ERROR)
        sampler = self.optuna.samplers.TPESampler(seed=int(rng.integers(2**31)), multivariate=True)
        self.study = self.optuna.create_study(sampler=sampler)
        choices = [np.unique(column).tolist() for column in candidates.places.T]
        kinds = self.optuna.distributions
        self.space = {str(k): kinds.CategoricalDistribution(v) for k, v in enumerate(choices) if len(v) > 1}

    def ask(self, n: int) -> list[int]:
        out = [] if len(self.numbers) else self.chance(n)
        for _ in range(min(n, int(self.free.sum())) - len(out)):
            place = self.candidates.places[0].copy()
            trial = self.study.ask(self.space)
            place[[int(name) for name in trial.params]] = list(trial.params.values())
            self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
            out += self.nearest(place, out)
        return out

    def tell(self, numbers: Sequence[int], seconds: Array) -> None:
        super().tell(numbers, seconds)
        for number, value in zip(numbers, seconds, strict=True):
            params = {name: float(self.candidates.places[number, int(name)]) for name in self.space}
            cost = math.log2(value) if value < math.inf else 0.0
            create = self.optuna.trial.create_trial
            self.study.add_trial(create(params=params, distributions=self.space, value=cost))


SEARCHERS: dict[str, Maker] = {
    "random": Chance,
    "evolution": Evolution,
    "genetic": Genetic,
    "bayesian": Bayesian,
    "tpe": Tpe,
}
"""By the names of the command line; `random` is what the others are compared with."""
PEERS = ("tpe",)
"""Those that need packages of others, and are slow: they run when they are asked for."""
