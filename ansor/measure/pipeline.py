"""Building and running side by side: worker processes build, a thread for each device runs whatever is built first.

A program that compiles for seconds delays nobody but itself, and candidates of the next round are built while those
of this one are still run.  Of what is built, the oldest round is run first: its results are waited for.  On a target
whose programs run on the processor that compiles them, nothing may be built while something is measured: there a few
candidates are built, then run, one after the other.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count

from ..core.backends import backend
from ..core.measure_values import BuildResult, MeasureInput, MeasureResult
from ..core.protocols import Builder, ManyDevices, Runner, is_elsewhere
from ..core.task import SearchTask
from .answers import at_a_time, built_by, run_by, submitted

BATCH_PER_WORKER = 4
Done = tuple[int, MeasureResult]


def alone(task: SearchTask, runner: Runner) -> bool:
    """Whether nothing may be built while something is measured: programs run on the processor that compiles them.

    A runner that measures on other machines (`RemoteRunner`) leaves this one alone.
    """
    return backend(task.target.kind.name).shares_host and not is_elsewhere(runner)


@dataclass(order=True)
class _Job:
    """A program to run; the order is that of rounds, then that in which builds were done."""

    round: int
    place: int
    number: int = field(compare=False)
    inp: MeasureInput = field(compare=False)
    build: Future[BuildResult] = field(compare=False)


@dataclass(frozen=True, eq=False)
class _Lane:
    """The threads that run programs, and those programs that wait for them."""

    threads: ThreadPoolExecutor
    jobs: queue.PriorityQueue[_Job]


class Pipeline:
    """Measures candidates that are known by a number; results come as soon as they are there, in any order."""

    def __init__(self, builder: Builder, runner: Runner) -> None:
        self.builder = builder
        self.runner = runner
        self._lane: _Lane | None = None
        self._rounds = count()
        self._places = count()
        self._done: queue.SimpleQueue[tuple[int, MeasureResult | BaseException]] = queue.SimpleQueue()
        self._waiting: list[tuple[int, MeasureInput]] = []
        self._quiet: deque[tuple[int, MeasureInput, BuildResult]] = deque()

    def start(self, numbered: Sequence[tuple[int, MeasureInput]]) -> None:
        """Take the candidates of a round in; they are built from now on unless the host must be quiet."""
        this = next(self._rounds)
        for number, inp in numbered:
            if alone(inp.task, self.runner):
                self._waiting.append((number, inp))
            else:
                lane = self._open_lane(inp.task)
                submitted(self.builder, inp).add_done_callback(partial(self._built, lane, this, number, inp))

    def _open_lane(self, task: SearchTask) -> _Lane:
        """The lane; it has as many threads as the runner has slots for the task that comes first."""
        if self._lane is None:
            slots = self.runner.slots(task) if isinstance(self.runner, ManyDevices) else 1
            threads = ThreadPoolExecutor(slots, thread_name_prefix="ansor-runner")
            self._lane = _Lane(threads, queue.PriorityQueue())
        return self._lane

    def _built(self, lane: _Lane, this: int, number: int, inp: MeasureInput, build: Future[BuildResult]) -> None:
        """Called in a thread of the builder; nothing is run once the pipeline was closed."""
        if self._lane is lane:
            lane.jobs.put(_Job(this, next(self._places), number, inp, build))
            with suppress(RuntimeError):
                lane.threads.submit(self._run_next, lane)

    def _run_next(self, lane: _Lane) -> None:
        job = lane.jobs.get()
        outcome: MeasureResult | BaseException
        try:
            outcome = run_by(self.runner, job.inp, built_by(self.builder, job.build))
        except BaseException as error:
            outcome = error
        if self._lane is lane:
            self._done.put((job.number, outcome))

    def take(self) -> Done:
        """The next result; something must be under way.  Raises what a builder or runner raised, see `answers.py`."""
        if self._waiting or self._quiet:
            return self._take_quietly()
        number, outcome = self._done.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return number, outcome

    def _take_quietly(self) -> Done:
        """Build some candidates when none is left, wait for all of them, then run one."""
        if not self._quiet:
            batch = BATCH_PER_WORKER * at_a_time(self.builder)
            part, self._waiting = self._waiting[:batch], self._waiting[batch:]
            builds = [submitted(self.builder, inp) for _, inp in part]
            done = [built_by(self.builder, build) for build in builds]
            self._quiet.extend([(n, inp, built) for (n, inp), built in zip(part, done, strict=True)])
        number, inp, built = self._quiet.popleft()
        return number, run_by(self.runner, inp, built)

    def close(self) -> list[Done]:
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
