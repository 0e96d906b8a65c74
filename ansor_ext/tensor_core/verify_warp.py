"""Instructions that the lanes of a warp execute together: what they break."""

from __future__ import annotations

from collections.abc import Iterator

from te_lite.bounds.loop_scope import LANES
from te_lite.expr.expr import BufferLoad
from te_lite.expr.visit import walk
from te_lite.loops.stmt import Instruction
from te_lite.loops.stmt_text import head_text
from te_lite.verify.verify_scope import Finding, Scope


def breaches(s: Instruction, scope: Scope) -> Iterator[Finding]:
    """All lanes of a warp must come to the instruction, and mean the same registers; operands have their dtypes."""
    text = head_text(s)
    warps = [x for x in scope.kernel if x.tag == "threadIdx.x" and x.extent == LANES]
    if not warps:
        yield Finding("meetings", f"`{text}` is in a kernel without {LANES} threads along threadIdx.x")
        return
    lane = warps[0].var
    parting = [c for c in scope.conditions if any(x is lane or isinstance(x, BufferLoad) for x in walk(c))]
    if parting or scope.spans.of(lane) != (0, LANES - 1):
        yield Finding("meetings", f"only some lanes of a warp reach `{text}`")
    for e, count, dtype, _, storage in s.touches():
        if storage == "local" and (e.buffer.dtype != dtype or e.buffer.storage != "local"):
            yield Finding("dtypes", f"{e!r} of `{text}` must be in a local buffer of {dtype}, got {e.buffer!r}")
        if storage == "local" and any(x is lane for x in walk(e.index)):
            yield Finding("meetings", f"the lanes of a warp must name the same {count} elements in `{text}`")
        if storage == "shared" and e.buffer.storage != "shared":
            yield Finding("scopes", f"`{text}` must read shared memory, got {e.buffer!r}")
