"""The pack-sum objective: the score of a program is the sum of the scores of its rows (Ansor paper, 5.2).

Trees score rows, but only programs have a label.  With x_p the sum over the rows of program p, y_p its label and w_p
its weight, the loss is half the sum of w_p (x_p - y_p)^2 over the programs, so for each row i of p

    gradient_i = w_p (x_p - y_p)        hessian_i = w_p
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .api import Array


@dataclass(frozen=True)
class PackSum:
    """The objective and its training metric, for rows that lie program by program.

    `starts` int64 [n] is the first row of each program, `program` int64 [rows] the program of each row, `labels` and
    `weights` float64 [n].
    """

    starts: Array
    program: Array
    labels: Array
    weights: Array

    @classmethod
    def of(cls, sizes: Array, labels: Array, weights: Array) -> PackSum:
        """For programs of `sizes[p]` rows each, at least one."""
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        return cls(starts, np.repeat(np.arange(len(sizes)), sizes), labels, weights)

    def sums(self, row_scores: Array) -> Array:
        """float64 [n]: the scores of the programs."""
        sums: Array = np.add.reduceat(row_scores.reshape(-1).astype(np.float64), self.starts)
        return sums

    def objective(self, row_scores: Array, _: Any = None) -> tuple[Array, Array]:
        """(gradient, hessian), float32 [rows] each."""
        gradient = self.weights * (self.sums(row_scores) - self.labels)
        return gradient[self.program].astype(np.float32), self.weights[self.program].astype(np.float32)

    def metric(self, row_scores: Array, _: Any = None) -> tuple[str, float]:
        """The weighted root of the mean squared error over the programs."""
        squares = self.weights * (self.sums(row_scores) - self.labels) ** 2
        return "p-rmse", float(np.sqrt(squares.sum() / self.weights.sum()))
