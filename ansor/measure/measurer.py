"""Drive builder and runner over candidates, keep count, and tell everybody of each result as soon as it is there."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.schedule.state import State

from ..core.errors import MeasureError
from ..core.tasks.measure_values import Baseline, DeviceUse, MeasureInput, MeasureResult
from ..core.tasks.protocols import (
    Builder,
    KeepsBaselines,
    KeepsConfirmed,
    KeepsRounds,
    KeepsUsage,
    MeasureCallback,
    PairedRunner,
    PreparesAhead,
    ReportsUse,
    Runner,
)
from ..core.tasks.task import SearchTask
from ..core.values.checks import counted
from ..core.values.steady import by_turns
from ..records.best import best_few, load_best_record, ranked_records
from ..records.lines import Record
from ..records.noted_records import baselines_of
from ..records.recorder import RecordToFile
from . import finals
from .answers import compared_by
from .batch import Batch
from .builds import Builds
from .displays import make_display
from .finals import FINALISTS, Field, Leader, Leaders
from .noise import unsteady
from .pipeline import Pipeline
from .progress import Display, outcome_text, seconds_text, spread_text
from .time_limit import TURNS_SECONDS, UNLIMITED, TimeLimit, now

logger = logging.getLogger("ansor")

TaskKey = tuple[str, str]


def key_of(task: SearchTask) -> TaskKey:
    """Workload key and the key of the target."""
    return task.workload_key, task.target.key


@dataclass
class Best:
    """The best program of a task so far; `trial` is the number of the measurement that found it."""

    cost: float
    state: State
    trial: int


class ProgramMeasurer:
    """Measures candidates in batches; `start` the next one before you `finish` the last, and the device never waits.

    Callbacks hear of every single result when it arrives, so what was measured survives whatever comes next.
    After `max_continuous_error` failures in a row a warning is given once; tuning goes on.
    """

    DEFAULT_MAX_CONTINUOUS_ERROR = 150

    def __init__(
        self,
        builder: Builder,
        runner: Runner,
        callbacks: Sequence[MeasureCallback] = (),
        verbose: int = 1,
        max_continuous_error: int | None = None,
    ) -> None:
        self.builder = builder
        self.runner = runner
        self.callbacks = tuple(callbacks)
        self.max_continuous_error = max_continuous_error or self.DEFAULT_MAX_CONTINUOUS_ERROR
        self.display: Display = make_display(verbose)
        self.display.devices(self.usage)
        self._pipeline = Pipeline(builder, runner)
        self._batches: list[Batch] = []
        self._shown: Batch | None = None
        self._numbers = 0
        self.logged: dict[TaskKey, float] = {}
        self.raised: Exception | None = None
        self._begun: float | None = None
        self.baselines: dict[TaskKey, dict[Baseline, tuple[MeasureInput, MeasureResult]]] = {}
        self._read: dict[Path, list[Record]] = {}
        self.reset()

    def reset(self) -> None:
        """Forget counts, best programs and limits of time; what the logs hold by now is of other runs."""
        self.count, self.errors_in_a_row, self._builds = 0, 0, Builds(self.builder)
        self._others = [log for log in self._logs() if log.stat().st_size > 0]
        self.limit, self.until, self._seconds = UNLIMITED, math.inf, 0.0
        self.best: dict[TaskKey, Best] = {}
        self._leaders: dict[TaskKey, Leaders] = {}

    def begin(self) -> None:
        """The next limit of time counts from now."""
        self._begun = now()

    def limited(self, seconds: float | None, tasks: int = 1) -> TimeLimit:
        """Measure within so many seconds from the last `begin`, if it was used by no limit yet, else from now.

        Of every batch one candidate at least is measured.
        """
        turns = TURNS_SECONDS * tasks if isinstance(self.runner, PairedRunner) else 0.0
        self.limit, self._begun = TimeLimit.of(seconds, turns, self._begun), None
        self.until = self.limit.until
        return self.limit

    def say_if_over(self, wanted: bool) -> None:
        """Say that the limit of time ended a search from which more was `wanted`."""
        if wanted and self.limit.over:
            self.display.note(self.limit.text())

    def best_of(self, task: SearchTask) -> Best | None:
        """The best program of a task so far."""
        return self.best.get(key_of(task))

    def measure(self, task: SearchTask, policy: Any, inputs: Sequence[MeasureInput]) -> list[MeasureResult]:
        """Build and run all inputs.  Raises as `finish` does."""
        return self.finish(self.start(task, policy, inputs))

    def start(self, task: SearchTask, policy: Any, inputs: Sequence[MeasureInput]) -> Batch:
        """Begin with a batch of candidates and do not wait for it; on a GPU they are built and run meanwhile.

        Raises the backend's error when the target cannot be had here.
        """
        batch = Batch(task, policy, tuple(inputs), self._numbers, {})
        self._say_measuring(len(inputs))
        self._start(batch)
        return batch

    def prepare(self, task: SearchTask) -> None:
        """Let a runner that can (`PreparesAhead`) make ready what it needs of a task that is measured soon."""
        if isinstance(self.runner, PreparesAhead):
            self.runner.prepare(task)

    def _say_measuring(self, programs: int) -> None:
        first = "computing the right result, " if self.count == 0 else ""
        self.display.phase(f"{first}building and running {counted(programs, 'program')}")

    def _start(self, batch: Batch) -> None:
        self._read.clear()
        self._numbers += len(batch.inputs)
        self._batches.append(batch)
        with self.closing_on_error():
            numbered, sure = list(enumerate(batch.inputs, batch.first)), int(batch.baseline is None)
            self._pipeline.start(numbered, self.until, sure, self.limit.until)

    @contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """Whatever goes wrong inside, Ctrl-C too, stops the workers; callbacks hear of what was measured by then."""
        try:
            yield
        except BaseException:
            try:
                self.close()
            except Exception as error:
                logger.warning("while stopping: %s", error)
            raise

    def finish(self, batch: Batch, meanwhile: Callable[[], None] | None = None) -> list[MeasureResult]:
        """Wait for a batch and give its results in order; callbacks hear of those of later batches, too.

        `meanwhile` is called again and again.  What was not begun within the limit of time has none (`Batch.measured`).

        Raises MeasureError when measurement as a whole cannot go on, and what callbacks raise.  The workers are
        stopped then, and on Ctrl-C.
        """
        require(batch in self._batches, MeasureError, "batch", "it was given back or dropped before", first=batch.first)
        self._say_measuring(len(batch.inputs))
        begun = now()
        with self.closing_on_error(), self._showing(batch):
            while not batch.complete:
                self._arrived(*self._pipeline.take(meanwhile))
        batch.spent.wait += now() - begun
        self._batches.remove(batch)
        self._tell_usage()
        return [result for _, result in batch.measured]

    def learnt(self, batch: Batch) -> None:
        """Callbacks that keep it (`KeepsRounds`) hear where the seconds of a round went, whose results are told."""
        for callback in self.callbacks:
            if isinstance(callback, KeepsRounds):
                with self._telling():
                    callback.round_ended(batch.task, batch.spent)

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """What a callback raises in here is kept as `raised`: whoever drives a search lets it pass."""
        try:
            yield
        except Exception as error:
            self.raised = error
            raise

    @contextmanager
    def _showing(self, batch: Batch) -> Iterator[None]:
        """The display hears of a batch while it is waited for, of its results by then at once."""
        self._shown = batch
        try:
            for number, result in batch.results.items():
                if result is not None:
                    self._show(batch, number, result)
            yield
        finally:
            self._shown = None

    def usage(self) -> list[DeviceUse]:
        """What each device did so far; empty for a runner that does not say (`ReportsUse`)."""
        return self.runner.usage() if isinstance(self.runner, ReportsUse) else []

    def _tell_usage(self) -> None:
        """Callbacks that keep it (`KeepsUsage`) hear what the devices did."""
        uses = self.usage()
        for callback in self.callbacks if uses else ():
            if isinstance(callback, KeepsUsage):
                with self._telling():
                    callback.usage(uses)

    def close(self) -> None:
        """Stop the workers and forget what was not measured yet; callbacks hear of all that was."""
        try:
            for number, result in self._pipeline.close():
                self._arrived(number, result)
        finally:
            self._batches, self._builds = [], Builds(self.builder)

    def missing_baselines(self, task: SearchTask) -> list[Baseline]:
        """The programs of a task that nobody searched for, those that no log that callbacks keep has.

        The untuned one comes last: it may be so slow that one call tells enough beside another.

        The best of a search is compared with them, so a runner that cannot compare (`PairedRunner`) misses none.
        """
        if not isinstance(self.runner, PairedRunner):
            return []
        known = self.baselines.setdefault(key_of(task), {})
        for log in self._logs():
            for which, (inp, result) in baselines_of(log, task).items():
                if which not in known:
                    known[which] = MeasureInput(task, steps=inp.steps), result
                    self.display.note(f"[0] {which.value}: {outcome_text(result)}, as {log} says")
        return [which for which in reversed(Baseline) if which not in known]

    def go_on(self, task: SearchTask) -> None:
        """Let the best that is shown for a task be that of its logs, until there is a better one."""
        for log in self._logs():
            known, result = load_best_record(log, task.workload_key, task.target)
            if known is not None and result is not None:
                cost = self.logged[key_of(task)] = min(result.cost, self.logged.get(key_of(task), np.inf))
                self.display.note(f"[0] best of {log} so far: {seconds_text(result.cost)}", cost)

    def start_baseline(self, task: SearchTask, policy: Any, which: Baseline, state: State) -> None:
        """Begin to measure a program that nobody searched for, as trial 0.  Raises as `start` does.

        It comes before the candidates that are started later, and is waited for with them.
        """
        self._start(Batch(task, policy, (MeasureInput(task, state),), self._numbers, {}, which))

    def _baseline_arrived(self, batch: Batch, which: Baseline, result: MeasureResult) -> None:
        self.baselines.setdefault(key_of(batch.task), {})[which] = batch.inputs[0], result
        for callback in self.callbacks:
            if isinstance(callback, KeepsBaselines):
                with self._telling():
                    callback.baseline(batch.policy, which, batch.inputs[0], result)
        self.display.note(f"[0] {which.value}: {outcome_text(result)}")

    def _logs(self) -> list[Path]:
        """The logs that callbacks keep, as far as they are there."""
        return [c.filename for c in self.callbacks if isinstance(c, RecordToFile) and c.filename.is_file()]

    def build_finalists(self, task: SearchTask, field: Field = FINALISTS) -> None:
        """Begin to build what `confirm` will time."""
        with self.closing_on_error():
            self._builds.begin([inp for _, _, inp in self._in_the_race(task, field)])

    def confirm(self, task: SearchTask, field: Field = FINALISTS, heading: str = "timed again in turns") -> Best | None:
        """Time the best programs of a task once more, in turns; the best of them, None where none was timed.

        One figure each may have been lucky; in turns all meet the same machine.  Those that the logs of callbacks held
        before take part, and a callback that keeps figures (`KeepsConfirmed`) hears them.  A runner that cannot compare
        (`PairedRunner`) leaves things as they are.
        """
        with self.closing_on_error():
            while any(batch.baseline for batch in self._batches):
                self._arrived(*self._pipeline.take())
        leaders, runner = self._in_the_race(task, field), self.runner
        if not leaders or not isinstance(runner, PairedRunner):
            return None
        timed = first = self._timed(leaders, runner)
        ran = list(self._ran(task).values())
        slower = finals.times_slower(leaders, [leader for leader, _ in timed], ran)
        if timed and not self.limit.over and (late := finals.near_after_all(leaders, timed[0][0], ran)):
            timed = self._timed([timed[0][0], *late], runner)
            leaders += late
        if not timed:
            return None
        (_, trial, winner), figures = timed[0]
        cost = float(np.median(figures))
        self.display.note(f"{heading}: best {spread_text(figures)}, of {counted(len(leaders), 'program')}", cost)
        doubt = unsteady([figures for _, figures in [*first, *timed]])
        better = finals.nothing_better(timed, leaders, self._ran(task))
        for text in filter(None, (finals.slower_text(slower), doubt, better)):
            self.display.note(text)
        self.best[key_of(task)] = Best(cost, winner.state, trial)
        return self.best[key_of(task)]

    def _timed(self, leaders: Sequence[Leader], runner: PairedRunner) -> list[tuple[Leader, list[float]]]:
        """Programs by what they took in turns, best first, with their figures; those that did not run are left out."""
        times = self.in_turns([inp for _, _, inp in leaders], runner)
        found = [((float(np.median(t)), k, inp), t) for (_, k, inp), t in zip(leaders, times, strict=True) if len(t)]
        return sorted(found, key=lambda pair: by_turns(pair[1]))

    def in_turns(self, inputs: Sequence[MeasureInput], runner: PairedRunner) -> list[list[float]]:
        """The figures of programs of one task that are timed in turns; callbacks that keep figures hear them."""
        self.display.phase(f"timing the best {len(inputs)} once more, in turns")
        with self.closing_on_error():
            times = compared_by(runner, inputs, self._builds.results(inputs))
        for callback in self.callbacks:
            if isinstance(callback, KeepsConfirmed):
                with self._telling():
                    callback.confirmed(inputs, times)
        return times

    def _ran(self, task: SearchTask) -> dict[Baseline, Leader]:
        """The programs of a task that nobody searched for, as far as they ran."""
        known = self.baselines.get(key_of(task), {}).items()
        return {which: (result.cost, 0, inp) for which, (inp, result) in known if result.ok}

    def _in_the_race(self, task: SearchTask, field: Field) -> list[Leader]:
        """Those that are timed in turns, as far as there is time; none where there are no two, or nobody compares."""
        able = self.best_of(task) is not None and isinstance(self.runner, PairedRunner)
        found = self._finalists(task, field) if able else []
        leaders = found[: self.limit.room(self._seconds / max(1, self.count), len(found))]
        return leaders if len(leaders) > 1 else []

    def _finalists(self, task: SearchTask, field: Field) -> list[Leader]:
        leaders = self._leaders.get(key_of(task), Leaders())
        logs, most = [log for log in self._logs() if log in self._others], field.size(leaders)
        logged = [(r.cost, 0, inp) for log in logs for inp, r in best_few(self._ranked(log), task, most)]
        return finals.finalists(leaders.best, logged, list(self._ran(task).values()), most)

    def _ranked(self, log: Path) -> list[Record]:
        """The records of a log, best first; read once for all tasks whose search ends together."""
        return self._read.get(log) or self._read.setdefault(log, ranked_records(log))

    def _arrived(self, number: int, result: MeasureResult | None) -> None:
        batch = next(b for b in self._batches if b.first <= number < b.first + len(b.inputs))
        if batch.baseline is not None:
            self._batches.remove(batch)
            if result is not None:
                self._baseline_arrived(batch, batch.baseline, result)
            return
        batch.results[number] = result
        built = self._pipeline.built.pop(number, 0.0)
        batch.spent.build += built
        if result is None:
            return
        batch.spent.run += max(0.0, result.all_cost - built)
        self._note(batch.task, batch.policy, batch.inputs[number - batch.first], result)
        if self._shown in (None, batch):
            self._show(batch, number, result)

    def _show(self, batch: Batch, number: int, result: MeasureResult) -> None:
        known = self.best_of(batch.task)
        costs = [self.logged.get(key_of(batch.task)), None if known is None else known.cost]
        best = min([cost for cost in costs if cost is not None], default=None)
        self.display.result(batch.task, batch.inputs[number - batch.first], result, best)

    def _note(self, task: SearchTask, policy: Any, inp: MeasureInput, result: MeasureResult) -> None:
        for callback in self.callbacks:
            with self._telling():
                callback.callback(policy, [inp], [result])
        self.count += 1
        self._seconds += result.all_cost
        known = self.best_of(task)
        if result.ok:
            self._leaders.setdefault(key_of(task), Leaders()).add((result.cost, self.count, inp))
        if result.ok and (known is None or result.cost < known.cost):
            self.best[key_of(task)] = Best(result.cost, inp.state, self.count)
        self.errors_in_a_row = 0 if result.ok else self.errors_in_a_row + 1
        if self.errors_in_a_row == self.max_continuous_error:
            logger.warning("%d candidates in a row failed; the last one: %s", self.errors_in_a_row, result.error_msg)
