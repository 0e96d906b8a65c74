"""Evaluate an operator on random inputs in float64 and compare it with NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import te_lite as te
from te_lite.meaning.reference import evaluate, random_inputs


def inputs_of(*shapes: tuple[int, ...], dtype: str = "float32") -> list[te.Tensor]:
    return [te.placeholder(s, dtype, name=f"x{k}") for k, s in enumerate(shapes)]


def values(tensors: list[te.Tensor], seed: int = 0, positive: bool = False) -> dict[te.Tensor, np.ndarray]:
    arrays = random_inputs(tensors, np.random.default_rng(seed))
    return {t: np.abs(a) + 0.1 if positive else a for t, a in arrays.items()}


def check(
    out: te.Tensor, inputs: list[te.Tensor], expected: Callable[..., Any], positive: bool = False, rtol: float = 1e-12
) -> None:
    """`out` equals `expected(*arrays of inputs)` in float64, and nearly so in its own dtype."""
    arrays = values([*inputs, out], positive=positive)
    exact = [arrays[t].astype("float64") if arrays[t].dtype.kind == "f" else arrays[t] for t in inputs]
    want = np.asarray(expected(*exact))
    got = evaluate([*inputs, out], arrays, "float64")[out]
    assert got.shape == out.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol * max(1.0, float(np.abs(want).max())))
    own = evaluate([*inputs, out], arrays)[out]
    assert own.dtype == np.dtype(out.dtype)
    if own.dtype.kind == "f":
        np.testing.assert_allclose(own, want, rtol=2e-4, atol=2e-4 * max(1.0, float(np.abs(want).max())))
    else:
        np.testing.assert_array_equal(own, want)
