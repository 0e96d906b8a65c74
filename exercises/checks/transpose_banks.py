"""A transposition's banks and lines, by the addresses of a warp in the lowered program; races by the interpreter."""

from types import ModuleType

import numpy as np

import te_lite as te

from ..core.accesses import accesses, conflicts, lines_of_warp
from ..core.schedules import needs_right, state_of
from ..core.verdict import function, need

HINT = """Element (r, c) of a tile whose rows are `w` floats long lies in bank (r * w + c) % 32. For which w do r = 0
... 31 at one c meet 32 different banks? `s[tile].storage_align(axis, factor, offset)` makes the stride of an axis
offset modulo factor."""


def check(answer: ModuleType) -> None:
    """Global memory first, then shared memory."""
    a = te.placeholder((64, 64), name="A")
    b = te.compute((64, 64), lambda i, j: a[j, i], name="B")
    state = state_of(function(answer, "schedule")(a, b))
    needs_right(state, [a, b], np.random.default_rng(12))
    found = accesses(te.lower(state, [a, b]))
    shared = [x for x in found if x.buffer.storage == "shared"]
    for x in (x for x in found if x.buffer.storage == "global"):
        lines, what = lines_of_warp(x), "A is read" if x.buffer.name == "A" else "B is written"
        need(len(x.of_warp()) == 32, "keep blocks of 32 x 32 threads")
        need(
            lines == 1, f"{what} by a warp in {lines} lines of 128 bytes: threads next to each other must be neighbours"
        )
    need(shared, "keep the tile in shared memory")
    worst = max(conflicts(x) for x in shared)
    bytes_ = max(x.buffer.size for x in shared) * 4
    need(worst == 1, f"a bank of shared memory is asked {worst} times at once, by the threads of a warp")
    need(bytes_ <= 34 * 32 * 4, f"free of conflicts, with {bytes_} bytes of shared memory: 4,224 are enough")
