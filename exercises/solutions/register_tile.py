"""Four rows of four vectors: 16 multiply-adds with 8 loads."""

import te_lite as te


def schedule(A, B, C):
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    io, ii = s[C].split(i, 4)
    jo, ji = s[C].split(j, 64)
    jv, ji = s[C].split(ji, 16)
    s[C].reorder(io, jo, k, ii, jv, ji)
    s[C].vectorize(ji)
    return s
