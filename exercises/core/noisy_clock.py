"""A clock as benchmarks meet it: cold first runs, a drift that goes on with every run, interruptions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


class Machine:
    """Programs of given seconds; every run of any of them moves the machine on.

    `drift` is how much slower it is after 60 runs (0.1: ten percent), `cold` what a first run takes at most, in times.
    """

    def __init__(self, rng: np.random.Generator, drift: float, cold: float = 3.0, interrupted: float = 0.1) -> None:
        self.rng, self.drift, self.cold, self.interrupted = rng, drift, cold, interrupted
        self.runs: list[str] = []

    def program(self, name: str, seconds: float) -> Callable[[], float]:
        """A function that runs the program once and gives what the clock says."""

        def run() -> float:
            slower = 1 + self.drift * len(self.runs) / 60 + abs(self.rng.normal(0, 0.004))
            slower *= 1 if name in self.runs else 1 + (self.cold - 1) * self.rng.random()
            slower += self.rng.exponential(2.0) if self.rng.random() < self.interrupted else 0.0
            self.runs.append(name)
            return float(seconds * slower)

        return run
