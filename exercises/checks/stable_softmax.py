"""Softmax by NumPy in float64; rows of large numbers, of very negative ones, and of one element."""

from types import ModuleType

import numpy as np

import te_lite as te
from te_lite.meaning.reference import evaluate

from ..core.verdict import function, need

HINT = """exp(a - c) / (exp(b - c) + ...) is the same for every c. Which c of a row makes all powers at most 1? Look at
`te.max`, and at docs/te_lite.md, Reductions."""


def softmax_of(x: np.ndarray) -> np.ndarray:
    """In float64."""
    power = np.exp(x.astype("float64") - x.max(axis=1, keepdims=True))
    return np.asarray(power / power.sum(axis=1, keepdims=True))


def check(answer: ModuleType) -> None:
    """Small numbers first: a formula that is wrong is not called unstable."""
    softmax, rng = function(answer, "softmax"), np.random.default_rng(2)
    for shape, scale, shift in (((3, 5), 1, 0), ((4, 1), 1, 0), ((5, 7), 100, 0), ((3, 5), 1, 1e4), ((3, 5), 1, -1e4)):
        x = te.placeholder(shape, name="x")
        out = softmax(x)
        values = (rng.standard_normal(shape) * scale + shift).astype("float32")
        with np.errstate(all="ignore"):
            got, want = evaluate([x, out], {x: values})[out], softmax_of(values)
        need(got.shape == shape, f"the result has the shape {got.shape}, and x has {shape}")
        small = scale == 1 and shift == 0
        need(not small or np.allclose(got.sum(axis=1), 1, atol=1e-5), "the elements of a row do not add up to 1")
        large = (
            f"rows around {max(scale, shift, key=abs):g} come out as {float(got.flat[0]):g}: exp overflows or vanishes"
        )
        need(small or np.isfinite(got).all(), f"{large}; subtract something first")
        need(np.allclose(got, want, atol=1e-5), "the values are not those of softmax")
