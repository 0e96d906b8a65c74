"""Chapter 6, 25 minutes: a transposition free of bank conflicts.

B[i, j] = A[j, i] on a GPU, 64 x 64 floats, in blocks of 32 x 32 threads. Neighbouring threads must read neighbours of A
and write neighbours of B, so a tile goes through shared memory. Its 32 banks are 4 bytes wide: the 32 threads of a warp
that read a column of a tile of 32 x 32 floats all ask the same bank, 32 times.

The schedule below does that. Change how the tile is stored (see `storage_align` in docs/te_lite.md), so that no bank is
asked twice at once.
"""

import te_lite as te


def schedule(A, B):
    s = te.create_schedule(B.op)
    tile = s.cache_read(A, "shared", [B])
    i, j = B.op.axis
    block_i, i = s[B].split(i, 32)
    block_j, j = s[B].split(j, 32)
    s[B].reorder(block_i, block_j, i, j)
    s[B].bind(block_i, te.thread_axis("blockIdx.y"))
    s[B].bind(block_j, te.thread_axis("blockIdx.x"))
    s[B].bind(i, te.thread_axis("threadIdx.y"))
    s[B].bind(j, te.thread_axis("threadIdx.x"))
    s[tile].compute_at(s[B], block_j)
    row, column = s[tile].op.axis
    s[tile].bind(row, te.thread_axis("threadIdx.y"))
    s[tile].bind(column, te.thread_axis("threadIdx.x"))
    # the rows of the tile: ...
    return s
