"""Softplus keeps its digits where it is small, and Celu its shape where that is ().

The oracle is Python's `log1p`, `exp` and `expm1`, rounded once; four units in the last place are allowed.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("onnx")

from .everywhere import node_model, of_onnx

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")


def softplus(x: float) -> float:
    return math.log1p(math.exp(x)) if x < 50 else x


def mish(x: float) -> float:
    return x * math.tanh(softplus(x))


def celu(x: float) -> float:
    return x if x >= 0 else 1.5 * math.expm1(x / 1.5)


EDGES = [0.0, -0.0, -17.0, -18.5, -30.0, -87.0, -8.0, 1e-6, -1e-6, 17.0, 88.0, 200.0]
CASES: list[tuple[str, Callable[[float], float], dict[str, float], int]] = [
    ("Softplus", softplus, {}, 22), ("Mish", mish, {}, 22), ("Celu", celu, {"alpha": 1.5}, 18)
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize(("op", "meaning", "attrs", "opset"), CASES)
def test_small_results_keep_their_digits(
    op: str, meaning: Callable[[float], float], attrs: dict[str, float], opset: int, dtype: str
) -> None:
    if op == "Celu" and dtype != "float32":
        pytest.skip("ONNX has it for float32 only")
    x = np.array([*EDGES, *np.random.default_rng(1).uniform(-40, 40, 64)], dtype)
    want = np.array([meaning(float(v)) for v in x])
    unit = np.maximum(np.spacing(np.abs(want).astype(dtype)).astype("float64"), np.finfo(dtype).smallest_subnormal)
    for who, (got,) in of_onnx(node_model(op, [x], opset=opset, **attrs), [x]):
        assert got.dtype == dtype and (np.abs(got.astype("float64") - want) <= 4 * unit).all(), who


@pytest.mark.parametrize(("op", "meaning", "attrs", "opset"), CASES)
def test_a_scalar_stays_one(op: str, meaning: Callable[[float], float], attrs: dict[str, float], opset: int) -> None:
    x = np.array(-2.5, "float32")
    for who, (got,) in of_onnx(node_model(op, [x], opset=opset, **attrs), [x]):
        assert got.shape == () and abs(float(got) - meaning(-2.5)) < 1e-6, who
