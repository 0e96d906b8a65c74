"""As many sums as there are windows: n - 2."""

import te_lite as te


def window_sum(x):
    (n,) = x.shape
    return te.compute((n - 2,), lambda i: x[i] + x[i + 1] + x[i + 2], name="sums")
