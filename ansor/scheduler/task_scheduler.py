"""Tunes several tasks with one budget: round by round, the task that promises most for the whole.

On a device of its own a round is begun while some before it are under way (`rounds.py`).  Its task is chosen from what
was known before those; they are taken to bring nothing better.
"""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from te_lite.errors import require

from ..core.device.backend import backend
from ..core.errors import BudgetError, TaskError
from ..core.tasks.protocols import KeepsWeights
from ..core.tasks.task import SearchTask
from ..core.values.checks import chosen_seed
from ..measure.measurer import ProgramMeasurer
from ..measure.pipeline import alone
from ..measure.time_limit import UNLIMITED
from ..policy.early_stopping import AUTO, require_judge
from ..policy.protocols import RoundPolicy
from ..policy.search_failure import SearchFailed
from ..policy.search_loop import check_logs, continue_log, log_to_continue, say_other_targets
from ..policy.task_actions import require_measurable, say_if_noisy
from ..policy.transfer import offer_similar
from ..policy.tuning_options import TuningOptions, callbacks_with
from ..records.best import history
from ..records.lines import Record
from .callbacks import PrintTableInfo, RoundCallback
from .gradient import GradientParams, Objective, SchedulerState, evaluate, pick_by_gradient, pick_in_turn, stand_ins
from .groups import group_tasks, leave_if_behind
from .policies import know_others, make_search_policies
from .policy_processes import chosen_processes, in_processes
from .report import Row, Summary
from .restore import restore, settled
from .rounds import Round, Rounds
from .task_progress import TaskProgress

PathLike = str | os.PathLike[str]
UNUSED_GAMMA = 0.5


