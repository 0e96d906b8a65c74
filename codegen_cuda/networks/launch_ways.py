"""The choice of how the kernels of a network follow each other: timed when a network is run for the first time.

Kernels that begin early save most of a launch each, but not beside others on four streams; weights that are fetched
ahead come in the way of kernels that read much themselves.  What wins depends on all kernels together, so the four ways
there are are timed in turns, on whatever the memory holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product

ROUNDS = 3
RUN_SECONDS = 2e-3
"""A timing is the mean of runs for so long, at least of one."""


@dataclass(frozen=True)
class Way:
    """With `early` a kernel is launched while the one before still runs; with `fetches` weights are on their way."""

    early: bool
    fetches: bool


PLAIN = Way(False, False)
WAYS = tuple([Way(early, fetches) for early, fetches in product((True, False), repeat=2)])


def fastest(record: Callable[[Way], Callable[[int], float]]) -> Way:
    """The way in which a run takes least time; `record` makes a function that gives the seconds of so many runs."""
    timings = timings_of(record)
    return min(WAYS, key=lambda way: min(timings[way]))


def timings_of(
    record: Callable[[Way], Callable[[int], float]], rounds: int = ROUNDS, seconds: float = RUN_SECONDS
) -> Mapping[Way, list[float]]:
    """The seconds of a run by way, a timing a round, each the mean of runs for so many `seconds`; ways take turns."""
    timed = {way: record(way) for way in WAYS}
    runs = {way: max(1, round(seconds / max(of(1), 1e-6))) for way, of in timed.items()}
    timings: dict[Way, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        for way, of in timed.items():
            timings[way].append(of(runs[way]) / runs[way])
    return timings
