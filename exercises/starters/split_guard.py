"""Chapter 3, 15 minutes: the guard that a split needs.

A loop of `extent` turns is split by a `factor`, which is at most `extent`, into an outer loop and an inner loop of
`factor` turns; together they stand for index = outer * factor + inner. Where the factor does not divide the extent,
some points lie beyond the edge, and a guard must keep them out; where it divides it, a guard costs time and says
nothing.

`split` gives the extent of the outer loop and whether a guard is needed; `inside` is the guard.
"""


def split(extent, factor):
    return ..., ...


def inside(outer, inner, extent, factor):
    return ...
