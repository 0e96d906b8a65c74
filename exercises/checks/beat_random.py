"""A policy on a replayed log: trials until the best is found, over forty seeds, beside random choice."""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np

from ..core.replayed import every_program
from ..core.verdict import function, need

HINT = """Fit anything to what was told so far, best on log(seconds), since a few programs are a hundred times slower
than the others: nearest neighbours or a linear model on scaled features will do. Keep a part of each batch random."""
SEEDS, BATCH, CLOSE = 40, 8, 1.01


def trials(policy: Callable[..., Any], seed: int) -> int:
    """How many programs are tried until one is within a percent of the best."""
    features, seconds = every_program()
    rng, tried = np.random.default_rng(seed), np.zeros(0, int)
    while True:
        batch = np.asarray(policy(features.copy(), tried.copy(), seconds[tried], rng), int).ravel()
        need(0 < len(batch) <= BATCH, f"a batch has 1 to {BATCH} programs, yours {len(batch)}")
        need(((batch >= 0) & (batch < len(features))).all(), f"programs have numbers 0 to {len(features) - 1}")
        new = len(np.unique(batch)) == len(batch) and not np.isin(batch, tried).any()
        need(new, "a program is tried twice: it costs a trial and tells nothing new")
        for k in batch:
            tried = np.append(tried, k)
            if seconds[k] <= CLOSE * seconds.min():
                return len(tried)


def random_choice(features: np.ndarray, tried: np.ndarray, seconds: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """What every policy has to beat."""
    return rng.permutation(np.setdiff1d(np.arange(len(features)), tried))[:BATCH]


@cache
def by_chance() -> float:
    """The median trials of random choice."""
    return float(np.median([trials(random_choice, seed) for seed in range(SEEDS)]))


def check(answer: ModuleType) -> None:
    """Medians of trials; a policy without chance is the same one every time."""
    policy = function(answer, "next_batch")
    first = [trials(policy, seed) for seed in range(SEEDS)]
    again = trials(policy, 0)
    need(again == first[0], f"with the same seed it took {first[0]} trials, then {again}: draw from `rng` only")
    mine = float(np.median(first))
    random = by_chance()
    told = f"{mine:g} trials at the median, random choice {random:g}"
    need(mine <= random, f"{told}: worse than chance; are the slowest asked for first?")
    need(mine <= 0.8 * random, f"{told}; 20 percent fewer are wanted")
