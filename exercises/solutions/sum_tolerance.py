"""Relative to the sizes of the terms, not to the result, which cancels; and written so that NaN is not accepted."""

import numpy as np


def agrees(got, exact, scale, terms):
    allowed = 2.0**-24 * terms * scale
    return bool(np.all(np.abs(got.astype("float64") - exact) <= allowed))
