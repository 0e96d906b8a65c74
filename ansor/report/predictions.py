"""What a search expected of programs beside what they took, round by round."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..cost_model.metrics import pairwise_accuracy
from ..records.summary import TaskSummary

Array = np.ndarray[Any, np.dtype[np.float64]]
MOST = 1000
"""Programs of a round whose pairs are looked at."""


@dataclass(frozen=True, eq=False)
class Round:
    """The programs of a round that a model scored.

    `number` counts the rounds of a task from 1, those of all runs in a log; `trials` are numbers of trials from 1,
    `scores` and `costs` float64 of the same length, in seconds, inf for a program that failed.
    """

    number: int
    trials: tuple[int, ...]
    scores: Array
    costs: Array

    def accuracy(self) -> float:
        """The share of pairs of programs that the model put in the right order; nan where there is none."""
        kept = np.unique(np.linspace(0, len(self.trials) - 1, MOST).astype(int))
        return pairwise_accuracy(self.scores[kept], self.costs[kept])

    def expected(self) -> Iterator[tuple[int, float, float]]:
        """A trial, the seconds expected of it, and those measured, for all that did not fail.

        Scores have no unit, so that of the k-th best score the k-th least time of the round was expected.
        """
        ran = np.flatnonzero(np.isfinite(self.costs))
        by_score = ran[np.argsort(-self.scores[ran], kind="stable")]
        for k, seconds in zip(by_score.tolist(), np.sort(self.costs[ran]).tolist(), strict=True):
            yield self.trials[k], seconds, float(self.costs[k])


def rounds_of(one: TaskSummary) -> list[Round]:
    """The rounds of a task whose programs have predictions, in the order in which they began to be measured."""
    found: dict[tuple[int, int], list[tuple[int, float, float]]] = {}
    for trial, (inp, res) in enumerate(zip(one.inputs, one.results, strict=False), 1):
        if inp.prediction is not None:
            key = inp.prediction.run, inp.prediction.round
            found.setdefault(key, []).append((trial, inp.prediction.score, res.cost if res.ok else math.inf))
    rounds = []
    for number, rows in enumerate(found.values(), 1):
        trials, scores, costs = zip(*rows, strict=True)
        rounds.append(Round(number, trials, np.array(scores), np.array(costs)))
    return rounds
