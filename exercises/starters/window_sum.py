"""Chapter 1, 5 minutes: sums of three neighbours.

`window_sum(x)` gets a tensor of n elements (n >= 3) and gives the tensor of all sums of three neighbours:
out[i] = x[i] + x[i + 1] + x[i + 2], as many of them as there are, and no more.
"""

import te_lite as te


def window_sum(x):
    (n,) = x.shape
    ...
    return ...
