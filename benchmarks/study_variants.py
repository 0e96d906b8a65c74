"""The variants of `benchmarks.study`: searches with one part taken away, and models of costs.

On measured programs (`--device offline`) a variant of a search is a class as `ansor/offline/contest.py` describes it,
on a device a function of a task and a seed that gives a policy.  A model of costs is a class with `fit(features,
seconds)` and `predict(features)`, higher for faster.  One of your own goes into a file: `--variant FILE.py:NAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ansor
from ansor.offline.contest import Array, Candidates
from ansor.offline.searchers import Chance, Evolution, Genetic, fitted, trained
from benchmarks.search_quality import BlindModel

# ------------------------------------------------------------------------------- searches on measured programs


class Full(Evolution):
    """Nothing taken away: children of good programs, chosen by a learning model."""


class NoFineTuning(Evolution):
    """The model chooses among random programs; there are no children."""

    def litter_of(self, n: int) -> list[int]:
        return self.chance(n)


class LimitedSpace(Evolution):
    """The search within a quarter of the programs, those of the most frequent structures, until they are used up."""

    share = 0.25

    def __init__(self, candidates: Candidates, rng: np.random.Generator) -> None:
        super().__init__(candidates, rng)
        _, of, counts = np.unique(candidates.decisions[:, 0], return_inverse=True, return_counts=True)
        order = np.argsort(-counts, kind="stable")
        kept = order[: int(np.searchsorted(np.cumsum(counts[order]), self.share * len(of))) + 1]
        self.free = np.isin(of, kept)
        self.outside = ~self.free

    def ask(self, n: int) -> list[int]:
        if not self.free.any():
            self.free, self.outside = self.outside, np.zeros_like(self.outside)
        return super().ask(n)


class Beam(Evolution):
    """Four decisions after four others; of the programs that are begun, those that the model likes best are kept.

    The model is told of programs with the later decisions left out, as it is asked of them.
    """

    width, begun, stride = 32, 4, 4

    def ask(self, n: int) -> list[int]:
        if len(self.numbers) < 16:
            return self.chance(n)
        places = self.candidates.places[:, ::-1]
        columns = np.flatnonzero((places != places[0]).any(axis=0))
        alive = np.flatnonzero(self.free)
        known = np.repeat(places[self.numbers][:, columns], self.begun, axis=0)
        known[np.arange(len(columns)) >= self.rng.integers(1, len(columns) + 1, len(known))[:, None]] = np.nan
        model = trained(known, np.repeat(self.logs, self.begun))
        for end in range(1, len(columns) + 1, self.stride):
            prefixes, of = np.unique(places[alive][:, columns[:end]], axis=0, return_inverse=True)
            if len(prefixes) > self.width:
                asked = np.full((len(prefixes), len(columns)), np.nan, np.float32)
                asked[:, :end] = prefixes
                kept = np.argsort(-model(asked), kind="stable")[: self.width]
                alive = alive[np.isin(of.reshape(-1), kept)]
        scores = model(places[alive][:, columns])
        chosen = [int(k) for k in alive[np.argsort(-scores, kind="stable")[:n]]]
        return chosen + self.chance(n - len(chosen), chosen)


class NoCostModel(Genetic):
    """Children of good programs, and nothing that chooses among them."""


class Random(Chance):
    """Programs at random."""


OFFLINE = ("Full", "NoFineTuning", "LimitedSpace", "Beam", "NoCostModel", "Random")

# ------------------------------------------------------------------------------------- searches on a device

LIMITED = {
    "extra_sketch_rules": "", "max_innermost_split_factor": 16, "disable_change_compute_location": 1,
}  # fmt: skip
"""Ansor's rules alone, inner tiles up to 16, stages where the rules put them."""


def _policy(task: Any, model: Any, seed: int, params: dict[str, Any] | None = None) -> ansor.SketchPolicy:
    return ansor.SketchPolicy(task, model, params, seed=seed, verbose=0)


LIVE: dict[str, Callable[[Any, int], Any]] = {
    "Full": lambda task, seed: _policy(task, ansor.XGBModel(seed=seed), seed),
    "NoFineTuning": lambda task, seed: _policy(
        task, ansor.XGBModel(seed=seed), seed, {"evolutionary_search_num_iters": 0}
    ),
    "LimitedSpace": lambda task, seed: _policy(task, ansor.XGBModel(seed=seed), seed, LIMITED),
    "NoCostModel": lambda task, seed: _policy(task, BlindModel(seed), seed),
    "Random": lambda task, seed: _policy(task, ansor.RandomModel(seed), seed),
}
"""Beam search is not among them: a program that is begun has no bounds, so nothing scores it."""

# ------------------------------------------------------------------------------------------ models of costs


class Trees:
    """Gradient-boosted trees on the features that are added up over the stages."""

    def fit(self, features: Array, seconds: Array) -> None:
        self.known, self.values = features, -np.log2(np.minimum(seconds, 1e3))

    def predict(self, features: Array) -> Array:
        return fitted(self.known, self.values, features, 100)


class Linear:
    """A ridge regression on the same features."""

    def fit(self, features: Array, seconds: Array) -> None:
        self.mean, self.spread = features.mean(axis=0), features.std(axis=0) + 1e-6
        x, values = self._scaled(features), -np.log2(np.minimum(seconds, 1e3))
        self.weights = np.linalg.solve(x.T @ x + 10 * np.eye(x.shape[1]), x.T @ (values - values.mean()))

    def _scaled(self, features: Array) -> Array:
        scaled: Array = ((features - self.mean) / self.spread).astype(np.float64)
        return scaled

    def predict(self, features: Array) -> Array:
        scores: Array = self._scaled(features) @ self.weights
        return scores


class FewestLines:
    """Nothing learnt: the fewer bytes and lines a program asks for, the better."""

    def fit(self, features: Array, seconds: Array) -> None:
        """Nothing is learnt."""

    def predict(self, features: Array) -> Array:
        columns = [k for k, column in enumerate(ansor.features.SCHEMA) if column.name.endswith((".lines", ".bytes"))]
        scores: Array = -features[:, columns].sum(axis=1)
        return scores


MODELS: dict[str, Callable[[], Any]] = {"Trees": Trees, "Linear": Linear, "FewestLines": FewestLines}
