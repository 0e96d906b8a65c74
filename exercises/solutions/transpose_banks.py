"""Rows of 33 floats: a column meets every bank once."""

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
    s[tile].storage_align(row, 32, 1)
    return s
