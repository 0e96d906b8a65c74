"""Padded shared tiles: rows that start in different memory banks.

Shared memory has 32 banks of 4 bytes.  Threads of a warp that read down a column of a tile, whose rows are a multiple
of 32 words long, wait for one bank.  Rows that are 4 words longer than such a multiple put eight threads that read 16
bytes each into all 32 banks, and keep 16-byte accesses aligned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from te_lite.reads import Affine, Form, Quotient, Read, Scaled, Sum, reads_by_producer
from te_lite.replay import apply
from te_lite.state import ATTACHED, INLINED, State
from te_lite.step import StorageAlign
from te_lite.tensor import Operation

from ..predicates import has_rfactor
from ..shared_memory import element_bytes

BANK_BYTES = 128
PAD_BYTES = 16


def extents_of(op: Operation) -> list[int]:
    """The extents of the axes of a stage, spatial first; 2 stands for one that varies."""
    return [v.extent if isinstance(v.extent, int) else 2 for v in (*op.axis, *op.reduce_axis)]


def axes_of(form: Form, extents: Sequence[int]) -> frozenset[int]:
    """The numbers of the reader's axes (of these extents) that an index depends on; empty for an unknown index.

    An axis that is divided by its extent or more (`f // channels` with one group) does not count.
    """
    match form:
        case Affine(terms=terms):
            return frozenset([axis for axis, _ in terms if extents[axis] > 1])
        case Sum(parts=parts):
            return frozenset().union(*[axes_of(p, extents) for p in parts])
        case Quotient(part=Affine(terms=((axis, 1),), const=0), divisor=divisor, mod=False) if extents[axis] <= divisor:
            return frozenset()
        case Scaled(part=part) | Quotient(part=part):
            return axes_of(part, extents)
        case _:
            return frozenset()


def axes_read(read: Read, extents: Sequence[int]) -> frozenset[int]:
    """The axes, of these extents, that a read depends on."""
    return frozenset().union(*[axes_of(form, extents) for form in read.forms])


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
