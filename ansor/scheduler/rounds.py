"""Rounds that are begun and ended apart: on a device of its own, some are searched and built while another is measured.

The next round is begun before the last one ends, so it is chosen, and its programs are proposed, from what was known
after an earlier one: never from "whatever is there by now", so that a seed decides the run.  Where programs run on the
processor that searches, a round happens as a whole, when it ends.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

from ..core.tasks.measure_values import Baseline
from ..core.tasks.task import SearchTask
from ..measure.batch import Batch
from ..measure.finals import Field
from ..measure.measurer import ProgramMeasurer
from ..measure.pipeline import alone
from ..policy.early_stopping import stopped
from ..policy.exchange import checked_round, searching
from ..policy.protocols import AsksAhead, Foresees, RoundPolicy
from ..policy.search_failure import SearchFailed, reporting
from ..policy.search_loop import begin_round, end_round, start_baselines
from ..policy.transfer import transfer
from .task_progress import LEAST_COST, cost_of

CONFIRMED = Field(3, 8)
"""How many programs of a task are timed in turns when the run ends: there are many tasks, and each has one winner."""
BUILT_APART = 2
"""Rounds that are built side by side where policies know nothing of each other: one is measured meanwhile."""
BUILT, SHARE_BUILT = 256, 4
"""More of them are where rounds are small: one more as long as those before it have fewer candidates than four usual
rounds, and are less than one for so many tasks.

