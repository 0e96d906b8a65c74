"""How much a search follows its model: a round is drawn at random as far as the model's scores mean nothing.

Evolution gives a sketch with many programs more of a round than one with few, which only scores that mean something
justify: with random scores the best of 64 programs of the tutorials' layer took 1.2 to 1.6 times as long, by estimate,
as the best of 64 that are drawn sketch by sketch.  So an untrusted model is checked first: before anything is
measured, by the rank correlation of its scores with the analytical estimates; then, of its scores with measured times;
and in the end, by how often programs that it chose are faster than random ones.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from te_lite.schedule.state import State

from ..core.tasks.measure_values import MeasureResult
from ..evolve.selection import Row
from .proposals import Measured, Picked, Proposals
from .scoring import Scorer, Scores, scores_of, unmeasured

REMEMBERED = 64
LOOKED_AT = 128
"""Programs on which scores are compared with the estimates."""
ENOUGH = 16
"""So many programs of a kind say something."""
AGREES = 0.2
"""The rank correlation from which on scores mean something; that of 100 random ones is below it in 98 of 100 cases."""
BETTER, AS_GOOD = 0.65, 0.5
"""How often what the model chose beats what was drawn: as often as this it is followed, or not at all."""


class Origin(Enum):
    """Who chose a program: the model among many, chance, or neither of them."""

    CHOSEN = "chosen"
    DRAWN = "drawn"
    OTHER = "other"


class Chosen(NamedTuple):
    """A program that was chosen: its score, NaN where nothing has an opinion of it, and who chose it."""

    state: State
    row: Row
    score: float
    origin: Origin


def with_scores(picked: Sequence[Picked], origin: Origin, scores: Scores | None = None) -> list[Chosen]:
    """Programs that one and the same chose, with their scores, if they have any."""
    found = [math.nan] * len(picked) if scores is None else scores.tolist()
    return [Chosen(state, row, score, origin) for (state, row), score in zip(picked, found, strict=True)]


def taken_in_turns(parts: Sequence[Sequence[Chosen]]) -> list[Chosen]:
    """One program of each part after the other, as long as it has some."""
    return [one for turn in zip_longest(*parts) for one in turn if one is not None]


@dataclass
class ExplorationRatio:
    """What became of programs that were drawn at random, all of them, and of the last ones that the model chose.

    Costs are seconds, infinite for a program that failed.
    """

    drawn: list[float] = field(default_factory=list)
    chosen: deque[float] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    def told(self, results: Sequence[MeasureResult], origins: Sequence[Origin]) -> None:
        """A round ended, whose programs came from there."""
        for res, origin in zip(results, origins, strict=True):
            cost = res.cost if res.ok else math.inf
            match origin:
                case Origin.DRAWN:
                    self.drawn.append(cost)
                case Origin.CHOSEN:
                    self.chosen.append(cost)

    def share(
        self, score: Scorer, proposals: Proposals, measured: Sequence[Measured], seed: int, vouched: bool
    ) -> float:  # fmt: skip
        """The part of a round, 0 to 1, that these scores may choose: by results, else by what is known, or estimated.

        Before there are results nothing is held against scores that are `vouched` for.  What is looked at may still be
        proposed.
        """
        by_results = self.by_results()
        if by_results is not None or vouched:
            return 1.0 if by_results is None else by_results
        known = [(m.row, m.cost) for m in measured if m.row is not None][-REMEMBERED:]
        if len(known) >= ENOUGH:
            return agreement(scores_of(score, [row for row, _ in known]), -np.array([cost for _, cost in known]))
        look = proposals.to_look_at()
        look.rng = np.random.default_rng(seed)
        groups = look.population(LOOKED_AT)
        ours, estimates = [np.concatenate([np.empty(0), *map(x, groups)]) for x in (score, unmeasured(score.task))]
        return agreement(ours, estimates)

    def by_results(self) -> float | None:
        """From 0, the choice is no better than chance, to 1; None where too little was measured to say."""
        if len(self.drawn) < ENOUGH or len(self.chosen) < ENOUGH:
            return None
        chosen, drawn = np.array(self.chosen)[:, None], np.array(self.drawn)[None, :]
        better = float(np.mean((chosen < drawn) + 0.5 * (chosen == drawn)))
        return float(np.clip((better - AS_GOOD) / (BETTER - AS_GOOD), 0.0, 1.0))


def agreement(scores: Scores, others: Scores) -> float:
    """From 0, no order in common, to 1, of two opinions of the same programs; 1 where there are too few to say.

    Programs that one of them gives no chance are left out.
    """
    both = np.isfinite(scores) & np.isfinite(others)
    if both.sum() < ENOUGH:
        return 1.0
    ours, theirs = [np.argsort(np.argsort(x[both], kind="stable"), kind="stable") for x in (scores, others)]
    return float(np.clip(np.corrcoef(ours, theirs)[0, 1] / AGREES, 0.0, 1.0))
