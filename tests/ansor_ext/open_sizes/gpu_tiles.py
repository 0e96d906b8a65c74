"""A product of matrices whose rows are open, in tiles on a GPU, by hand."""

from __future__ import annotations

import te_lite as te
from tests.ansor_ext.open_sizes.programs import CASES, Case


def tiled(most: int, fuse: bool = False) -> tuple[Case, te.LoweredFunc]:
    """Tiles of 16 rows and 5 columns, a block each; the rows of the tile in shared memory."""
    case = CASES["rows_by_matrix"](1, most)
    a, _, d = case.tensors
    c = d.op.input_tensors()[0]
    s = te.create_schedule(d)
    shared = s.cache_read(a, "shared", [c])
    i, j = s[d].op.axis
    io, ii = s[d].split(i, factor=16)
    jo, ji = s[d].split(j, factor=5)
    s[d].reorder(io, jo, ii, ji)
    blocks = [s[d].fuse(io, jo)] if fuse else [io, jo]
    for loop, axis in zip(blocks, "xy", strict=False):
        s[d].bind(loop, te.thread_axis(f"blockIdx.{axis}"))
    s[d].bind(ii, te.thread_axis("threadIdx.x"))
    s[c].compute_at(s[d], ii)
    s[shared].compute_at(s[d], blocks[-1])
    tile = s[shared].fuse(*s[shared].op.axis)
    rest, lane = s[shared].split(tile, factor=4)
    _, thread = s[shared].split(rest, factor=16)
    s[shared].bind(thread, te.thread_axis("threadIdx.x"))
    s[shared].vectorize(lane)
    return case, te.lower(s, list(case.tensors))
