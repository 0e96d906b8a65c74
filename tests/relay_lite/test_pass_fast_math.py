"""tanh and erf have fast forms at level 4."""

from __future__ import annotations

from math import erf

import numpy as np
import pytest

import te_lite as te
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Call
from relay_lite.transform import FastMath, PassContext, Sequential
from te_lite.meaning import reference

from .pass_graphs import assert_same_meaning, function, ops


def _te_value(node: Call, value: np.ndarray) -> np.ndarray:
    """The operator's tensor expression, evaluated."""
    (given,) = node.args
    data = te.placeholder(given.shape, name="data", dtype=given.dtype)
    (out,) = node.op.compute([data], node.attrs, "c")  # type: ignore[misc]
    return reference.evaluate([out], {data: value})[out]


def test_tensor_expressions_mean_the_same() -> None:
    values = np.linspace(-11, 11, 301, dtype="float32")
    for name in ("fast_tanh", "fast_erf"):
        node = call(name, var("x", values.shape))
        want = node.op.numpy([values], node.attrs)
        assert want.shape == node.shape and want.dtype == node.dtype
        np.testing.assert_allclose(_te_value(node, values), want, rtol=0, atol=2e-7)


@pytest.mark.parametrize(("name", "exact"), [("tanh", np.tanh), ("erf", np.vectorize(erf))])
def test_fast_functions_are_close_everywhere(name: str, exact: np.ufunc) -> None:
    x = np.concatenate([np.linspace(-12, 12, 20001), [0, -0.0, 1e-30, 1e30, np.inf, -np.inf]]).astype("float32")
    got = call(f"fast_{name}", var("x", x.shape)).op.numpy([x], {})
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, exact(x.astype("float64")), rtol=0, atol=5e-7)


def test_fast_math_runs_at_level_4_only_and_on_float32_only() -> None:
    x = var("x", (3, 5))
    before = function(call("add", call("tanh", x), call("erf", call("exp", x))))
    with PassContext(opt_level=3):
        assert Sequential([FastMath()])(before) is before
    with PassContext(opt_level=4):
        after = Sequential([FastMath()])(before)
    assert ops(after) == {"fast_tanh": 1, "fast_erf": 1, "exp": 1, "add": 1}
    assert_same_meaning(before, after, 1e-6)
    double = function(call("tanh", var("y", (3,), "float64")))
    assert FastMath()(double) is double
