"""The region of a padded input: compared with the set of all reads, and with bound inference on a schedule."""

from types import ModuleType

import numpy as np

import te_lite as te

from ..core.schedules import loops
from ..core.verdict import function, need

HINT = """Write down the first index that is read (y = first, r = 0) and the last one (y = first + count - 1,
r = taps - 1). The extent is last - begin + 1."""


def inferred(outputs: int, tile: int, stride: int, taps: int, dilation: int) -> int:
    """The extent that bound inference gives to the copy of a tile's inputs."""
    n = (outputs - 1) * stride + (taps - 1) * dilation + 1
    x = te.placeholder((n,), name="x")
    w = te.placeholder((taps,), name="w")
    copy = te.compute((n,), lambda i: x[i] * 1.0, name="padded")
    r = te.reduce_axis((0, taps), "r")
    out = te.compute((outputs,), lambda y: te.sum(copy[y * stride + r * dilation] * w[r], axis=r), name="out")
    s = te.create_schedule(out.op)
    outer, _ = s[out].split(out.op.axis[0], tile)
    s[copy].compute_at(s[out], outer)
    return loops(s.state, "padded")[0][1]


def check(answer: ModuleType) -> None:
    """The sets of reads decide; plain cases first, so that the sentence names what was forgotten."""
    region, rng = function(answer, "region"), np.random.default_rng(5)
    cases: list[tuple[int, ...]] = [(0, 4, 1, 3, 1), (2, 4, 1, 3, 1), (2, 5, 2, 1, 1), (1, 1, 3, 4, 1), (1, 4, 2, 3, 2)]
    cases += [tuple(int(n) for n in rng.integers([0, 1, 1, 1, 1], [9, 7, 4, 5, 4])) for _ in range(40)]
    for first, count, stride, taps, dilation in cases:
        reads = [y * stride + r * dilation for y in range(first, first + count) for r in range(taps)]
        got, want = region(first, count, stride, taps, dilation), (min(reads), max(reads) - min(reads) + 1)
        need(... not in got, "`region` still has its hole: replace both `...`")
        case = f"first {first}, count {count}, stride {stride}, taps {taps}, dilation {dilation}"
        need(got[0] == want[0], f"{case}: the first read is {want[0]}, you begin at {got[0]}")
        if got[1] != want[1]:
            size = "too few" if got[1] < want[1] else "more than are needed"
            need(False, f"{case}: {max(reads)} is the last read, so {want[1]} elements; yours are {got[1]}, {size}")
    for outputs, tile, stride, taps, dilation in ((24, 4, 1, 3, 1), (24, 6, 2, 3, 2)):
        wanted = inferred(outputs, tile, stride, taps, dilation)
        need(region(0, tile, stride, taps, dilation)[1] == wanted, f"bound inference says {wanted} for {tile}")
