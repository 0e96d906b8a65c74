"""Chapter 3, 15 minutes: the guard that a split needs.

Splitting a loop of `extent` by a `factor` of at most that makes an outer loop and an inner loop of `factor`; together
they stand for index = outer * factor + inner. Where the factor does not divide, some points lie beyond the edge, and a
guard must keep them out; where it divides, a guard costs time and says nothing.

`split` gives the extent of the outer loop and whether a guard is needed; `inside` is the guard.
"""


def split(extent, factor):
    return ..., ...


def inside(outer, inner, extent, factor):
    return ...
