"""Steps as JSON, replayed; the nest that they make, compared loop by loop with the wanted one."""

from types import ModuleType

import numpy as np

import te_lite as te
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json

from ..core.schedules import loops, needs_right, product
from ..core.verdict import function, need

HINT = """Write down the loops after every step: i, j, k; then i.0, i.1, j, k; and so on. `print(s.state)` after a
schedule by hand, and `to_json` of its steps, show what you are after."""

WANTED = [("i.0", 12, "parallel"), ("j.0", 2, "none"), ("k", 20, "none"), ("i.1", 4, "none"), ("j.1", 16, "vectorize")]


def check(answer: ModuleType) -> None:
    """The first loop that differs is named."""
    lists = function(answer, "steps")()
    need(... not in lists, "the list of steps still has its hole: replace the `...`")
    tensors = product(48, 20, 32)
    state = replay(te.ComputeDAG(tensors), [from_json(step) for step in lists])
    found = loops(state, "C")
    need(len(found) == 5, f"there are {len(found)} loops and not 5: both i and j are split in two")
    for place, (got, wanted) in enumerate(zip(found, WANTED, strict=True)):
        shown = f"loop number {place} is {got[0]} of {got[1]}, {got[2]}, where {wanted[0]} of {wanted[1]}, {wanted[2]}"
        numbers = "; did a split move the numbers of the loops behind it?" if got[0] != wanted[0] else ""
        need(got == wanted, f"{shown} should be{numbers}")
    needs_right(state, tensors, np.random.default_rng(4))
