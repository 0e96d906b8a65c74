"""Operators of one tensor: expression, meaning and type agree, and the meaning is that of NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

import relay_lite as relay
from relay_lite.op.erf import erf
from tests.amount import examples
from tests.relay_lite.op_case import check

FUNCTIONS: dict[str, tuple[Callable[..., Any], float, float]] = {
    "exp": (np.exp, -3, 3),
    "log": (np.log, 0.1, 5),
    "log2": (np.log2, 0.1, 5),
    "log10": (np.log10, 0.1, 5),
    "sqrt": (np.sqrt, 0, 5),
    "rsqrt": (lambda x: x**-0.5, 0.1, 5),
    "erf": (scipy.special.erf, -4, 4),
    "sigmoid": (scipy.special.expit, -20, 20),
    "tanh": (np.tanh, -4, 4),
    "sin": (np.sin, -4, 4),
    "cos": (np.cos, -4, 4),
    "tan": (np.tan, -1, 1),
    "sinh": (np.sinh, -3, 3),
    "cosh": (np.cosh, -3, 3),
    "asin": (np.arcsin, -1, 1),
    "acos": (np.arccos, -1, 1),
    "atan": (np.arctan, -9, 9),
    "asinh": (np.arcsinh, -9, 9),
    "acosh": (np.arccosh, 1, 9),
    "atanh": (np.arctanh, -0.9, 0.9),
    "floor": (np.floor, -9, 9),
    "ceil": (np.ceil, -9, 9),
    "round": (np.rint, -9, 9),
    "trunc": (np.trunc, -9, 9),
    "abs": (np.abs, -9, 9),
    "negative": (np.negative, -9, 9),
    "sign": (np.sign, -9, 9),
    "copy": (lambda x: x, -9, 9),
    "isnan": (np.isnan, -9, 9),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float_functions(name: str) -> None:
    want, low, high = FUNCTIONS[name]
    x = np.random.default_rng(1).uniform(low, high, (3, 1, 7)).astype("float32")
    (got,) = check(getattr(relay, name)(relay.var("x", x.shape)), {"x": x})
    np.testing.assert_allclose(got, want(x.astype("float64")), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["abs", "negative", "sign", "copy"])
@pytest.mark.parametrize("dtype", ["int32", "int64", "int8"])
def test_integer_functions(name: str, dtype: str) -> None:
    check(getattr(relay, name)(relay.var("x", (5, 3), dtype)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
def test_relu_and_clip(dtype: str) -> None:
    x = relay.var("x", (2, 3, 5), dtype)
    (got,) = check(relay.nn.relu(x))
    assert got.min() == 0
    (got,) = check(relay.clip(x, -0.5, 0.25) if dtype.startswith("f") else relay.clip(x, -2, 3))
    assert got.min() >= -2 and got.max() <= 3
    check(relay.clip(x, 0.0, float("inf")))


@given(alpha=st.floats(-2, 2), shape=st.lists(st.integers(1, 5), max_size=4))
@examples(20)
def test_leaky_relu(alpha: float, shape: list[int]) -> None:
    check(relay.nn.leaky_relu(relay.var("x", shape), alpha), own_rtol=1e-5, rtol=1e-7)


def test_logical_not() -> None:
    check(relay.logical_not(relay.var("x", (3, 5), "bool")))


@pytest.mark.parametrize("source", ["float32", "float64", "int32", "int64", "uint8", "bool"])
@pytest.mark.parametrize("target", ["float32", "float64", "int32", "int64", "bool"])
def test_cast(source: str, target: str) -> None:
    check(relay.cast(relay.var("x", (3, 5), source), target), low=-5, high=5)


def test_erf_is_exact_in_float64() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20_001), [0.0, -0.0, np.inf, -np.inf, 1e-300, -1e-9]])
    np.testing.assert_allclose(erf(x), scipy.special.erf(x), rtol=3e-16, atol=2e-16)
    assert np.isnan(erf(np.array([np.nan]))).all()
    assert erf(x.astype("float32")).dtype == np.float32


def test_sigmoid_does_not_overflow() -> None:
    call = relay.sigmoid(relay.var("x", (4,)))
    with np.errstate(over="raise"):
        got = call.op.numpy([np.array([-1e4, -90, 90, 1e4], "float32")], call.attrs)
    np.testing.assert_allclose(got, [0, 0, 1, 1], atol=1e-30)
