"""Reports of the best of forty: their bias over many searches, and how good the chosen programs are."""

from types import ModuleType

import numpy as np

from ..core.verdict import function, need

HINT = """Measure all, choose one, and measure that one again: only the new figures say what it takes. Choosing by the
mean of two figures finds better programs than choosing by one."""
SEARCHES = 300


def check(answer: ModuleType) -> None:
    """Programs between 1 and 2 seconds."""
    report = function(answer, "report")
    bias, regret = [], []
    for seed in range(SEARCHES):
        rng = np.random.default_rng(seed)
        true = 1 + rng.random(40)
        calls = np.zeros(40, int)

        def measure(
            k: int, true: np.ndarray = true, rng: np.random.Generator = rng, calls: np.ndarray = calls
        ) -> float:
            calls[k] += 1
            return float(true[k] * (1 + rng.normal(0, 0.1)))

        best, seconds = report(measure, 40)
        need(calls.sum() <= 160, f"you called `measure` {calls.sum()} times, 160 are allowed")
        need((calls > 0).all(), "some programs were never measured")
        bias.append(seconds / true[best] - 1)
        regret.append(true[best] / true.min() - 1)
    lost = float(np.mean(regret))
    need(lost < 0.12, f"the programs you choose are {lost:.0%} slower than the best of the 40, on average")
    off = float(np.mean(bias))
    need(off > -0.01, f"your estimates are {-off:.1%} too low on average: figures that chose the winner praise it")
    need(off < 0.01, f"your estimates are {off:.1%} too high on average")
    spread = float(np.std(bias))
    need(spread < 0.03, f"right on average, but off by {spread:.0%} each time: measure the winner more often")
