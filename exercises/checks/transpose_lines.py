"""A transposition's lines: every access of the lowered program through a small cache."""

from types import ModuleType

import numpy as np

import te_lite as te

from ..core.accesses import accesses, lines_fetched
from ..core.schedules import needs_right, state_of
from ..core.verdict import function, need

HINT = """A line has 16 floats. Cut both loops so that a tile uses whole lines of A and of B, and so that its lines fit
the cache together."""
SIZE, LINES = 64, 24


def check(answer: ModuleType) -> None:
    """The same program in the cache, and the least that any could fetch."""
    a = te.placeholder((SIZE, SIZE), name="A")
    b = te.compute((SIZE, SIZE), lambda i, j: a[j, i], name="B")
    state = state_of(function(answer, "schedule")(a, b))
    needs_right(state, [a, b], np.random.default_rng(10))
    found = accesses(te.lower(state, [a, b]))
    need(len(found) == 2, "one statement that copies is enough: no further stage, no unrolled tail")
    fetched, least = lines_fetched(found, LINES), 2 * SIZE * SIZE * 4 // 64
    told = f"{fetched} lines are fetched, {least} would do"
    loops = len(found[0].loops)
    need(loops > 2 or fetched == least, f"{told}: with two loops one array is walked down its columns; cut both")
    store = found[1].indices()
    apart = abs(int(store[found[1].loops[-1].extent]) - int(store[0])) < SIZE
    need(
        fetched == least or not apart,
        f"{told}: the two innermost loops go along one row of B, and down the columns of A, without a tile",
    )
    need(
        fetched < 3 * least, f"{told}: a tile touches more lines than the cache keeps before it comes back to the first"
    )
    need(fetched == least, f"{told}: tiles use parts of lines, which are dropped before the rest is used")
