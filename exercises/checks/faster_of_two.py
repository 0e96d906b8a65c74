"""Two programs that differ by 3 %, on a machine that drifts and is interrupted: how often is the answer right?"""

from types import ModuleType

import numpy as np

from ..core.noisy_clock import Machine
from ..core.verdict import function, need

HINT = """Neighbours in time meet the same machine: compare a run of a with the run of b beside it. Throw the first runs
away. Which mean is not moved by a few very long runs?"""
SESSIONS = 100


def share_right(faster: object, drift: float, interrupted: float, cold: float) -> float:
    """In how many sessions the faster one is found; the order of the two is drawn."""
    right = 0
    for seed in range(SESSIONS):
        rng = np.random.default_rng(seed)
        machine = Machine(rng, drift, cold, interrupted)
        a_is_faster = bool(rng.random() < 0.5)
        seconds = (1e-3, 1.03e-3) if a_is_faster else (1.03e-3, 1e-3)
        said = faster(machine.program("a", seconds[0]), machine.program("b", seconds[1]))  # type: ignore[operator]
        need(said in ("a", "b"), f"the answer is 'a' or 'b', yours is {said!r}")
        need(len(machine.runs) <= 60, f"you made {len(machine.runs)} runs, 60 are allowed")
        need({"a", "b"} <= set(machine.runs), "one of the programs was never run")
        right += said == ("a" if a_is_faster else "b")
    return right / SESSIONS


def check(answer: ModuleType) -> None:
    """One trouble after the other, then all at once."""
    faster = function(answer, "faster")
    quiet = share_right(faster, 0, 0, 1)
    need(quiet > 0.95, f"on a quiet machine you find the faster one in {quiet:.0%} of sessions")
    drifting = share_right(faster, 0.15, 0, 1)
    need(
        drifting > 0.95,
        f"on a machine that becomes slower you are right in {drifting:.0%} of sessions: measure in turns",
    )
    cold = share_right(faster, 0, 0, 30)
    need(
        cold > 0.95,
        f"with cold first runs you are right in {cold:.0%} of sessions: a warm-up belongs before the figures",
    )
    disturbed = share_right(faster, 0, 0.2, 1)
    robust = "one interruption moves a mean; a median, or the least, bears it"
    need(disturbed > 0.95, f"on a machine that is interrupted you are right in {disturbed:.0%} of sessions: {robust}")
    real = share_right(faster, 0.15, 0.15, 30)
    need(real > 0.95, f"with all troubles at once you are right in {real:.0%} of sessions; compare neighbours in time")
