"""Chapter 5, 30 minutes: a tile in registers.

A product on vectors of 16 floats, with 28 registers for accumulators. In the innermost loop over k, one element of A
and one vector of B make one multiply-add. Loaded for each multiply-add anew, they cost two loads each; a tile of r
rows and v vectors of C does r * v multiply-adds with r + v loads.

Schedule C = A * B (64 x 64, sums of 32 terms) so that the emitted C keeps the tile in variables while k runs, and does
at least 1.8 multiply-adds for each load. `codegen_c.emit(te.lower(s, [A, B, C]))` shows the text.
"""

import te_lite as te


def schedule(A, B, C):
    s = te.create_schedule(C.op)
    i, j = C.op.axis
    (k,) = C.op.reduce_axis
    jo, ji = s[C].split(j, 16)
    s[C].reorder(i, jo, k, ji)  # a tile of one vector ...
    s[C].vectorize(ji)
    return s
