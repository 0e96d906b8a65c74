"""Which programs to keep of those that were measured at some points, and which of them to run at a size.

A program's score at a point is its time over the best that is known there.  Where it was not measured, the logarithm of
its score is predicted from those at the points where it was, the nearer ones, by proportion, counting more.  Programs
are added, as long as that pays, so that the weighted mean of the logarithms becomes least, each point served by the
best of those kept; which of them runs at a size is predicted in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .points import Point

MOST_PROGRAMS = 8
LEAST_GAIN = 0.005
"""By how much another program must lower the mean of the logarithms."""

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Scores:
    """`logs` float64 [programs, points]: the logarithms of the scores."""

    points: tuple[Point, ...]
    logs: Matrix

    def chosen(self, most: int = MOST_PROGRAMS) -> tuple[int, ...]:
        """The programs to keep, in the order in which they were added; of equal ones the first."""
        weights = np.array([p.weight for p in self.points])
        kept: list[int] = []
        served = np.full(len(self.points), np.inf)
        while len(kept) < min(most, len(self.logs)):
            means = np.minimum(self.logs, served) @ weights
            best = int(np.argmin(means))
            if kept and served @ weights - means[best] < LEAST_GAIN:
                break
            kept.append(best)
            served = np.minimum(served, self.logs[best])
        return tuple(kept)

    def only(self, programs: Sequence[int]) -> Scores:
        """The scores of some programs."""
        return Scores(self.points, self.logs[list(programs)])

    def best_at(self, values: tuple[int, ...]) -> int:
        """The program that is predicted to be the fastest at these sizes."""
        return int(np.argmin(self.logs @ nearness(values, self.points)))


def nearness(values: tuple[int, ...], points: Sequence[Point]) -> Matrix:
    """How much each of the points, float64 [points], tells of what happens at some sizes; they sum up to 1."""
    there = np.log([p.values for p in points]) - np.log(values)
    distances = np.sum(there**2, axis=1)
    near = np.array(distances == 0, float) if not distances.all() else distances**-2
    found: Matrix = near / near.sum()
    return found


def scores_of(points: tuple[Point, ...], seconds: Matrix, known: Matrix) -> Scores:
    """The scores of programs by their seconds, float64 [programs, points], NaN where a program was not measured.

    `known` [points] are the least seconds of other programs at the points, infinite where there are none.
    """
    best = np.fmin.reduce([known, *seconds])
    logs = np.log(seconds) - np.log(best)
    for row in logs:
        there = np.flatnonzero(~np.isnan(row))
        for k in np.flatnonzero(np.isnan(row)):
            row[k] = nearness(points[k].values, [points[j] for j in there]) @ row[there]
    return Scores(points, logs)
