"""The tuner with a cost model: trees are trained on what was measured, and say what to measure next.

Configurations are proposed in plans of `plan_size`.  Before every plan the model is trained anew; a small share of the
plan is random, so that the model sees what it does not believe in.  When a plan's length of trials brought nothing
better, most of the next plan is random: what the model likes may be only one of several regions that are good, and it
would go on with what is left of that, however poor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from te_lite.errors import require

from ..errors import TemplateError
from ..knob import Array
from ..measure import MeasureInput, MeasureResult
from ..task import Task
from .diversity import diverse
from .optimizer import ModelOptimizer, chosen_optimizer
from .tuner import Tuner
from .xgb_model import KnobModel

RANDOM_SHARE = 0.05
STALLED_SHARE = 0.7


class XGBTuner(Tuner):
    """Boosted trees over the features of configurations.

    feature_type            "knob" or "itervar" (features.py)
    loss_type               "rank": the order counts; "reg": the figures count
    optimizer               how the best configurations by the model are found: "all", "sa" (simulated annealing),
                            "auto", or an object of one's own (optimizer.py)
    diversity_filter_ratio  when given, a plan is chosen for diversity from that many times as many candidates
    num_threads             of the training; 1 unless given

    Raises TemplateError for options that do not fit.
    """

    def __init__(
        self, task: Task, plan_size: int = 16, feature_type: str = "knob", loss_type: str = "rank",
        num_threads: int | None = None, optimizer: str | ModelOptimizer = "auto",
        diversity_filter_ratio: float | None = None, rng: np.random.Generator | None = None,
    ) -> None:  # fmt: skip
        super().__init__(task, rng)
        require(plan_size >= 1, TemplateError, "XGBTuner", "plan_size must be at least 1", got=plan_size)
        ok = diversity_filter_ratio is None or diversity_filter_ratio >= 1
        require(ok, TemplateError, "XGBTuner", "diversity_filter_ratio must be at least 1", got=diversity_filter_ratio)
        self.plan_size = plan_size
        self.diversity_filter_ratio = diversity_filter_ratio
        self.model = KnobModel(task, feature_type, loss_type, num_threads)
        self.optimizer = chosen_optimizer(optimizer, self.space.range_length)
        self._indices: list[int] = []
        self._scores: list[float] = []

    def learn(self, indices: Array, scores: Array) -> None:
        """Keep results for the next training."""
        self._indices += indices.tolist()
        self._scores += scores.tolist()

    def learn_from_others(self, pairs: Sequence[tuple[MeasureInput, MeasureResult]]) -> None:
        """Keep results of other tasks of the template for the next training."""
        self.model.learn_from_others(pairs)

    def plan(self) -> Sequence[int]:
        """Indices the model likes best, and some random ones; random ones only while nothing can be learnt."""
        if not self.model.fit(np.array(self._indices, np.int64), np.array(self._scores)):
            return self.unseen.sample(self.plan_size, self.rng)
        random = self.unseen.sample(int(self.rng.binomial(self.plan_size, self._random_share())), self.rng)
        wanted = self.plan_size - len(random)
        candidates = int(wanted * (self.diversity_filter_ratio or 1))
        best = self.optimizer.find(self.model.predict, candidates, self.unseen, self.rng)
        if self.diversity_filter_ratio is not None and best:
            indices = np.array(best, np.int64)
            rows = diverse(self.model.predict(indices), self.space.digits(indices), wanted)
            best = [best[k] for k in rows]
        return list(dict.fromkeys([*best[:wanted], *random])) or self.unseen.sample(self.plan_size, self.rng)

    def _random_share(self) -> float:
        last = self._scores[-self.plan_size :]
        stalled = len(self._scores) > len(last) and max(last) <= max(self._scores[: -self.plan_size])
        return STALLED_SHARE if stalled else RANDOM_SHARE
