"""Programs timed in turns: all meet the same machine, and the slower half leaves again and again.

    16 programs    5 figures each       the median decides who stays
     8             5 more
     4             5 more
     2             5 more               the best of these has 20 figures

The best programs of a search differ by less than the figures of one of them on a machine that others use, too: on 16
such cores a figure of 100 ms was 7 to 12 % off beside those of the same round (one task 20 %), its first third 8 to 12
%, and the medians of the best 16 programs of a search 4 to 9 % (standard deviations).  Many short figures of those that
may be the best tell more than a few long ones of all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

ROUNDS = 5
"""Figures between two partings."""
LAST = 2
SHARE = 3
"""A figure lasts one such part of one in a search."""
MOST_SECONDS = 30.0
"""When nobody is sent away any more: programs take so long then that there are few figures of each."""

Figure = Callable[[int], float | None]
"""From the number of a program to the seconds it takes now; None where it does not run."""


def figures(count: int, figure: Figure, rounds: int) -> list[list[float]]:
    """So many figures of each program, in turns; none of those that stop to run."""
    times: list[list[float]] = [[] for _ in range(count)]
    _add(times, list(range(count)), figure, rounds)
    return times


def race(count: int, figure: Figure, clock: Callable[[], float] = time.monotonic) -> list[list[float]]:
    """Figures of programs in turns, at least `ROUNDS` of each, most of the fastest; none of those that stop to run.

    `clock` gives seconds.
    """
    begun = clock()
    times: list[list[float]] = [[] for _ in range(count)]
    there = _add(times, list(range(count)), figure, ROUNDS)
    while len(there) > LAST and clock() - begun < MOST_SECONDS:
        fastest = sorted(there, key=lambda k: median(times[k]))[: -(-len(there) // 2)]
        there = _add(times, sorted(fastest), figure, ROUNDS)
    return times


def _add(times: list[list[float]], there: list[int], figure: Figure, rounds: int) -> list[int]:
    """Time the programs that are `there` so many times each; those that still run."""
    for _ in range(rounds):
        for k in there:
            seconds = figure(k)
            times[k] = [] if seconds is None else [*times[k], seconds]
        there = [k for k in there if times[k]]
    return there
