"""Building and running side by side: worker processes build, a thread for each device runs whatever is built first.

A program that compiles for seconds delays nobody but itself, and candidates of the next round are built while those
of this one are still run.  Of what is built, the oldest round is run first: its results are waited for.  On a target
whose programs run on the processor that compiles them, nothing may be built while something is measured: there a few
candidates are built, then run, one after the other.  What is not begun when the time of its round is up is given back
without a result, and not built either.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from ..core.device.backend import backend
from ..core.tasks.measure_values import BuildResult, MeasureInput, MeasureResult
from ..core.tasks.protocols import Builder, ManyDevices, Runner, is_elsewhere
from ..core.tasks.task import SearchTask
from .answers import at_a_time, built_by, run_by, submitted

BATCH_PER_WORKER = 4
MEANWHILE = 0.1
"""Seconds after which whoever waits for a result looks after something else."""
NEAR = 60.0
"""So many seconds before its time is up a round is built in the smallest pieces."""
Done = tuple[int, MeasureResult | None]
"""The number of a candidate and how it ended; None where its time was up before it began."""


def alone(task: SearchTask, runner: Runner) -> bool:
    """Whether nothing may be built while something is measured: programs run on the processor that compiles them.

    A runner that measures on other machines (`RemoteRunner`) leaves this one alone.
    """
    return backend(task.target.kind.name).shares_host and not is_elsewhere(runner)


def _too_late(until: float) -> bool:
    return until < math.inf and time.monotonic() >= until


@dataclass(frozen=True)
class _Waiting:
    """A program that is built when the host is quiet, and begun before `until`."""

    number: int
    inp: MeasureInput
    until: float


@dataclass(order=True)
class _Job:
    """A program to run; the order is that of rounds, then that in which builds were done."""

    round: int
    place: int
    number: int = field(compare=False)
    inp: MeasureInput = field(compare=False)
    build: Future[BuildResult] = field(compare=False)
    end: float = field(compare=False)


@dataclass(frozen=True, eq=False)
class _Lane:
    """The threads that run programs, and those programs that wait for them."""

    threads: ThreadPoolExecutor
    jobs: queue.PriorityQueue[_Job]


class Pipeline:
    """Measures candidates that are known by a number; results come as soon as they are there, in any order.

    `built` has the seconds that the build of a candidate took, from when it was waited for.
    """

    def __init__(self, builder: Builder, runner: Runner) -> None:
        self.builder = builder
        self.runner = runner
        self.built: dict[int, float] = {}
        self._lane: _Lane | None = None
        self._rounds = count()
        self._places = count()
        self._builds: dict[int, tuple[float, Future[BuildResult]]] = {}
        self._dropping = threading.Lock()
        self._done: queue.SimpleQueue[tuple[int, MeasureResult | BaseException | None]] = queue.SimpleQueue()
        self._waiting: list[_Waiting] = []
        self._quiet: deque[tuple[_Waiting, BuildResult]] = deque()

    def start(
        self, numbered: Sequence[tuple[int, MeasureInput]], until: float = math.inf, sure: int = 0,
        end: float | None = None,
    ) -> None:  # fmt: skip
        """Take the candidates of a round in; they are built from now on unless the host must be quiet.

        Those that are not begun at `until`, by the monotonic clock, are not measured, but for the first `sure`; on a
        device of its own those that are being built then are, before `end` (None: `until`).
        """
        this = next(self._rounds)
        for k, (number, inp) in enumerate(numbered):
            last, latest = (math.inf, math.inf) if k < sure else (until, until if end is None else end)
            if alone(inp.task, self.runner):
                self._waiting.append(_Waiting(number, inp, last))
                continue
            lane, build = self._open_lane(inp.task), submitted(self.builder, inp)
            self._builds[number] = last, build
            build.add_done_callback(partial(self._built, lane, this, number, inp, latest))

    def _open_lane(self, task: SearchTask) -> _Lane:
        """The lane; it has as many threads as the runner has slots for the task that comes first."""
        if self._lane is None:
            slots = self.runner.slots(task) if isinstance(self.runner, ManyDevices) else 1
            threads = ThreadPoolExecutor(slots, thread_name_prefix="ansor-runner")
            self._lane = _Lane(threads, queue.PriorityQueue())
        return self._lane

    def _built(
        self, lane: _Lane, this: int, number: int, inp: MeasureInput, end: float, build: Future[BuildResult]
    ) -> None:
        """Called in a thread of the builder; nothing is run once the pipeline was closed."""
        self._builds.pop(number, None)
        if self._lane is lane:
            lane.jobs.put(_Job(this, next(self._places), number, inp, build, end))
            with suppress(RuntimeError):
                lane.threads.submit(self._run_next, lane)
            self._drop_late()

    def _drop_late(self) -> None:
        """Take back from the builder what it has not begun in time; `_built` hears of it."""
        if self._dropping.acquire(blocking=False):
            try:
                for build in [build for until, build in list(self._builds.values()) if _too_late(until)]:
                    build.cancel()
            finally:
                self._dropping.release()

    def _run_next(self, lane: _Lane) -> None:
        job = lane.jobs.get()
        outcome: MeasureResult | BaseException | None
        try:
            outcome = None
            if not job.build.cancelled():
                built = built_by(self.builder, job.build)
                self.built[job.number] = built.time_cost
                outcome = None if _too_late(job.end) else run_by(self.runner, job.inp, built)
        except BaseException as error:
            outcome = error
        if self._lane is lane:
            self._done.put((job.number, outcome))

    def take(self, meanwhile: Callable[[], None] | None = None) -> Done:
        """The next result; something must be under way.  Raises what a builder or runner raised, see `answers.py`.

        On a device of its own `meanwhile` is called again and again until it is there.
        """
        if self._waiting or self._quiet:
            return self._take_quietly()
        number, outcome = self._next(meanwhile)
        if isinstance(outcome, BaseException):
            raise outcome
        return number, outcome

    def _next(self, meanwhile: Callable[[], None] | None) -> tuple[int, MeasureResult | BaseException | None]:
        while meanwhile is not None:
            meanwhile()
            with suppress(queue.Empty):
                return self._done.get(timeout=MEANWHILE)
        return self._done.get()

    def _take_quietly(self) -> Done:
        """Build some candidates when none is left, wait for all of them, then run one."""
        if not self._quiet and _too_late(self._waiting[0].until):
            return self._waiting.pop(0).number, None
        if not self._quiet:
            near = self._waiting[-1].until < math.inf and _too_late(self._waiting[-1].until - NEAR)
            batch = (1 if near else BATCH_PER_WORKER) * at_a_time(self.builder)
            part, self._waiting = self._waiting[:batch], self._waiting[batch:]
            builds = [submitted(self.builder, one.inp) for one in part]
            done = [built_by(self.builder, build) for build in builds]
            self.built.update({one.number: built.time_cost for one, built in zip(part, done, strict=True)})
            self._quiet.extend(zip(part, done, strict=True))
        one, built = self._quiet.popleft()
        return one.number, None if _too_late(one.until) else run_by(self.runner, one.inp, built)

    def close(self) -> list[tuple[int, MeasureResult]]:
        """Drop what is not measured yet and stop all workers; the results that nobody took."""
        lane, self._lane = self._lane, None
        self._waiting = []
        self._quiet.clear()
        if lane is not None:
            lane.threads.shutdown(wait=False, cancel_futures=True)
        self.builder.close()
        self.runner.close()
        if lane is not None:
            lane.threads.shutdown(wait=True)
        left = []
        while not self._done.empty():
            number, outcome = self._done.get()
            if isinstance(outcome, MeasureResult):
                left.append((number, outcome))
        return left
