"""Padded shared tiles: rows that start in different memory banks.

Shared memory has 32 banks of 4 bytes.  Threads of a warp that read down a column of a tile, whose rows are a multiple
of 32 words long, wait for one bank.  Rows that are 4 words longer than such a multiple put eight threads that read 16
bytes each into all 32 banks, and keep 16-byte accesses aligned.
"""

from __future__ import annotations

from collections.abc import Iterator

from ansor.sketch.rule import SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.bounds.reads import reads_by_producer
from te_lite.schedule.replay import apply
from te_lite.schedule.state import ATTACHED, INLINED, State
from te_lite.schedule.storage_steps import StorageAlign

from ..analysis.changes import changed
from ..analysis.own_stages import axes_of, extents_of, has_rfactor, ordinary_sketches

BANK_BYTES = 128
PAD_BYTES = 16


def strided_axis(state: State, k: int) -> int | None:
    """The axis of shared copy `k` along which threads read it in strides; None when they read neighbours.

    It is the last one that depends on a space axis of the reader, when the reader runs through later ones in its
    reduction.  The axis of the parts of a split reduction, the first one, is not among them: a tile has one part.
    """
    hidden = frozenset(n for n, s in enumerate(state.stages) if s.where == INLINED)
    attach = state.stages[k].attach
    assert attach is not None
    reader = state.stages[attach.stage].op
    extents = extents_of(reader)
    parts = {0} if has_rfactor(state, attach.stage) else set()
    space = set(range(len(reader.axis))) - parts
    forms = [r.forms for r in reads_by_producer(state.ops, hidden)[k] if r.reader == attach.stage]
    along = [d for form in forms for d, index in enumerate(form) if axes_of(index, extents) & space]
    behind = state.stages[k].op.shape[max(along) + 1 :] if along else ()
    return max(along) if any(size > 1 for size in behind) else None


def strided_copies(sketch: State) -> Iterator[tuple[int, int]]:
    """The shared copies that are read in strides, and along which axis."""
    for k, stage in enumerate(sketch.stages):
        if stage.where == ATTACHED and stage.op.name.endswith(".shared"):
            axis = strided_axis(sketch, k)
            if axis is not None:
                yield k, axis


def padded(sketch: State) -> State | None:
    """`sketch` with every shared copy that is read in strides padded; None when there is none."""
    state = sketch
    for k, axis in strided_copies(sketch):
        size = element_bytes(sketch.stages[k].op.dtype)
        state = apply(state, StorageAlign(k, axis, BANK_BYTES // size, PAD_BYTES // size))
    return None if state is sketch else state


def padded_sketches(ctx: SketchContext) -> list[State]:
    """The ordinary sketches with padded tiles."""
    return changed(ordinary_sketches(ctx), padded)
