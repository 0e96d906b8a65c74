"""Children of two programs of one space: each part of the decisions comes whole from one parent.

Ansor's crossover (section 5.1 of the paper) merges the rewriting steps of two parents node by node and prefers the
parent whose node scores better.  A node is a stage here, and a stage is finer than the paper's: half of the children
are mixed stage by stage, half axis by axis, where the parts are single tiles and single choices.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from ..space.decisions.draw import Index, Mask, Matrix, Scores
from ..space.spaces import Space


@lru_cache(maxsize=256)
def parts_of(space: Space) -> tuple[Index, Index]:
    """For each column the number of its tile or choice, and the stage it decides about: int64 [width] each."""
    part, stage = np.zeros(space.width, np.int64), np.zeros(space.width, np.int64)
    for k, decided in enumerate(space.parts):
        part[decided.columns], stage[decided.columns] = k, decided.stage
    return part, stage


def crossover(
    first: Matrix,
    second: Matrix,
    space: Space,
    rng: np.random.Generator,
    stage_scores: tuple[Scores, Scores] | None = None,
) -> Matrix:
    """Children of `first[i]` and `second[i]`: int64 [n, width].

    `stage_scores` (float64 [n, stages] for each parent) makes children that are mixed stage by stage take the better
    one of each stage; without them, and for parts of stages, a coin decides.
    """
    n = len(first)
    part, stage = parts_of(space)
    by_part = rng.random((n, len(space.parts)))[:, part] < 0.5
    by_stage = rng.random((n, len(space.sketch.stages))) < 0.5
    if stage_scores is not None:
        by_stage = stage_scores[1] > stage_scores[0]
    take: Mask = np.where(rng.random((n, 1)) < 0.5, by_stage[:, stage], by_part)
    return np.where(take, second, first)
