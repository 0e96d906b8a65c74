"""What a person reads while a search runs: plain lines, or nothing when silent; and its figures as text."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

import numpy as np

from ..core.tasks.measure_values import DeviceUse, MeasureErrorNo, MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from ..core.values.checks import counted

PLAIN_EVERY = 8
MOST_DEVICES = 8
Usage = Callable[[], Sequence[DeviceUse]]


class Display(Protocol):
    """Where a measurer reports to."""

    def run(self, task: SearchTask, trials: int) -> AbstractContextManager[None]:
        """A context that is open while a task is tuned."""

    def phase(self, text: str) -> None:
        """What goes on now, and is waited for: "building and running 32 programs"."""

    def result(self, task: SearchTask, inp: MeasureInput, result: MeasureResult, best: float | None) -> None:
        """A candidate is done; `best` is the least cost so far, in seconds."""

    def devices(self, usage: Usage) -> None:
        """Whom to ask what each of several devices did so far."""

    def note(self, text: str, best: float | None = None) -> None:
        """A finding that stays in sight; `best` is the least cost as it is known from now on."""


def seconds_text(seconds: float) -> str:
    """A time with a fitting unit: `1.25 ms`."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def spread_text(figures: Sequence[float]) -> str:
    """The median of several times and how far they reach: `1.25 ms (1.2 ms to 1.41 ms in 5 figures)`."""
    return f"{seconds_text(float(np.median(figures)))} ({figures_text(figures)})"


def cost_text(result: MeasureResult) -> str:
    """The cost of a program, and how far its figures reach where it has several."""
    figures = f" ({figures_text(result.costs)})" if len(result.costs) > 1 else ""
    return f"{seconds_text(result.cost)}{figures}"


def reach_text(figures: Sequence[float]) -> str:
    """How far several times reach: `1.2 ms to 1.41 ms`."""
    return f"{seconds_text(min(figures))} to {seconds_text(max(figures))}"


def figures_text(figures: Sequence[float]) -> str:
    """The same, and how many there are: `1.2 ms to 1.41 ms in 5 figures`."""
    return f"{reach_text(figures)} in {counted(len(figures), 'figure')}"


def rate_text(flops: float, seconds: float) -> str:
    """Floating-point operations a second; empty when the task has none."""
    return f"{flops / seconds / 1e9:.1f} GFLOP/s" if flops > 0 else ""


def outcome_text(result: MeasureResult) -> str:
    """How one candidate ended."""
    if result.ok:
        return seconds_text(result.cost)
    name = MeasureErrorNo(result.error_no).name if result.error_no in MeasureErrorNo._value2member_map_ else "ERROR"
    return f"{name}: {result.error_msg}" if result.error_msg else name


def use_lines(uses: Sequence[DeviceUse]) -> list[str]:
    """What each device did: `cuda 0 (NVIDIA H200): 128 programs, 9.81 programs/s, 97% busy`, baselines too."""
    if len(uses) > MOST_DEVICES:
        busy, seconds = sum(u.busy for u in uses) / len(uses), max(u.seconds for u in uses)
        lost = sum(u.lost for u in uses)
        uses = [DeviceUse(f"{len(uses)} devices", sum(u.trials for u in uses), busy, seconds, lost)]
    return [
        f"{u.device}: {counted(u.trials, 'program')}, {u.rate:.3g} programs/s, {u.share:.0%} busy"
        + (f", {u.lost} workers lost" if u.lost else "")
        for u in uses
    ]


class SilentDisplay:
    """Says nothing."""

    @contextmanager
    def run(self, task: SearchTask, trials: int) -> Iterator[None]:
        yield

    def phase(self, text: str) -> None:
        """Nothing."""

    def result(self, task: SearchTask, inp: MeasureInput, result: MeasureResult, best: float | None) -> None:
        """Nothing."""

    def devices(self, usage: Usage) -> None:
        """Nothing."""

    def note(self, text: str, best: float | None = None) -> None:
        """Nothing."""


class Tally:
    """The numbers that both displays show."""

    def __init__(self) -> None:
        self.done = 0
        self.outcomes: Counter[int] = Counter()
        self.best: float | None = None
        self.last = self.first_failure = ""
        self.start = time.monotonic()

    def add(self, result: MeasureResult, best: float | None) -> bool:
        """Whether the result is a new best."""
        better = best is not None and (self.best is None or best < self.best)
        self.done += 1
        self.outcomes[result.error_no] += 1
        self.best = best
        self.last = outcome_text(result)
        self.first_failure = self.first_failure or ("" if result.ok else self.last)
        return better

    def failures(self) -> str:
        """`2 WRONG_ANSWER, 1 RUN_TIMEOUT`; empty when there are none."""
        names = {int(e): e.name for e in MeasureErrorNo}
        bad = [(n, no) for no, n in self.outcomes.items() if no]
        return ", ".join(f"{n} {names.get(no, no)}" for n, no in sorted(bad, reverse=True))


class PlainDisplay:
    """One line for each better program and each eighth trial; with `every`, for each result and its program.

    Before the first result, which may take a while, and after the last, lines say what is waited for, each once.
    """

    def __init__(self, stream: TextIO | None = None, every: bool = False) -> None:
        self.stream = stream
        self.every = every
        self.tally = Tally()
        self.trials = 0
        self.waited_for: set[str] = set()
        self.usage: Usage = list

    def say(self, text: str) -> None:
        print(text, file=self.stream or sys.stdout, flush=True)

    @contextmanager
    def run(self, task: SearchTask, trials: int) -> Iterator[None]:
        self.tally, self.trials = Tally(), trials
        self.say(f"tuning {task.title} for {task.target}: {counted(trials, 'trial')}")
        try:
            yield
        finally:
            best = "no valid program" if self.tally.best is None else f"best {self._best(task)}"
            bad = self.tally.failures()
            elapsed = time.monotonic() - self.tally.start
            done = f"{counted(self.tally.done, 'trial')} in {elapsed:.1f} s, {best}"
            self.say(done + (f"; failed: {bad}" if bad else ""))
            if self.tally.best is None and bad:
                self.say(f"the first that failed: {self.tally.first_failure}")
            for line in use_lines(self.usage()):
                self.say(line)

    def _best(self, task: SearchTask) -> str:
        assert self.tally.best is not None
        rate = rate_text(task.compute_dag.flop_ct, self.tally.best)
        return seconds_text(self.tally.best) + (f" ({rate})" if rate else "")

    def phase(self, text: str) -> None:
        """Plain text says what is waited for until there is a result, and when all are there."""
        waits = self.tally.done == 0 or self.tally.done == self.trials
        if waits and text not in self.waited_for:
            self.waited_for.add(text)
            self.say(f"{text} ...")

    def result(self, task: SearchTask, inp: MeasureInput, result: MeasureResult, best: float | None) -> None:
        better = self.tally.add(result, best)
        if not (self.every or better or self.tally.done % PLAIN_EVERY == 0):
            return
        head = f"[{self.tally.done}/{self.trials}]" if self.trials else f"[{self.tally.done}]"
        known = f"best {self._best(task)}" if best is not None else "no valid program yet"
        self.say(f"{head} {self.tally.last}, {known}")
        if self.every and result.ok:
            self.say(str(inp.task.compute_dag.infer_bound_from_state(inp.state)))

    def devices(self, usage: Usage) -> None:
        """Plain text shows them at the end."""
        self.usage = usage

    def note(self, text: str, best: float | None = None) -> None:
        self.tally.best = best or self.tally.best
        self.say(text)
