"""Choosing candidates that are good and differ: greedily, by score and by the knob choices that are new."""

from __future__ import annotations

import numpy as np

from ..knob import Array


def diverse(scores: Array, digits: Array, n: int, knob_weight: float = 1.0) -> list[int]:
    """The rows of `n` candidates: each adds the most to the sum of scores plus `knob_weight` times the number of
    (knob, choice) pairs among the chosen.

    `scores` float64 [m] count from 0 for the worst to 1 for the best; `digits` int64 [m, knobs].
    """
    worth = (scores - scores.min()) / max(float(np.ptp(scores)), 1e-12)
    new = np.ones(digits.shape, bool)
    left = np.ones(len(scores), bool)
    chosen: list[int] = []
    for _ in range(min(n, len(scores))):
        gain = np.where(left, worth + knob_weight * new.sum(axis=1), -np.inf)
        pick = int(gain.argmax())
        chosen.append(pick)
        left[pick] = False
        new &= digits != digits[pick]
    return chosen
