"""Differences seed by seed, so that what a seed brings cancels."""

import numpy as np


def interval(old, new, t):
    gain = np.log(old / new)
    half = t * gain.std(ddof=1) / np.sqrt(len(gain))
    return gain.mean() - half, gain.mean() + half
