"""Outputs with bounds around them, right or wrong at few elements, where comparisons differ."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ansor.measure.check import Accepted
from te_lite.expr.dtype import computed

Array = np.ndarray


def special(dtype: str) -> Array:
    """Values of a dtype at which comparisons differ."""
    if np.dtype(dtype).kind in "biu":
        info = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return np.array([info[0], info[1], 0, 1], dtype)
    info = ml_dtypes.finfo(np.dtype(dtype))
    values = [0.0, -0.0, 1.0, np.inf, np.nan, float(info.max), float(info.smallest_subnormal), float(info.tiny)]
    return np.array([s * v for v in values for s in (1, -1)]).astype(dtype)


def one_case(rng: np.random.Generator, dtype: str) -> tuple[Array, Accepted]:
    """An output and bounds around it; most elements are right, often all."""
    size, wide = int(rng.integers(1, 700)), computed(dtype)
    pool = np.concatenate([special(dtype), rng.normal(0, 3, 20).astype(dtype)])
    got = rng.choice(pool, size)
    value = got.astype(wide)
    near = np.zeros(size, bool) if wide == "bool" else rng.random(size) < 0.5
    step = (lambda x, to: np.nextafter(x, np.array(to, wide))) if np.dtype(wide).kind == "f" else lambda x, to: x
    low = np.where(near, step(value, -np.inf), value).astype(wide)
    high = np.where(near, step(value, np.inf), value).astype(wide)
    nan = np.isnan(value.astype("float64"))
    low = np.where(nan, np.array(np.inf if nan.any() else 0).astype(wide), low)
    keep_nan = nan.any() and rng.random() < 0.8
    nan &= rng.random(size) < rng.choice([0.97, 1.0])
    for k in rng.integers(0, size, rng.integers(0, 2)):
        side, other = (low, high)[int(rng.integers(2))], rng.choice(special(wide))
        side[k] = other
    return got, Accepted(low, high, nan if keep_nan else None)
