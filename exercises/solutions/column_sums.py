"""`rfactor`: partial sums along the outer part of k, in parallel, then their sum."""

import te_lite as te


def schedule(A, B):
    s = te.create_schedule(B.op)
    (k,) = B.op.reduce_axis
    outer, _ = s[B].split(k, 16)
    parts = s.rfactor(B, outer)
    s[parts].parallel(parts.op.axis[0])
    return s
