"""Instructions that the lanes of a warp execute together: what they break, and what they touch."""

from __future__ import annotations

from collections.abc import Iterator

from ..expr.dtype import BYTES
from ..expr.expr import BufferLoad, Expr, binary
from ..expr.visit import walk
from ..loops.stmt import Buffer, WarpLoad, WarpMultiply
from ..loops.stmt_text import head_text
from ..tensor_core.fragment import LANES
from ..tensor_core.mma import OPERANDS, ROW_BYTES
from .verify_scope import Finding, Scope

Instruction = WarpMultiply | WarpLoad
Touch = tuple[Buffer, Expr, bool]
"""A buffer, an index, and whether it is written."""


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
    for e, count, dtype in _registers(s):
        if e.buffer.dtype != dtype or e.buffer.storage != "local":
            yield Finding("dtypes", f"{e!r} of `{text}` must be in a local buffer of {dtype}, got {e.buffer!r}")
        if any(x is lane for x in walk(e.index)):
            yield Finding("meetings", f"the lanes of a warp must name the same {count} elements in `{text}`")
    if isinstance(s, WarpLoad) and s.row.buffer.storage != "shared":
        yield Finding("scopes", f"`{text}` must read shared memory, got {s.row.buffer!r}")


def _registers(s: Instruction) -> list[tuple[BufferLoad, int, str]]:
    """The first elements of what a thread holds, how many there are, and their dtype."""
    if isinstance(s, WarpLoad):
        dtype = s.row.buffer.dtype
        return [(s.to, s.form.fragment(BYTES[dtype]).values, dtype)]
    places = {"a": s.a, "b": s.b, "d": s.d}
    return [(places[x], s.op.fragment(x).values, s.op.held(x).dtype) for x in OPERANDS]


def touched(s: Instruction) -> Iterator[Touch]:
    """The first and the last element of everything that a thread reads or writes, reads first."""
    if isinstance(s, WarpLoad):
        yield from _ends(s.row, ROW_BYTES // BYTES[s.row.buffer.dtype], False)
    for e, count, _ in _registers(s):
        yield from _ends(e, count, isinstance(s, WarpLoad))


def _ends(e: BufferLoad, count: int, writes: bool) -> list[Touch]:
    return [(e.buffer, index, writes) for index in (e.index, binary("+", e.index, count - 1))]
