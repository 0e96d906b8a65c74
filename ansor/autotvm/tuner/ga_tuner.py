"""The genetic tuner: good configurations are crossed and mutated, knob by knob.

The first few trials are random.  From then on a small brood of children is bred from the best `pop_size` of all that
were measured, the parents drawn in proportion to their scores; so a good configuration has children after a few
trials, not after a generation of `pop_size`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from te_lite.errors import require

from ..errors import TemplateError
from ..knob import Array
from ..task import Task
from .tuner import Tuner

FIRST = 16
BROOD = 4
ATTEMPTS = 8


class GATuner(Tuner):
    """`pop_size` parents at most, the best `elite_num` of them always among those that are drawn; each knob of a child
    is changed with `mutation_prob`.  Raises TemplateError for numbers that are out of range.
    """

    def __init__(
        self, task: Task, pop_size: int = 100, elite_num: int = 3, mutation_prob: float = 0.1,
        rng: np.random.Generator | None = None,
    ) -> None:  # fmt: skip
        super().__init__(task, rng)
        ok = pop_size >= 2 and 0 <= elite_num <= pop_size and 0 <= mutation_prob <= 1
        law = "pop_size must be at least 2, elite_num at most pop_size, mutation_prob a probability"
        given = {"pop_size": pop_size, "elite_num": elite_num, "mutation_prob": mutation_prob}
        require(ok, TemplateError, "GATuner", law, **given)
        self.pop_size = pop_size
        self.elite_num = elite_num
        self.mutation_prob = mutation_prob
        self._dims = np.array(self.space.dims, np.int64)
        self._genes = np.zeros((0, len(self._dims)), np.int64)
        self._scores = np.zeros(0)

    def learn(self, indices: Array, scores: Array) -> None:
        """The best `pop_size` of the population and the newcomers stay; of equals the older."""
        genes = np.concatenate([self._genes, self.space.digits(indices)])
        merged = np.concatenate([self._scores, scores])
        best = np.argsort(-merged, kind="stable")[: self.pop_size]
        self._genes, self._scores = genes[best], merged[best]

    def plan(self) -> Sequence[int]:
        """A brood; random configurations first."""
        first = min(self.pop_size, FIRST)
        return self.unseen.sample(first, self.rng) if len(self._scores) < first else self._brood()

    def _brood(self) -> list[int]:
        """Up to `BROOD` fresh children; random configurations take the places of those that were bred before."""
        found: dict[int, None] = {}
        for attempt in range(ATTEMPTS):
            children = self.space.indices(self._children(4 * BROOD, self.mutation_prob * (1 + attempt)))
            found |= dict.fromkeys(children[self.unseen.fresh(children)].tolist())
            if len(found) >= BROOD:
                break
        return list(found)[:BROOD] or self.unseen.sample(BROOD, self.rng)

    def _children(self, n: int, mutation_prob: float) -> Array:
        """int64 [n, knobs]: one-point crossings of parents, mutated."""
        chance = self._scores + 1e-8
        mothers, fathers = self.rng.choice(len(chance), (2, n), p=chance / chance.sum())
        if self.elite_num:
            elite = self.rng.integers(min(self.elite_num, len(chance)), size=n)
            mothers = np.where(self.rng.random(n) < 0.5, elite, mothers)
        knobs = np.arange(len(self._dims))
        cut = self.rng.integers(1, len(self._dims) + 1, n)[:, None]
        children = np.where(knobs < cut, self._genes[mothers], self._genes[fathers])
        changed = self.rng.random(children.shape) < mutation_prob
        mutated: Array = np.where(changed, self.rng.integers(self._dims, size=children.shape), children)
        return mutated
