"""Timing as the tutorials do it: figures by `time_evaluator`'s rule, and the table that is printed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from te_lite.errors import require
from te_lite.timing import Timing

from ..ir.errors import GraphError

COLUMNS = ("mean", "median", "max", "min", "std")
WIDTH = 12
GROWTH = 1.618


class BenchmarkResult(Timing):
    """Printing gives the table in milliseconds."""

    def __repr__(self) -> str:
        return (
            f"BenchmarkResult(min={self.min}, mean={self.mean}, median={self.median}, max={self.max}, "
            f"std={self.std}, results={self.results})"
        )

    def __str__(self) -> str:
        head = " ".join([f"{f'{name} (ms)':^{WIDTH}}" for name in COLUMNS])
        figures = (self.mean, self.median, self.max, self.min, self.std)
        row = " ".join([f"{seconds * 1e3:^{WIDTH}.4f}" for seconds in figures])
        return f"Execution time summary:\n{head}\n{row}{' ' * 15}"


@dataclass
class TimeEvaluator:
    """Calls something over and over; a call of the evaluator gives the figures.

    `seconds(n)` makes `n` calls in a row and gives the time they took; `prepare` runs before every repeat and
    `before` before every attempt.  An attempt shorter than `min_repeat_ms` milliseconds is repeated with more calls:
    `number` grows, and stays grown for later repeats and later calls of the evaluator.  Attempts of no measurable time
    are given up after `limit_zero_time_iterations`.  After every `repeats_to_cooldown`-th repeat, the first one
    included, the evaluator sleeps `cooldown_interval_ms`.
    """

    seconds: Callable[[int], float]
    number: int = 10
    repeat: int = 1
    min_repeat_ms: float = 0
    limit_zero_time_iterations: int = 100
    cooldown_interval_ms: float = 0
    repeats_to_cooldown: int = 1
    prepare: Callable[[], None] | None = None
    before: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        given = {
            "number": (self.number, 1), "repeat": (self.repeat, 1), "min_repeat_ms": (self.min_repeat_ms, 0),
            "cooldown_interval_ms": (self.cooldown_interval_ms, 0),
            "repeats_to_cooldown": (self.repeats_to_cooldown, 1),
            "limit_zero_time_iterations": (self.limit_zero_time_iterations, 0),
        }  # fmt: skip
        for name, (value, least) in given.items():
            require(value >= least, GraphError, "timing", f"{name} must be at least {least}", got=value)

    def __call__(self) -> BenchmarkResult:
        """Call once to warm up, then measure."""
        self.seconds(1)
        results = []
        for k in range(self.repeat):
            if self.prepare is not None:
                self.prepare()
            results.append(self._figure())
            if self.cooldown_interval_ms > 0 and k % self.repeats_to_cooldown == 0:
                time.sleep(self.cooldown_interval_ms * 1e-3)
        return BenchmarkResult(tuple(results))

    def _figure(self) -> float:
        """Seconds per call of the first attempt that is long enough."""
        took, zeros = 0.0, 0
        while True:
            if took > 0:
                self.number = int(max(self.min_repeat_ms / (took / self.number) + 1, self.number * GROWTH))
            if self.before is not None:
                self.before()
            took = self.seconds(self.number) * 1e3
            zeros += took == 0
            if took >= self.min_repeat_ms or zeros >= self.limit_zero_time_iterations:
                return took * 1e-3 / self.number
