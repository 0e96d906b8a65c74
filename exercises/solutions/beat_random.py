"""A ridge regression on the logarithm of the seconds; two of eight stay random, so that it hears of other corners."""

import numpy as np


def next_batch(features, tried, seconds, rng):
    untried = rng.permutation(np.setdiff1d(np.arange(len(features)), tried))
    if len(tried) == 0:
        return untried[:8]
    spread = features.std(axis=0)
    x = ((features - features.mean(axis=0)) / np.where(spread > 0, spread, 1))[:, spread > 0]
    known, y = x[tried], np.log(seconds)
    weights = np.linalg.solve(known.T @ known + 1.0 * np.eye(x.shape[1]), known.T @ (y - y.mean()))
    order = untried[np.argsort(x[untried] @ weights, kind="stable")]
    return np.unique(np.concatenate([order[:6], untried[:2]]))