class TaskScheduler:
    """Divides trials among tasks so that an objective of their latencies gets small.

    The objective is `objective_func(latencies)`, which gets a list of seconds in the order of the tasks; without one
    it is the sum of the latencies, each times its number in `task_weights` (how often a task occurs in a network).
    `strategy` is "gradient" (see `scheduler/gradient.py` for `alpha`, `beta` and `backward_window_size`) or
    "round-robin".  No formula uses `gamma`: only its customary value is accepted.

    With `load_log_file` the tasks go on where the log ends: its programs are not measured again, its trials count for
    the tasks, and the model learns them.  `load_model_file` is what the model starts from.  Neither is written to.
    `callbacks` have `pre_tune(scheduler, task_id)` and `post_tune(scheduler, task_id)`; None means the printed table.
    `seed` decides all candidates; without one it is drawn and kept in `self.seed`.

    Raises TaskError for no tasks, a workload that occurs twice, weights that are not one number >= 0 a task, weights
    beside an objective function, one that gives no number, parameters out of range, or a negative seed.
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        task_weights: Sequence[float] | None = None,
        objective_func: Objective | None = None,
        strategy: str = "gradient",
        load_model_file: PathLike | None = None,
        load_log_file: PathLike | None = None,
        alpha: float = 0.2,
        beta: float = 2,
        gamma: float = UNUSED_GAMMA,
        backward_window_size: int = 3,
        callbacks: Sequence[RoundCallback] | None = None,
        seed: int | None = None,
    ) -> None:
        law = "a list of SearchTask objects is needed"
        ok = isinstance(tasks, list | tuple) and all(isinstance(t, SearchTask) for t in tasks)
        require(ok, TaskError, "TaskScheduler", law, got=tasks)
        self.tasks = tuple(tasks)
        _check_tasks(self.tasks)
        require(gamma == UNUSED_GAMMA, TaskError, "TaskScheduler", "no formula uses gamma, leave it out", gamma=gamma)
        names = ("gradient", "round-robin")
        require(strategy in names, TaskError, "TaskScheduler", f"strategy is one of {names}", strategy=strategy)
        self.strategy = strategy
        self.own_objective = objective_func is not None
        self.task_weights = None if task_weights is None else tuple(task_weights)
        self.objective_func = _objective(len(self.tasks), task_weights, objective_func)
        self.params = GradientParams(alpha, beta, backward_window_size)
        self.load_model_file = load_model_file
        self.load_log_file = load_log_file
        needed = "pre_tune or post_tune"
        given = [PrintTableInfo()] if callbacks is None else callbacks
        self.callbacks: tuple[RoundCallback, ...] = callbacks_with(needed, "callbacks", given, (RoundCallback,))
        self.seed = chosen_seed("TaskScheduler", seed)
        self.flops = tuple(t.compute_dag.flop_ct for t in self.tasks)
        self._reset((TaskProgress(),) * len(self.tasks), 0, 1, 0)

    def _reset(self, progress: Sequence[TaskProgress], trials: int, per_round: int, verbose: int) -> None:
        self.progress = tuple(progress)
        self.groups = group_tasks(self.tasks)
        self.num_measure_trials = trials
        self.num_measures_per_round = per_round
        self.verbose = verbose
        self.ct = 0
        self._early_stopping: int | None = None
        self._patience: int | None = None
        self._last = -1
        self._under_way: deque[Round] = deque()
        self._over = False
        self._best_ct = 0
        self._best_reached = self._reached()
        self._start = time.monotonic()
        self._limit = UNLIMITED
        self.failures: Mapping[int, SearchFailed] = {}

    # --------------------------------------------------------------------------------------------- what is known

    @property
    def best_costs(self) -> list[float]:
        """The least latency of each task, in seconds; infinite as long as no program worked."""
        return [s.cost for s in self.progress]

    @property
    def task_trials(self) -> list[int]:
        """How many programs of each task were measured, those of the log included."""
        return [s.trials for s in self.progress]

    @property
    def alive(self) -> tuple[int, ...]:
        """The tasks that can still be chosen, ascending: not used up, and better within the patience for a task."""
        return tuple(k for k, s in enumerate(self.progress) if not s.dead(self._patience))

    @property
    def score(self) -> float | None:
        """The objective of the best latencies; None until every task has a program that works."""
        return evaluate(self.objective_func, self.best_costs) if all(s.valid for s in self.progress) else None

    @property
    def done(self) -> bool:
        """Whether the run has ended: trials or time are spent, every task is dead, or nothing got better for
        `early_stopping` trials; and no round is under way any more.
        """
        return not self._under_way and not self._goes_on

    @property
    def _goes_on(self) -> bool:
        """Whether another round is to be begun."""
        return not self._over and self._asked < self.num_measure_trials

    @property
    def _asked(self) -> int:
        """Trials of this run that were measured or are under way."""
        return self.ct + sum(r.trials for r in self._under_way)

    def _is_over(self) -> bool:
        """Whether time is spent, every task is dead, or nothing got better for too long, by the rounds that ended."""
        alive = self.alive
        stuck = self._early_stopping is not None and self.ct - self._best_ct >= self._early_stopping
        return self._limit.over or not alive or (stuck and all(self.progress[k].rounds for k in alive))

    def rows(self) -> list[Row]:
        """What the table says of each task."""
        return [
            Row(task.desc, s.cost if s.valid else None, flops, s.trials)
            for task, s, flops in zip(self.tasks, self.progress, self.flops, strict=True)
        ]

    def summary(self) -> Summary:
        """What the table says of all tasks; trials of the log count, seconds are those of this run."""
        return Summary(self.score, sum(self.task_trials), time.monotonic() - self._start, self.own_objective)

    # ---------------------------------------------------------------------------------------------------- tuning

    def tune(
        self,
        tune_option: TuningOptions,
        search_policy: str | Sequence[RoundPolicy] = "default",
        search_policy_params: Mapping[str, Any] | None = None,
        adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
        policy_processes: int | None = None,
    ) -> None:
        """Measure `num_measure_trials` new programs: one round for each task that has no record, then by strategy.

        `early_stopping` of the options ends the run after so many trials in which the objective got no better and no
        task got its first program that works, or, with "auto", each task when its policy says that nothing more is to
        be had; `per_task_early_stopping` ends a task after so many of its own.
        `time_limit` ends the run after so many seconds, whatever tasks had no round yet: the first rounds share half
        of what is left of it, each measures one program at least, and a part is for the turns in the end.
        Policies are made by `make_search_policies`; those with models of their own search side by side, where nothing
        is measured on this processor, in so many `policy_processes`, which change nothing of what is searched (None:
        one for each core that may be used, if there are three or more).
        The run goes on from the records of `load_log_file`, or else of the log that the options write.
        Before the first round of a task its untuned program and the default schedule are measured, which are no
        trials; at the end the best few programs of each task are timed in turns, and `best_costs` are what they took.
        A task whose search fails is given up, the others go on; `failures` says which.  Ctrl-C stops the workers.

        Raises BudgetError for fewer trials than tasks without a record, TaskError for a bad policy, BackendError when
        a target cannot be had here, JournalError when the log cannot be read.
        """
        options = tune_option
        check_logs(self.tasks, options)
        log, records = self._begin_with_log(options, _patience(per_task_early_stopping))
        kinds = _kinds(self.tasks)
        processes = chosen_processes(policy_processes, len(self.tasks))
        policies = make_search_policies(
            search_policy, search_policy_params, self.tasks, self.num_measures_per_round, options.verbose,
            self.load_model_file, log, adaptive_training, self.seed, records,
        )  # fmt: skip
        for policy in policies:
            require_judge(policy, options.early_stopping)
        continue_log(policies, options)
        with ExitStack() as stack:
            builder, runner = stack.enter_context(options.measuring(kinds))
            apart = know_others(search_policy, self.tasks) and not any(alone(task, runner) for task in self.tasks)
            offer_similar(policies, runner, records or (), apart)
            del records
            require_measurable(runner, self.tasks)
            policies = stack.enter_context(in_processes(policies, processes if apart else 0))
            measurer = ProgramMeasurer(builder, runner, options.hearers(runner), options.verbose)
            measurer.begin()
            with measurer.closing_on_error():
                self._tell_weights(measurer.callbacks)
                say_if_noisy(options, kinds, measurer.display)
                rounds = Rounds(self.tasks, policies, measurer, options.early_stopping == AUTO, apart)
                self._limit = measurer.limited(options.time_limit, len(self.tasks))
                self.failures = rounds.failures
                self._tune_all(rounds)

    def _begin_with_log(
        self, options: TuningOptions, patience: int | None
    ) -> tuple[PathLike | None, Sequence[Record] | None]:
        """Begin where a log leaves the tasks; gives that log and its records, if there is one."""
        log = log_to_continue(options) if self.load_log_file is None else self.load_log_file
        records, costs = (None, {}) if log is None else history(log)
        if log is not None:
            say_other_targets(log, records or (), self.tasks)
        self._begin(options, patience, records or (), costs)
        return log, records

    def _begin(
        self, options: TuningOptions, patience: int | None, records: Sequence[Record],
        costs: Mapping[tuple[str, str], float],
    ) -> None:  # fmt: skip
        trials, tasks = options.num_measure_trials, len(self.tasks)
        per_round = max(1, min(options.num_measures_per_round, trials // tasks))
        progress = settled(restore(records, self.tasks, per_round), costs, self.tasks)
        new = sum(s.rounds == 0 for s in progress)
        law = f"each of the {new} tasks without a record needs a trial, num_measure_trials must be at least that"
        require(trials >= new, BudgetError, "TaskScheduler", law, num_measure_trials=trials)
        self._reset(progress, trials, per_round, options.verbose)
        given = options.early_stopping
        self._early_stopping = None if isinstance(given, str) else given
        self._patience = patience
        self._over = self._is_over()

    def _tell_weights(self, callbacks: Sequence[Any]) -> None:
        """Callbacks that keep them (`KeepsWeights`) hear how much each task counts."""
        for callback in callbacks:
            if self.task_weights is not None and isinstance(callback, KeepsWeights):
                callback.weighed(self.tasks, self.task_weights)

    def _tune_all(self, rounds: Rounds) -> None:
        """Begin and end rounds."""
        if self._goes_on:
            rounds.foresee(rounds.in_order(self._fresh), self._room)
        while self._under_way or self._goes_on:
            if self._goes_on and self._free and rounds.has_room(tuple(self._under_way)):
                self._begin_round(rounds)
            else:
                self._end_round(rounds)
        rounds.settle()

    @property
    def _room(self) -> int:
        """How many candidates the next round has."""
        return min(self.num_measures_per_round, self.num_measure_trials - self._asked)

    @property
    def _free(self) -> tuple[int, ...]:
        """The tasks that can be chosen, without one that has two rounds under way already."""
        under_way = [round.task_id for round in self._under_way]
        return tuple(k for k in self.alive if under_way.count(k) < 2)

    @property
    def _fresh(self) -> list[int]:
        """The tasks that can be chosen and had no round yet, nor have one under way."""
        return [k for k in self._free if self._expected()[k].rounds == 0]

    def _pick(self, rounds: Rounds) -> int:
        """The next task: one that had no round yet, otherwise by strategy."""
        if fresh := self._fresh:
            return rounds.in_order(fresh)[0]
        if self.strategy == "round-robin":
            return pick_in_turn(self._last, self._free)
        state = SchedulerState(self._expected(), self._free, self.flops, self.groups)
        return pick_by_gradient(state, self.objective_func, self.params)

    def _expected(self) -> tuple[TaskProgress, ...]:
        """The progress when no round under way brings anything better."""
        expected = list(self.progress)
        for round in self._under_way:
            expected[round.task_id] = expected[round.task_id].after_round([math.inf] * round.trials)
        return tuple(expected)

    def _begin_round(self, rounds: Rounds) -> None:
        """Choose a task, and begin a round on it within the budget."""
        self._last = self._pick(rounds)
        for callback in self.callbacks:
            callback.pre_tune(self, self._last)
        self._under_way.append(rounds.begin(self._last, self._room, len(self._fresh)))

    def _end_round(self, rounds: Rounds) -> None:
        """End the oldest round under way, and count its results; the last one ends with the turns of the best.

        While it is waited for the next ones are built.
        """
        costs = rounds.end(tuple(self._under_way))
        task_id = self._under_way.popleft().task_id
        self._count(task_id, costs)
        if self.done:
            self._confirm(rounds)
        for callback in self.callbacks:
            callback.post_tune(self, task_id)

    def _count(self, task_id: int, costs: Sequence[float]) -> None:
        self.ct += len(costs)
        self.progress = tuple(s.after_round(costs) if k == task_id else s for k, s in enumerate(self.progress))
        self.groups = leave_if_behind(self.groups, task_id, self.progress, self.flops, self.params.beta)
        reached = self._reached()
        if reached < self._best_reached:
            self._best_reached, self._best_ct = reached, self.ct
        self._over = self._over or self._is_over()

    def _confirm(self, rounds: Rounds) -> None:
        """Know every task that was measured here by the times of its best few programs in turns."""
        costs = rounds.confirmed()
        rounds.measurer.say_if_over(self.ct < self.num_measure_trials)
        pairs = zip(self.progress, costs, strict=True)
        self.progress = tuple(s if cost is None else s.confirmed(cost) for s, cost in pairs)

    def _reached(self) -> tuple[int, float]:
        """Falls when a task gets its first program, and when the objective falls."""
        missing = sum(not s.valid for s in self.progress)
        if missing == len(self.tasks):
            return missing, math.inf
        return missing, evaluate(self.objective_func, stand_ins(self.progress))


def _check_tasks(tasks: Sequence[SearchTask]) -> None:
    require(tasks, TaskError, "TaskScheduler", "at least one task is needed")
    seen: dict[tuple[str, str], int] = {}
    for k, task in enumerate(tasks):
        first = seen.setdefault((task.workload_key, task.target.key), k)
        law = f"tasks {first} and {k} are the same, give it once and a weight"
        require(first == k, TaskError, "TaskScheduler", law, workload_key=task.workload_key)


def _kinds(tasks: Sequence[SearchTask]) -> tuple[str, ...]:
    """The target kinds of tasks, each once.  Raises BackendError for one that cannot be had here."""
    kinds = tuple(dict.fromkeys(task.target.kind.name for task in tasks))
    for kind in kinds:
        backend(kind)
    return kinds


def _objective(count: int, weights: Sequence[float] | None, objective: Objective | None) -> Objective:
    """The objective as a function of the list of latencies; it must give a number for latencies of a millisecond."""
    if weights is not None:
        require(objective is None, TaskError, "TaskScheduler", "give task_weights or objective_func, not both")
        given = [float(w) for w in weights]
        ok = len(given) == count and all(0 <= w < math.inf for w in given)
        law = f"task_weights must be {count} finite numbers that are not negative"
        require(ok, TaskError, "TaskScheduler", law, task_weights=given)
        return partial(_weighted_sum, tuple(given))
    chosen = sum if objective is None else objective
    law = "objective_func must be a function of a list of seconds"
    require(callable(chosen), TaskError, "TaskScheduler", law, got=objective)
    evaluate(chosen, [1e-3] * count)
    return chosen


def _weighted_sum(weights: Sequence[float], costs: Sequence[float]) -> float:
    return sum(w * c for w, c in zip(weights, costs, strict=True))


def _patience(value: int | None) -> int | None:
    ok = value is None or (isinstance(value, int) and (value >= 1 or value == -1))
    law = "it must be an integer of at least 1, or None"
    require(ok, TaskError, "per_task_early_stopping", law, per_task_early_stopping=value)
    return None if value == -1 else value
