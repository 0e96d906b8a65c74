"""Is the machine quiet enough to time programs on it?  The same work, again and again, for half a second.

The work is a function of an array for every core at once; it waits for the slowest of them, as parallel programs do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from ..core.host.hints import ansor
from ..core.target.hardware import host_cores
from ..core.values.checks import counted
from ..core.values.steady import far_apart, greatest_factor
from .progress import seconds_text

SECONDS = 0.5
ELEMENTS = 1 << 18
MOST_SPREAD = 0.25
"""On a quiet machine the figures between are within some 5 to 15 per cent of each other."""


@dataclass(frozen=True)
class Noise:
    """Seconds of the same work, in order, on `cores` cores; `load` is the load average of the minute before it."""

    figures: tuple[float, ...]
    cores: int
    load: float

    @property
    def spread(self) -> float:
        """How much longer than the tenth part of the figures that are least the tenth that are greatest are."""
        low, high = np.quantile(self.figures, (0.1, 0.9))
        return float(high / low - 1)

    @property
    def uneven(self) -> bool:
        return self.spread > MOST_SPREAD

    @property
    def noisy(self) -> bool:
        """Uneven, or evenly slow: others have kept as many cores busy as there are."""
        return self.uneven or self.load >= self.cores

    def __str__(self) -> str:
        """What was found, for people."""
        low, middle, high = [seconds_text(float(q)) for q in np.quantile(self.figures, (0.1, 0.5, 0.9))]
        cores = counted(self.cores, "core")
        return f"the same work took {low} to {high} (median {middle}), load average {self.load:.1f} on {cores}"


def work_on_all_cores(cores: int, pool: ThreadPoolExecutor) -> Callable[[], None]:
    """A function that computes powers on so many cores at once, for a millisecond or so, and waits for all of them."""
    arrays = [(np.linspace(1, 2, ELEMENTS), np.empty(ELEMENTS)) for _ in range(cores)]

    def work() -> None:
        list(pool.map(lambda pair: np.power(pair[0], 1.7, out=pair[1]), arrays))

    return work


def noise(seconds: float = SECONDS, clock: Callable[[], float] = time.perf_counter) -> Noise:
    """Look for so many seconds how even the times of the same work are."""
    cores, load = host_cores(), os.getloadavg()[0]
    with ThreadPoolExecutor(cores) as pool:
        work = work_on_all_cores(cores, pool)
        work()
        start = now = clock()
        figures: list[float] = []
        while now - start < seconds or len(figures) < 2:
            work()
            before, now = now, clock()
            figures.append(now - before)
    return Noise(tuple(figures), cores, load)


def unsteady(
    figures: Sequence[Sequence[float]], then: str = "so that the ranking is not to be trusted"
) -> str:  # fmt: skip
    """One sentence where the figures of one program, of several, are more than `MOST_FACTOR` apart; else empty.

    Those that left the turns early are not asked (`greatest_factor`).
    """
    factor = greatest_factor(figures)
    law = f"the figures of one program differ by a factor of {factor:.1f}, {then}"
    return f"the machine was busy: {law}" if far_apart(factor) else ""


def warning(found: Noise, again: bool = False, log: str = "LOG") -> str:
    """One sentence on a machine that is noisy; empty for a quiet one.  `again`: it is what measures again that asks.

    `log` is where the times will be, if that is known.
    """
    later = "" if again else f", or use `{ansor('remeasure', log)}` later"
    harm = "times measured now differ as much" if found.uneven else "times measured now are those of a busy machine"
    law = f"{harm}; wait for a quiet machine{later}"
    return f"the machine is busy: {found}; {law}" if found.noisy else ""
