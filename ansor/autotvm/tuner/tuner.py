"""The loop of all tuners: plan configurations, measure them, learn.

A tuner of one's own is a subclass with `plan`, and `learn` if it learns:

    class Mine(Tuner):
        def plan(self):                        # indices to measure next, in this order
            return self.unseen.sample(16, self.rng)

        def learn(self, indices, scores):      # scores: FLOPS, 0 for a failure
            ...

A plan is measured to its end before the next one is asked for, in batches of any size; so how many configurations are
measured at a time changes nothing.  No configuration is measured twice: what was before is dropped from a plan.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from te_lite.errors import require

from ..callback import Callback, Closes, si_scale
from ..config import ConfigEntity
from ..errors import TemplateError
from ..knob import Array
from ..measure import MeasureInput, Measurer, MeasureResult, OpensMeasurer
from ..record import is_of
from ..task import Task
from .unseen import Unseen

MANY_ERRORS = 150
logger = logging.getLogger("autotvm")


class Tuner:
    """Base of tuners.  `rng` decides everything that is random; without one, a seed is drawn.

    `best_config`, `best_flops` and `best_measure_pair` are the best so far, `best_iter` the number of its trial, or 0
    when it came from a history.
    """

    def __init__(
        self, task: Task, rng: np.random.Generator | None = None, range_idx: tuple[int, int] | None = None
    ) -> None:
        law = "the random numbers come from a numpy Generator, rng=np.random.default_rng(seed)"
        require(rng is None or isinstance(rng, np.random.Generator), TemplateError, type(self).__name__, law, got=rng)
        self.task = task
        self.space = task.config_space
        self.rng = np.random.default_rng() if rng is None else rng
        self.unseen = Unseen(self.space, range_idx)
        self.best_config: ConfigEntity | None = None
        self.best_flops = 0.0
        self.best_measure_pair: tuple[MeasureInput, MeasureResult] | None = None
        self.best_iter = 0
        self.trials = 0
        self._queue: deque[int] = deque()

    # ------------------------------------------------------------------------------------------ to be overridden

    def plan(self) -> Sequence[int]:
        """Indices to measure next, as many as the tuner likes; none when it has nothing left to propose."""
        raise NotImplementedError

    def learn(self, indices: Array, scores: Array) -> None:
        """Results: int64 [n] and FLOPS, float64 [n], 0 for a failure."""

    # ------------------------------------------------------------------------------------------------- protocol

    def has_next(self) -> bool:
        """Whether there is a configuration that was not proposed yet."""
        return len(self.unseen) > 0

    def next_batch(self, batch_size: int) -> list[ConfigEntity]:
        """Up to `batch_size` configurations that were never proposed before; fewer at the end of a plan."""
        batch: list[ConfigEntity] = []
        while len(batch) < batch_size and self.has_next():
            if not self._queue:
                planned = [] if batch else [int(k) for k in self.plan()]
                self._queue.extend(k for k in planned if self.unseen.fresh(np.array([k]))[0])
                if not self._queue:
                    break
            index = self._queue.popleft()
            if self.unseen.take(index):
                batch.append(self.space.get(index))
        return batch

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Take in results of this task's configurations."""
        for inp, res in zip(inputs, results, strict=True):
            flops = inp.task.flop / res.cost if res.ok else 0.0
            if flops > self.best_flops:
                self.best_flops, self.best_config, self.best_measure_pair = flops, inp.config, (inp, res)
        indices = np.array([inp.config.index for inp in inputs], np.int64)
        scores = [self.task.flop / res.cost if res.ok else 0.0 for res in results]
        self.learn(indices, np.array(scores, np.float64))

    def load_history(self, data_set: Iterable[tuple[MeasureInput, MeasureResult]], min_seed_records: int = 0) -> int:
        """Take in records: those of this task count as measured, and are never measured again.

        Gives their number.  Records of other tasks teach the tuners that learn across tasks, from `min_seed_records`
        of them on.
        """
        own: dict[int, tuple[MeasureInput, MeasureResult]] = {}
        others = []
        for inp, res in data_set:
            index = self._index_here(inp)
            if index is not None:
                own[index] = (inp, res)
            elif inp.task.name == self.task.name:
                others.append((inp, res))
        fresh = [(k, pair) for k, pair in own.items() if self.unseen.take(k)]
        inputs = [MeasureInput(self.task.target_text, self.task, self.space.get(k)) for k, _ in fresh]
        if inputs:
            self.update(inputs, [res for _, (_, res) in fresh])
        if len(others) >= max(1, min_seed_records):
            self.learn_from_others(others)
        return len(inputs)

    def learn_from_others(self, pairs: Sequence[tuple[MeasureInput, MeasureResult]]) -> None:
        """Take in records of other tasks of the same template."""

    def _index_here(self, inp: MeasureInput) -> int | None:
        """The index of a recorded configuration in this space; None for that of another task or space."""
        return self.space.index_of(inp.config) if is_of(inp, self.task) else None

    # ----------------------------------------------------------------------------------------------------- loop

    def tune(
        self,
        n_trial: int,
        measure_option: OpensMeasurer,
        early_stopping: int | None = None,
        callbacks: Iterable[Callback] = (),
        si_prefix: str = "G",
        time_limit: float | None = None,
    ) -> None:
        """Measure up to `n_trial` configurations, fewer when the space ends.

        Stops when `early_stopping` trials brought nothing better, and after the batch in which `time_limit` seconds
        have passed.  Callbacks hear of every batch; Ctrl-C stops the
        workers and passes on.  Raises TemplateError for numbers below 1, BackendError when the target cannot be had.
        """
        for name, value in (("n_trial", n_trial), ("early_stopping", early_stopping)):
            ok = value is None or (isinstance(value, int | np.integer) and value >= 1)
            require(ok and n_trial is not None, TemplateError, "tune", f"{name} must be at least 1", got=value)
        law = "time_limit must be a positive number of seconds"
        require(time_limit is None or time_limit > 0, TemplateError, "tune", law, got=time_limit)
        deadline = math.inf if time_limit is None else time.monotonic() + time_limit
        told = _Log(self, si_scale(si_prefix), si_prefix)
        everyone = [*callbacks, told]
        with _closing(everyone), _opened(measure_option, self.task) as measurer:
            end = self.trials + n_trial
            start = self.trials
            while self.trials < end and self.has_next():
                configs = self.next_batch(min(measurer.n_parallel, end - self.trials))
                if not configs:
                    break
                inputs = [MeasureInput(self.task.target_text, self.task, config) for config in configs]
                results = measurer.measure(inputs)
                self._count(inputs, results)
                for callback in everyone:
                    callback(self, inputs, results)
                stuck = early_stopping is not None and self.trials - max(self.best_iter, start) >= early_stopping
                if stuck or time.monotonic() >= deadline:
                    break

    def _count(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        before = self.best_flops
        self.trials += len(inputs)
        self.update(inputs, results)
        if self.best_flops > before and self.best_measure_pair is not None:
            best = self.best_measure_pair[0]
            self.best_iter = self.trials - len(inputs) + 1 + next(k for k, inp in enumerate(inputs) if inp is best)


@contextmanager
def _opened(option: OpensMeasurer, task: Task) -> Iterator[Measurer]:
    law = "the measure option must come from measure_option(builder=..., runner=...), or have a method open"
    require(isinstance(option, OpensMeasurer), TemplateError, "tune", law, got=option)
    measurer = option.open(task)
    try:
        yield measurer
    finally:
        measurer.close()


@contextmanager
def _closing(callbacks: Sequence[Callback]) -> Iterator[None]:
    try:
        yield
    finally:
        for callback in callbacks:
            if isinstance(callback, Closes):
                callback.close()


class _Log:
    """Says every result at debug level, warns of many failures in a row, and of a run in which all failed."""

    def __init__(self, tuner: Tuner, scale: float, prefix: str) -> None:
        self.tuner, self.scale, self.unit = tuner, scale, f"{prefix}FLOPS"
        self.number = self.errors_in_a_row = 0
        self.reasons: Counter[str] = Counter()

    def __call__(self, tuner: Tuner, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, res in zip(inputs, results, strict=True):
            self.number += 1
            flops = inp.task.flop / res.cost / self.scale if res.ok else 0.0
            best = tuner.best_flops / self.scale
            logger.debug("No: %d\t%s: %.2f/%.2f\tresult: %s\t%s", self.number, self.unit, flops, best, res, inp.config)
            self.errors_in_a_row = 0 if res.ok else self.errors_in_a_row + 1
            if not res.ok:
                self.reasons[res.error_msg] += 1
            if self.errors_in_a_row == MANY_ERRORS:
                logger.warning("%d configurations in a row failed; the last: %s", MANY_ERRORS, res.error_msg)

    def close(self) -> None:
        """The end of the run."""
        failures = sum(self.reasons.values())
        if self.number and failures == self.number:
            reason, times = self.reasons.most_common(1)[0]
            logger.warning("all %d configurations failed, %d of them thus: %s", failures, times, reason)
