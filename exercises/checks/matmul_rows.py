"""A product's loop order: strides and lines by the features of the program, values by the interpreter."""

from types import ModuleType

import numpy as np

from ..core.schedules import feature, loops, needs_right, product, state_of
from ..core.verdict import function, need

HINT = """Which of i, j, k moves by one element in B[k, j] and in C[i, j] at once? That one is innermost. Of the
two others, put that one outside which lets a row of C stay where it is."""


def check(answer: ModuleType) -> None:
    """What the loops do to B first, then to C."""
    tensors = product(48, 20, 32)
    state = state_of(function(answer, "schedule")(*tensors))
    needs_right(state, tensors, np.random.default_rng(3))
    need(len(loops(state, "C")) == 3, "reorder the three loops, no more")
    order = [name for name, _, _ in loops(state, "C")]
    lines = feature(state, 0, "B2.lines")
    down = f"the innermost loop is k: B[k, j] moves down a column, {lines:.0f} lines are fetched where 1920 would do"
    need(order[2] != "k", down)
    need(order[2] != "i", "the innermost loop is i: A[i, k] and C[i, j] move down columns, and B stands still")
    need(order[0] == "i", "k is outermost: all rows of C are swept once for each k; keep one row at hand instead")