A program that compiles for seconds then holds back its own round, and no builder.  Of ResNet-18's programs half are
built in 0.4 s, one in a hundred takes over 3 s, and a few 9 s, in which 16 cores build 250 others; with three rounds of
43 at once such cores beside an H200 stood still for a fifth of the time.  Candidates are counted, not builders, so that
a seed decides the run on every machine.
"""
SEARCHED = 32
"""Behind those others are searched: at least one, and half as many as may be built as long as they have fewer
candidates than this."""
logger = logging.getLogger(__name__)


def _nothing() -> None:
    """What is to be done for a round that is whole, or has nothing to measure."""


@dataclass(frozen=True)
class Round:
    """A round of the task number `task_id` that was begun; it has at most `trials` candidates.

    `start` sees to it that they are built, and waits for nothing where they are `known`; `costs` waits for their
    latencies, in seconds, and the policy learns them.
    """

    task_id: int
    trials: int
    costs: Callable[[], list[float]] = list
    start: Callable[[], None] = _nothing
    known: Callable[[], bool] = lambda: True


class Rounds:
    """Begins rounds; `has_room` says how many may be under way.

    `ahead` is 0 when programs run on the host, or a policy cannot be asked ahead (`RoundPolicy`), and else 1: so many
    rounds are under way when another one is begun, or more where policies search `apart`.  A task whose search fails
    has nothing more to measure; `failures` says why, by task.  `judged` says that the same goes for one whose policy
    says that nothing more is to be had.
    """

    def __init__(
        self, tasks: Sequence[SearchTask], policies: Sequence[RoundPolicy], measurer: ProgramMeasurer,
        judged: bool = False, apart: bool = False,
    ) -> None:  # fmt: skip
        self.tasks = tuple(tasks)
        self.policies = tuple(policies)
        self.measurer = measurer
        self.judged = judged
        self.apart = apart
        self.failures: dict[int, SearchFailed] = {}
        self._begun: set[int] = set()
        self._foreseen: set[int] = set()
        self._awaited: dict[int, set[int]] = {}
        self._first_trials = self._first_tasks = 0
        self._running = 0
        self._to_start: deque[Round] = deque()
        on_device = not any(alone(t, measurer.runner) for t in self.tasks)
        able = on_device and all(isinstance(p, AsksAhead) and p.rounds_ahead >= 1 for p in self.policies)
        self.ahead = 1 if able else 0
        self._most_built = max(BUILT_APART, len(self.tasks) // SHARE_BUILT)

    def has_room(self, under_way: Sequence[Round]) -> bool:
        """Whether another round may be begun while these are under way: numbers and sizes say that, and no clock.

        One that finds nothing new to measure ends before another one is begun.
        """
        if under_way and not under_way[-1].trials:
            return False
        if not (self.apart and self.ahead):
            return len(under_way) <= self.ahead
        searched = under_way[len(self.built(under_way)) :]
        return len(searched) < self._most_built // 2 and sum(round.trials for round in searched) < SEARCHED

    def built(self, under_way: Sequence[Round]) -> Sequence[Round]:
        """Those of the rounds under way that are built side by side; the others are searched."""
        before = accumulate([round.trials for round in under_way], initial=0)
        small = sum(candidates < BUILT for _, candidates in zip(under_way, before, strict=False))
        return under_way[: min(self._most_built, max(BUILT_APART, small))]

    def end(self, under_way: Sequence[Round]) -> list[float]:
        """The latencies of the oldest round under way, waited for; meanwhile others are built in turn, once known."""
        self._to_start = deque(self.built(under_way)[1:])
        under_way[0].start()
        return under_way[0].costs()

    def _start_known(self) -> None:
        while self._to_start and self._to_start[0].known():
            self._to_start.popleft().start()

    def in_order(self, fresh: Sequence[int]) -> list[int]:
        """Tasks that had no round yet, in the order of their first ones.

        Where policies search apart, one of each kind comes first: by then, those like it begin with what it found.
        """
        if not self.apart:
            return list(fresh)
        tasks, between = self.tasks, transfer()
        before = [sum(between.alike(tasks[j], task) for j in range(k)) for k, task in enumerate(tasks)]
        return sorted(fresh, key=lambda k: (before[k], k))

    def foresee(self, task_ids: Sequence[int], trials: int) -> None:
        """The first rounds of these tasks are begun next, in this order: policies that think elsewhere begin with them.

        One waits until it knows the best programs of all tasks like its own that come before it.
        """
        self._awaited, self._first_trials, self._first_tasks = {}, trials, len(task_ids)
        between = transfer()
        for place, k in enumerate(task_ids):
            policy = self.policies[k]
            if isinstance(policy, Foresees):
                if Baseline.DEFAULT in self.measurer.missing_baselines(self.tasks[k]):
                    policy.foresee_default()
                self._awaited[k] = {j for j in task_ids[:place] if between.alike(self.tasks[j], self.tasks[k])}
                self._foresee_free()

    def _foresee_free(self, known: int | None = None) -> None:
        """Begin with the first rounds of tasks that wait for none but the one that is `known` now."""
        for awaited in self._awaited.values():
            awaited.discard(-1 if known is None else known)
        for k in [k for k, awaited in self._awaited.items() if not awaited]:
            del self._awaited[k]
            self._foresee(k, self._first_trials)
            self._foreseen.add(k)

    def _foresee(self, task_id: int, trials: int) -> None:
        policy = self.policies[task_id]
        if isinstance(policy, Foresees):
            policy.foresee(trials)

    def begin(self, task_id: int, trials: int, fresh: int = 0) -> Round:
        """A round of `trials` candidates, fewer when there are no more that are new.

        Under a limit of time the first round of a task has its part of the first half: so much for each of `fresh`
        tasks that had none yet, this one among them.  One candidate at least is measured, but none of a later round
        that is still searched when the time is up.
        Before the first one of a task its untuned program and the default schedule are measured, which are no trials.
        """
        parts = self._first_tasks + fresh if fresh else 1
        if task_id in self.failures or (self.judged and self._stopped(task_id)):
            return Round(task_id, 0)
        if self.ahead == 0:
            self.measurer.until = self.measurer.limit.share(parts)
            begun = self._first(task_id)
            return Round(task_id, trials, partial(self._whole, task_id, trials)) if begun else Round(task_id, 0)
        self.measurer.prepare(self.tasks[task_id])
        round = _Ahead(self, task_id, trials, parts)
        if not isinstance(self.policies[task_id], Foresees):
            round.start()
        elif task_id not in self._foreseen:
            self._awaited.pop(task_id, None)
            self._foresee(task_id, trials)
        self._foreseen.discard(task_id)
        return Round(task_id, trials if self.apart else round.trials, round.costs, round.start, round.known)

    def confirmed(self) -> list[float | None]:
        """The latencies of all tasks after their best few programs were timed in turns; None where they were not.

        Where builds disturb no timing, those of all tasks are begun before.
        """
        for task in self.tasks if self.ahead else ():
            self.measurer.build_finalists(task, CONFIRMED)
        return [self._confirmed(task) for task in self.tasks]

    def _confirmed(self, task: SearchTask) -> float | None:
        best = self.measurer.confirm(task, CONFIRMED, f"{task.desc or task.title}, timed again in turns")
        return None if best is None else max(best.cost, LEAST_COST)

    def settle(self) -> None:
        """Wait, within the limit of time, until policies that think elsewhere have learnt; who fails is given up."""
        for k, policy in enumerate(self.policies):
            if isinstance(policy, Foresees) and k not in self.failures:
                try:
                    with reporting(self.tasks[k], policy, "settle"):
                        policy.settle(self.measurer.limit.until)
                except SearchFailed as failure:
                    self.give_up(k, failure)

    def give_up(self, task_id: int, failure: SearchFailed) -> None:
        """Measure no more of a task."""
        self.failures[task_id] = failure
        self._foresee_free(task_id)
        logger.warning("%s", failure)

    def _stopped(self, task_id: int) -> bool:
        """Whether nothing more is to be had of a task, or its policy fails to say so."""
        try:
            return stopped(self.tasks[task_id], self.policies[task_id], self.measurer)
        except SearchFailed as failure:
            self.give_up(task_id, failure)
            return True

    def _first(self, task_id: int) -> bool:
        """Before the first round of a task, begin with its baselines; False where that fails."""
        try:
            if task_id not in self._begun:
                self._begun.add(task_id)
                start_baselines(self.tasks[task_id], self.policies[task_id], self.measurer)
        except SearchFailed as failure:
            self.give_up(task_id, failure)
            return False
        return True

    def started(self, task_id: int, trials: int, parts: int) -> Batch | None:
        """The candidates of a round, which are built and run from now on; None where the search of its task fails.

        A round that others are measured before has its part of the time after theirs.
        """
        limit = self.measurer.limit
        after = self.measurer.until if self._running else -math.inf
        self.measurer.until = limit.until
        if not self._first(task_id):
            return None
        try:
            until = partial(limit.share, parts, after)
            batch = begin_round(self.policies[task_id], self.tasks[task_id], trials, self.measurer, until)
        except SearchFailed as failure:
            self.give_up(task_id, failure)
            return None
        self._running += 1
        return batch

    def ended(self, task_id: int, batch: Batch) -> list[float]:
        """The latencies of the candidates of a round that was started, in seconds, waited for."""
        with self.measurer.display.run(self.tasks[task_id], len(batch.inputs)):
            try:
                end_round(self.policies[task_id], batch, self.measurer, self._start_known)
            except SearchFailed as failure:
                self.give_up(task_id, failure)
            self._running -= 1
            self._foresee_free(task_id)
            return [cost_of(res) for _, res in batch.measured]

    def _whole(self, task_id: int, trials: int) -> list[float]:
        with self.measurer.display.run(self.tasks[task_id], trials):
            try:
                policy = self.policies[task_id]
                with searching(policy, "continue_search_one_round", self.measurer):
                    answer = policy.continue_search_one_round(trials, self.measurer)
                results = checked_round(policy, answer)
            except SearchFailed as failure:
                self.give_up(task_id, failure)
                results = failure.results
        return [cost_of(res) for res in results]


class _Ahead:
    """A round that is started, at the latest when the one before it is waited for, and ended apart.

    A later one of its task, of one part, is not started any more when the time is up.
    """

    def __init__(self, rounds: Rounds, task_id: int, trials: int, parts: int) -> None:
        self._rounds, self._task_id, self._most, self._parts = rounds, task_id, trials, parts
        self._batch: Batch | None = None
        self._started = False

    @property
    def trials(self) -> int:
        """How many candidates it has, by what is known."""
        return 0 if self._batch is None else len(self._batch.inputs)

    def known(self) -> bool:
        """Whether `start` waits for nothing."""
        policy = self._rounds.policies[self._task_id]
        return self._started or not isinstance(policy, Foresees) or policy.known()

    def start(self) -> None:
        """Build and run the candidates, once."""
        if not self._started:
            self._started = True
            if self._parts == 1 and self._rounds.measurer.limit.over:
                return
            self._batch = self._rounds.started(self._task_id, self._most, self._parts)

    def costs(self) -> list[float]:
        """The latencies of the candidates in seconds."""
        self.start()
        return [] if self._batch is None else self._rounds.ended(self._task_id, self._batch)
