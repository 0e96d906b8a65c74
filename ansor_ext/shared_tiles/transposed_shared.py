"""Shared tiles stored with the reduction outermost, so that a thread reads the rows of its tile side by side.

    A.shared[m, k], read as A.shared[m + 0 .. 3, k]: four rows           stored [m, k]: four reads, or 4 x 4 by 16 bytes
                                                                         stored [k, m]: one read of 16 bytes

What is read together is then multiplied together: the operands of a step of the reduction are few registers, which live
for that step alone, and the compiler finds an order of multiply-adds in which they come from different banks of the
register file (`codegen_cuda/passes/outer_product.py`): a third of the conflicts for 16 x 8 sums, fewer still where both
operands lie along the reduction, as those of linear layers do.

The copy still reads memory along the reduction.  Rows of the tile that are 4 words longer than a multiple of 32 put
what neighbouring threads write, 8 steps of the reduction by 4 rows, into 32 different banks.
"""

from __future__ import annotations

from ansor.sketch.shared_memory import element_bytes
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State
from te_lite.schedule.storage_steps import StorageAlign, StorageOrder

from .padded_shared import BANK_BYTES, PAD_BYTES, strided_copies


def transposed(sketch: State) -> State | None:
    """`sketch` with every shared copy that is read in strides transposed; None when there is none."""
    state = sketch
    for k, axis in strided_copies(sketch):
        op = sketch.stages[k].op
        rank, size = len(op.shape), element_bytes(op.dtype)
        state = apply(state, StorageOrder(k, (*range(axis + 1, rank), *range(axis + 1))))
        state = apply(state, StorageAlign(k, rank - 1, BANK_BYTES // size, PAD_BYTES // size))
    return None if state is sketch else state
