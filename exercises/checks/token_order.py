"""A program for VTA by hand: races between modules, deadlocks, and results."""

from types import ModuleType

import numpy as np

from te_lite.errors import TeError
from vta_sim import CommandQueue, Device

from ..core.verdict import Wrong, need

HINT = """Compute must tell load that it has read the vector, and store must tell compute that it has written the sums.
The first turn has nobody to wait for, and after the last one nobody waits."""
HELP = {
    "of INP that": "load may overwrite a vector only when compute has told it that it was read",
    "of ACC that": "compute may clear the sums only when store has told it that they were written",
    "deadlock": "a module waits for a token that nobody gave it before: who gives the first one?",
}


def check(answer: ModuleType) -> None:
    """One turn works without the missing tokens, three do not."""
    program, rng = vars(answer).get("program"), np.random.default_rng(18)
    need(callable(program), "the file must keep a function `program`")
    for turns in (1, 3, 6):
        device = Device()
        device.finds_races = True
        queue = CommandQueue(device)
        x, w = rng.integers(-9, 9, (turns, 16), np.int8), rng.integers(-9, 9, (16, 16), np.int8)
        vectors, weights, target = (device.dram.alloc(size) for size in (16 * turns, 256, 16 * turns))
        vectors.write(x)
        weights.write(w)
        try:
            program(queue, vectors, weights, target, turns)  # type: ignore[misc]
            launch = queue.synchronize()
        except TeError as error:
            help_ = next((f": {text}" for what, text in HELP.items() if what in str(error)), "")
            raise Wrong(f"{turns} turns: {error}{help_}") from error
        want = (x.astype(np.int32) @ w.T).astype(np.int8)
        off = np.flatnonzero((target.view(np.int8, (turns, 16)) != want).any(axis=1)).tolist()
        need(not off, f"{turns} turns: the results of turns {off} are wrong")
        done = launch.counters.gemm_counter
        need(done == turns, f"{done} products were computed for {turns} turns: one each is enough")
