"""Chapter 4, 20 minutes: threads for a sum of few columns.

A has 512 rows and 4 columns; B[j] is the sum of column j. A parallel loop over j has four turns. For more, the sum must
be cut into parts that different threads add up, and a last loop adds the parts. A loop over k itself cannot run in
parallel: its turns meet in B[j], and the interpreter and the verifier refuse that.

Give a schedule with a parallel loop of 16 to 64 turns in which every turn adds up at least 8 rows.
"""

import te_lite as te


def schedule(A, B):
    s = te.create_schedule(B.op)
    (j,) = B.op.axis
    (k,) = B.op.reduce_axis
    s[B].parallel(j)  # four turns are too few ...
    return s
