"""Building and running side by side: worker processes build, one thread runs whatever is built first.

A program that compiles for seconds delays nobody but itself, and candidates of the next round are built while those
of this one are still run.  On a target whose programs run on the processor that compiles them, nothing may be built
while something is measured: there a few candidates are built, then run, one after the other.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from ansor.registry import backend

from .api import Builder, BuildResult, MeasureInput, MeasureResult, Runner

BATCH_PER_WORKER = 4
Done = tuple[int, MeasureResult]


class Pipeline:
    """Measures candidates that are known by a number; results come as soon as they are there, in any order."""

    def __init__(self, builder: Builder, runner: Runner) -> None:
        self.builder = builder
        self.runner = runner
        self._thread: ThreadPoolExecutor | None = None
        self._done: queue.SimpleQueue[tuple[int, MeasureResult | BaseException]] = queue.SimpleQueue()
        self._waiting: list[tuple[int, MeasureInput]] = []
        self._quiet: deque[tuple[int, MeasureInput, BuildResult]] = deque()

    def start(self, numbered: Sequence[tuple[int, MeasureInput]]) -> None:
        """Take candidates in; they are built from now on unless the host must be quiet."""
        for number, inp in numbered:
            if backend(inp.task.target.kind.name).shares_host:
                self._waiting.append((number, inp))
            else:
                if self._thread is None:
                    self._thread = ThreadPoolExecutor(1, thread_name_prefix="ansor-runner")
                self.builder.submit(inp).add_done_callback(partial(self._built, self._thread, number, inp))

    def _built(self, thread: ThreadPoolExecutor, number: int, inp: MeasureInput, build: Future[BuildResult]) -> None:
        """Called in a thread of the builder; nothing is run once the pipeline was closed."""
        if self._thread is thread:
            with suppress(RuntimeError):
                thread.submit(self._run, thread, number, inp, build)

    def _run(self, thread: ThreadPoolExecutor, number: int, inp: MeasureInput, build: Future[BuildResult]) -> None:
        outcome: MeasureResult | BaseException
        try:
            outcome = self.runner.run(inp, build.result())
        except BaseException as error:
            outcome = error
        if self._thread is thread:
            self._done.put((number, outcome))

    def take(self) -> Done:
        """The next result; something must be under way.  Raises what a builder or runner raised."""
        if self._waiting or self._quiet:
            return self._take_quietly()
        number, outcome = self._done.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return number, outcome

    def _take_quietly(self) -> Done:
        """Build some candidates when none is left, wait for all of them, then run one."""
        if not self._quiet:
            batch = BATCH_PER_WORKER * self.builder.n_parallel
            part, self._waiting = self._waiting[:batch], self._waiting[batch:]
            builds = [self.builder.submit(inp) for _, inp in part]
            self._quiet.extend([(n, inp, b.result()) for (n, inp), b in zip(part, builds, strict=True)])
        number, inp, built = self._quiet.popleft()
        return number, self.runner.run(inp, built)

    def close(self) -> list[Done]:
        """Drop what is not measured yet and stop all workers; the results that nobody took."""
        thread, self._thread = self._thread, None
        self._waiting = []
        self._quiet.clear()
        if thread is not None:
            thread.shutdown(wait=False, cancel_futures=True)
        self.builder.close()
        self.runner.close()
        if thread is not None:
            thread.shutdown(wait=True)
        left = []
        while not self._done.empty():
            number, outcome = self._done.get()
            if isinstance(outcome, MeasureResult):
                left.append((number, outcome))
        return left
