"""A split's outer extent and guard: every index once and none beyond, as in the lowered program."""

from types import ModuleType

import te_lite as te
from te_lite.loops.stmt import If, stmts_of

from ..core.verdict import function, need

HINT = """7 split by 3: the outer loop has 3 turns, and 3 * 3 = 9 points, of which 7 and 8 are beyond. To round up
without floats: -(-a // b)."""


def lowered_guard(extent: int, factor: int) -> bool:
    """Whether lowering puts a condition around the statement."""
    x = te.placeholder((extent,), name="x")
    y = te.compute((extent,), lambda i: x[i] + 1.0, name="y")
    s = te.create_schedule(y.op)
    s[y].split(y.op.axis[0], factor)
    return any(isinstance(stmt, If) for stmt in stmts_of(te.lower(s, [x, y]).body))


def check(answer: ModuleType) -> None:
    """First the points, then whether the guard is there only where it must be."""
    split, inside = function(answer, "split"), function(answer, "inside")
    for extent, factor in ((12, 4), (48, 5), (7, 3), (1, 1), (13, 13), (97, 16), (96, 16)):
        outer, guarded = split(extent, factor)
        need(outer is not ... and guarded is not ..., "`split` still has its hole: replace both `...`")
        case = f"{extent} split by {factor}"
        points = [(o, i) for o in range(outer) for i in range(factor)]
        visited = [o * factor + i for o, i in points if not guarded or inside(o, i, extent, factor)]
        missing, beyond = sorted(set(range(extent)) - set(visited)), [x for x in visited if x >= extent]
        need(not missing, f"{case}: index {missing[:1]} is never computed; does the outer loop round up?")
        need(not beyond, f"{case}: index {beyond[:1]} is computed, and is beyond the edge; a guard must keep it out")
        need(len(visited) == extent, f"{case}: some index is computed twice")
        need(outer * factor < extent + factor, f"{case}: {outer} turns of the outer loop are more than are needed")
        need(bool(guarded) == lowered_guard(extent, factor), f"{case}: the factor divides, so the guard is always true")
