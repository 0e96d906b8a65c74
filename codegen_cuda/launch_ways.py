"""How the kernels of a network follow each other: the stopwatch decides when a network is run for the first time.

Kernels that begin early save a microsecond each, and cost more where their blocks pile up on few multiprocessors;
weights that are fetched ahead come in the way of kernels that read much themselves.  What wins depends on all kernels
together, so the few ways there are are timed in turns, on whatever the memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .early_launch import Trigger
from .fetch_ahead import share

ROUNDS = 3
RUN_SECONDS = 2e-3
"""A figure is the mean of runs for so long, at least of one."""


@dataclass(frozen=True)
class Ahead:
    """What a kernel does for later ones: when the next begins, and `nbytes` bytes from `address` on to be fetched."""

    trigger: Trigger = Trigger.END
    address: int = 0
    nbytes: int = 0

    def arguments(self, blocks: int, multiprocessors: int) -> list[int]:
        """The values of `early_launch.PARAMS` for a kernel of `blocks` blocks."""
        return [self.address, share(self.nbytes, blocks, multiprocessors), self.nbytes, int(self.trigger)]


NOTHING = Ahead()


@dataclass(frozen=True)
class Way:
    """With `early` the next kernel begins at the trigger, otherwise after the end of the one before."""

    early: bool
    trigger: Trigger
    fetches: bool


PLAIN = Way(False, Trigger.END, False)
UNTOLD = Way(True, Trigger.START, False)
"""That of kernels that take no word: they begin the next one at their start."""
TIMED = (replace(PLAIN, fetches=True), *[Way(True, trigger, True) for trigger in Trigger])
WAYS = (*TIMED, *[replace(way, fetches=False) for way in TIMED])
"""All that kernels that take a word know."""


def fastest(record: Callable[[Way], Callable[[int], float]]) -> Way:
    """The way in which a run takes least time.

    `record` makes a function of a way that gives the seconds of so many runs.  Fetching is tried first, and then
    whether the best way is better off without.
    """
    best = _least(record, TIMED)
    return _least(record, (best, replace(best, fetches=False)))


def _least(record: Callable[[Way], Callable[[int], float]], ways: Sequence[Way]) -> Way:
    figures = figures_of(record, ways)
    return min(ways, key=lambda way: min(figures[way]))


def figures_of(
    record: Callable[[Way], Callable[[int], float]], ways: Sequence[Way], rounds: int = ROUNDS,
    seconds: float = RUN_SECONDS,
) -> Mapping[Way, list[float]]:  # fmt: skip
    """The seconds of a run by way, a figure a round, each the mean of runs for so many `seconds`; ways take turns."""
    timed = {way: record(way) for way in ways}
    runs = {way: max(1, round(seconds / max(of(1), 1e-6))) for way, of in timed.items()}
    figures: dict[Way, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, of in timed.items():
            figures[way].append(of(runs[way]) / runs[way])
    return figures
