"""Rounds that are begun and ended apart: on a device of its own, one is searched and built while another is measured.

The next round is begun before the last one ends, so it is chosen, and its programs are proposed, from what was known
after the round before the last: never from "whatever is there by now", so that a seed decides the run.  Where
programs run on the processor that searches, a round happens as a whole, when it ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..core.task import SearchTask
from ..measure.batch import Batch
from ..measure.measurer import ProgramMeasurer
from ..measure.pipeline import alone
from ..policy.baselines import start_baselines
from ..policy.exchange import checked_round, searching
from ..policy.promise import stopped
from ..policy.protocols import AsksAhead, RoundPolicy
from ..policy.search_failure import SearchFailed
from ..policy.search_loop import begin_round, end_round
from .task_progress import LEAST_COST, cost_of

CONFIRMED = 3
"""How many programs of a task are timed in turns when the run ends: there are many tasks, and each has one winner."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Round:
    """A round of the task number `task_id` that was begun; it has at most `trials` candidates.

    `costs` waits for the latencies of its candidates, in seconds, and the policy learns them.
    """

    task_id: int
    trials: int
    costs: Callable[[], list[float]]


class Rounds:
    """Begins rounds; `ahead` of them, 0 or 1, may be under way when another one is begun.

    It is 1 when no program runs on the host, and every policy can be asked ahead (`RoundPolicy`).  A task whose search
    fails has nothing more to measure; `failures` says why, by task.  `judged` says that the same goes for one whose
    policy says that nothing more is to be had.
    """

    def __init__(
        self, tasks: Sequence[SearchTask], policies: Sequence[RoundPolicy], measurer: ProgramMeasurer,
        judged: bool = False,
    ) -> None:  # fmt: skip
        self.tasks = tuple(tasks)
        self.policies = tuple(policies)
        self.measurer = measurer
        self.judged = judged
        self.failures: dict[int, SearchFailed] = {}
        self._begun: set[int] = set()
        apart = not any(alone(t, measurer.runner) for t in self.tasks)
        self.ahead = int(apart and all(isinstance(p, AsksAhead) and p.rounds_ahead >= 1 for p in self.policies))

    def begin(self, task_id: int, trials: int, parts: int = 1) -> Round:
        """A round of `trials` candidates, fewer when there are no more that are new.

        Under a limit of time it has one of so many `parts` of what is left, and measures one candidate at least.
        Before the first one of a task its untuned program and the default schedule are measured, which are no trials.
        """
        if task_id in self.failures or (
            self.judged and stopped(self.tasks[task_id], self.policies[task_id], self.measurer)
        ):
            return Round(task_id, 0, list)
        self.measurer.until = self.measurer.limit.share(parts)
        task, policy = self.tasks[task_id], self.policies[task_id]
        try:
            if task_id not in self._begun:
                self._begun.add(task_id)
                start_baselines(task, policy, self.measurer)
            if self.ahead == 0:
                return Round(task_id, trials, partial(self._whole, task_id, trials))
            batch = begin_round(policy, task, trials, self.measurer)
        except SearchFailed as failure:
            self._give_up(task_id, failure)
            return Round(task_id, 0, list)
        return Round(task_id, len(batch.inputs), partial(self._rest, task_id, batch))

    def confirmed(self, task_id: int) -> float | None:
        """The latency of a task after its best few programs were timed in turns; None where they were not."""
        task = self.tasks[task_id]
        best = self.measurer.confirm(task, CONFIRMED, f"{task.desc or task.title}, timed again in turns")
        return None if best is None else max(best.cost, LEAST_COST)

    def _give_up(self, task_id: int, failure: SearchFailed) -> None:
        self.failures[task_id] = failure
        logger.warning("%s", failure)

    def _whole(self, task_id: int, trials: int) -> list[float]:
        with self.measurer.display.run(self.tasks[task_id], trials):
            try:
                policy = self.policies[task_id]
                with searching(policy, "continue_search_one_round", self.measurer):
                    answer = policy.continue_search_one_round(trials, self.measurer)
                results = checked_round(policy, answer)
            except SearchFailed as failure:
                self._give_up(task_id, failure)
                results = failure.results
        return [cost_of(res) for res in results]

    def _rest(self, task_id: int, batch: Batch) -> list[float]:
        with self.measurer.display.run(self.tasks[task_id], len(batch.inputs)):
            try:
                end_round(self.policies[task_id], batch, self.measurer)
            except SearchFailed as failure:
                self._give_up(task_id, failure)
            return [cost_of(res) for _, res in batch.measured]
