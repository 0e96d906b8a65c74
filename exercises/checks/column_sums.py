"""A parallel reduction: loops counted, races looked for by the interpreter."""

from types import ModuleType

import numpy as np

import te_lite as te
from te_lite.bounds.bounds import infer_bounds

from ..core.schedules import needs_right, state_of
from ..core.verdict import function, need

HINT = """Split k, and give one of its halves to `s.rfactor(B, ...)`: it becomes an axis of new partial sums.
`parts.op.axis` has its loops; one of them may run in parallel."""


def check(answer: ModuleType) -> None:
    """What the parallel loops are, and what one turn does."""
    a = te.placeholder((512, 4), name="A")
    k = te.reduce_axis((0, 512), name="k")
    b = te.compute((4,), lambda j: te.sum(a[k, j], axis=k), name="B")
    state = state_of(function(answer, "schedule")(a, b))
    needs_right(state, [a, b], np.random.default_rng(8))
    stages = [s for s in infer_bounds(state).state.stages if not s.is_placeholder]
    turns = [int(it.extent or 0) for s in stages for it in s.iters if it.annotation == "parallel"]
    split = len(stages) > 1
    need(turns or not split, "the partial sums are there, and no loop over them is parallel yet")
    need(turns, "no loop is parallel")
    need(turns[0] >= 16, f"the parallel loop has {turns[0]} turns: too few to keep 16 threads at work")
    need(turns[0] <= 64, f"the parallel loop has {turns[0]} turns, each of which is over before a thread has started")
