"""Chapter 4, 25 minutes: when a result agrees with the oracle.

A program's sums of `terms` products in float32 are compared with `exact`, the same computed in float64; `scale` has the
sums of the sizes of the terms, sum(|a * b|), element by element. `agrees` must accept what only rounding explains,
whatever the order of the additions, and refuse a program that drops the largest of its terms, leaves an element
unwritten (outputs are filled with NaN before a run), or is off by a thousandth of `scale`. Rounding to float32 changes
a value by 2**-24 of it at most; n additions in a row are off by n times that at most, and mostly by much less.
"""

import numpy as np


def agrees(got, exact, scale, terms):
    ...
    return ...
