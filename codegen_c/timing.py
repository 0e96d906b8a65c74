"""Repetitions of a timed C program: several timings for each cost, of which the median counts.

Its threads share the processor with whatever else runs on the machine, which now and then takes a core away for some
milliseconds.  A mean has all of that in it, the median of a few means most often none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median

TIMINGS = 3
GROWTH = 1.618

Calls = Callable[[int], float]
"""From a number of calls in a row to the seconds that all of them took."""


def costs(calls: Calls, number: int, repeat: int, min_repeat_ms: float) -> list[float]:
    """Seconds per call, `repeat` costs, each the median of `TIMINGS` means.

    A mean is of calls in a row; those of one cost are `number` calls at least that last `min_repeat_ms`, the number
    growing as it must (spec autoscheduler 9.3).
    """
    number, least = -(-number // TIMINGS), min_repeat_ms * 1e-3 / TIMINGS
    found = []
    for _ in range(repeat):
        means = []
        for _ in range(TIMINGS):
            number, seconds = long_enough(calls, number, least)
            means.append(seconds / number)
        found.append(median(means))
    return found


def long_enough(calls: Calls, number: int, least: float) -> tuple[int, float]:
    """A number of calls that last `least` seconds, and the seconds they took."""
    seconds = calls(number)
    while seconds < least:
        per_call = max(seconds / number, 1e-9)
        number = int(max(least / per_call + 1, math.ceil(number * GROWTH)))
        seconds = calls(number)
    return number, seconds
