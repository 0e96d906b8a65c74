"""Confidence intervals over many made-up studies whose truth is known: coverage and width."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from ..core.verdict import function, need

HINT = """Take log(old / new) seed by seed first; the spread of the seeds is gone then. The error of a mean of n numbers
is their standard deviation (of a sample: ddof=1) over the root of n."""
T95 = {20: 2.093, 10: 2.262, 5: 2.776}
STUDIES, SEED_SPREAD, SPREAD, GAIN = 600, 0.5, 0.05, 0.08


def study(interval: Callable[..., Any], n: int, seed_spread: float) -> tuple[float, float]:
    """The share of intervals that hold the truth, and their mean width."""
    rng, held, widths = np.random.default_rng(20), 0, []
    for _ in range(STUDIES):
        seeds = rng.normal(-9, seed_spread, n)
        old, new = np.exp(seeds + GAIN + rng.normal(0, SPREAD, n)), np.exp(seeds + rng.normal(0, SPREAD, n))
        low, high = interval(old, new, T95[n])
        need(low is not ... and high is not ..., "`interval` still has its hole: replace both `...`")
        need(low < high, f"the ends are {low:.3g} and {high:.3g}: the lower one goes first")
        held += low <= GAIN <= high
        widths.append(high - low)
    return held / STUDIES, float(np.mean(widths))


def check(answer: ModuleType) -> None:
    """Coverage first, then whether the pairs were used: the seeds' spread may not widen the interval."""
    interval = function(answer, "interval")
    for n in T95:
        share, width = study(interval, n, SEED_SPREAD)
        case = f"{n} seeds: {share:.0%} of the intervals hold the truth"
        need(share > 0.1, f"{case}: is it the mean of log(old / new), and not of something else?")
        need(share > 0.92, f"{case}: too narrow; divide by the root of n once, and use t")
        alike = study(interval, n, 0.0)[1]
        seeds = f"{case}; they are {width:.2f} wide, and {alike:.2f} if all seeds are alike: compare seed by seed"
        need(width < 1.5 * alike, seeds)
        need(share < 0.985, f"{case}: too wide; it is the error of the mean, not the spread of single seeds")
