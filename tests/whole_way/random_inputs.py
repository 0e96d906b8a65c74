"""The inputs of a description."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from .bounded import DIGITS, Array
from .description import Dag, Input


def random_inputs(dag: Dag) -> dict[str, Array]:
    """The inputs of a description, from its seed."""
    return {i.name: filled(i, np.random.default_rng([dag.seed, k])) for k, i in enumerate(dag.inputs)}


def filled(i: Input, rng: np.random.Generator) -> Array:
    """An array as `i` says."""
    if i.values == "zero":
        return np.zeros(i.shape, i.dtype)
    if i.dtype == "bool":
        return rng.integers(0, 2, i.shape).astype("bool")
    if i.dtype in DIGITS:
        out = rng.integers(-24, 25, i.shape) / 8
        if i.values != "small":
            out = rng.standard_normal(i.shape) * 10.0 ** rng.integers(-2, 3, i.shape)
    else:
        info = np.iinfo(i.dtype)
        wide = i.values != "small"
        low, high = (info.min, info.max) if wide else (max(-9, info.min), 9)
        out = rng.integers(low, high, i.shape, dtype=i.dtype, endpoint=True)
    out = np.asarray(out).astype(i.dtype)
    return _special(out, rng) if i.values == "special" else out


def _special(x: Array, rng: np.random.Generator) -> Array:
    """A third of the elements replaced by the values that programs stumble over."""
    if x.dtype.name in DIGITS:
        info = ml_dtypes.finfo(x.dtype)
        kinds = np.array(
            [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, info.max, info.min, info.smallest_subnormal], x.dtype
        )
    else:
        info = np.iinfo(x.dtype)
        kinds = np.array([0, 0, info.min, info.max, 1, info.max], x.dtype)
    return np.where(rng.random(x.shape) < 0.33, kinds[rng.integers(len(kinds), size=x.shape)], x)
