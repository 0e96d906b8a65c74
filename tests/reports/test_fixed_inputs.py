"""Inputs of ONNX models that have a fixed value, and control flow that is refused with a way out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from relay_lite.frontend import from_onnx
from relay_lite.frontend.onnx.fixed import fixed_from_text
from relay_lite.ir.errors import GraphError
from relay_lite.ir.reference import run
from tests.nonempty import nonempty
from tests.reports.test_control_flow import CASES, f32, kinds_of, model_of, nested


def test_an_input_that_is_fixed_is_a_constant() -> None:
    """No input any more, and no branch is left."""
    model, rng = model_of(CASES["branches inside of branches"].text), np.random.default_rng(0)
    x, w, v = f32(rng, 3, 4), f32(rng, 4, 4), f32(rng, 4, 4)
    for value in (16000, 8000, 3, np.array(8000), np.array(16000, "int32")):
        graph, _ = from_onnx(model, fixed={"n": value})
        assert [p.name for p in graph["main"].params] == ["x", "w", "v"] and not kinds_of(graph["main"].body)
        for got, want in nonempty(zip(run(graph, [x, w, v]), nested(np.array(value), x, w, v), strict=True)):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("fixed", "law"),
    [
        ({"m": 1}, "inputs are 'n', 'x', 'w', 'v', got unknown=.'m'"),
        ({"n": 16000.5}, "ONNX input 'n': the fixed value must be one of int64, got value=16000.5"),
        ({"n": 2**64}, "ONNX input 'n': the value|ONNX input 'n': the fixed value must be one of int64"),
        ({"n": [1, 2]}, r"ONNX input 'n': the fixed value must have its shape, got value=\(2,\) declared=\(\)"),
        ({"x": 1.0}, r"ONNX input 'x': the fixed value must have its shape, got value=\(\) declared=\(3, 4\)"),
        ({"n": "16000"}, "ONNX input 'n': the value of a tensor of numbers can be fixed"),
        ({"n": True, "x": np.ones((3, 4), complex)}, "ONNX input 'x': the value of a tensor of numbers can be fixed"),
    ],
)
def test_values_that_an_input_cannot_have(fixed: Any, law: str) -> None:
    with pytest.raises(GraphError, match=law):
        from_onnx(model_of(CASES["branches inside of branches"].text), fixed=fixed)


def test_numbers_for_floats_bools_and_one_element() -> None:
    text = """g (bool[1] c, float[1,1] s, float[N] x) => (float[N] z) {
        y = If (c) <then_branch = t () => (float[1,1] a) { a = Neg(s) },
                    else_branch = e () => (float[1,1] b) { b = Exp(s) }>
        f = Flatten<axis = 0>(y) q = Squeeze(f) z = Mul(x, q) }"""
    given = np.array([1, 2], "float32")
    graph, _ = from_onnx(model_of(text), fixed={"c": 1, "s": 0.1, "x": [1, 2]})
    np.testing.assert_allclose(run(graph, []), given * -0.1, rtol=1e-6)
    graph, _ = from_onnx(model_of(text), shape={"x": (2,)}, fixed={"c": False, "s": 3})
    np.testing.assert_allclose(run(graph, [given]), given * np.exp(3), rtol=1e-6)
    with pytest.raises(GraphError, match=r"the fixed value must be one of bool, got value=.2"):
        from_onnx(model_of(text), shape={"x": (2,)}, fixed={"c": 2})
    with pytest.raises(GraphError, match=r"the fixed value must be one of float32, got value=..1e"):
        from_onnx(model_of(text), shape={"x": (2,)}, fixed={"s": 1e300})


def test_values_as_text() -> None:
    assert fixed_from_text(["sr=16000", "f=1,-0.5", "on=true", "a=b=inf"]) == {
        "sr": 16000, "f": [1, -0.5], "on": True, "a=b": float("inf"),
    }  # fmt: skip
    for bad in (["sr"], ["=1"], ["a=1", "a=2"], ["a=one"], ["a="]):
        with pytest.raises(GraphError, match="--fix: an input and its value are needed, once each"):
            fixed_from_text(bad)


REFUSED = {
    "other shapes": (
        """g (bool c, float[3,4] x) => (float[N,M] z) {
            z = If (c) <then_branch = t () => (float[3,4] a) { a = Neg(x) },
                else_branch = e () => (float[4,3] b) { b = Transpose(x) }> }""",
        "If 'z': its condition is known only when the model runs, then both branches must give tensors of equal "
        "dtypes and shapes; give an input that it follows from a fixed value, as in --fix c=VALUE",
    ),
    "a branch that cannot be": (
        """g (bool c, float[3,4] x) => (float[3,4] z) {
            z = If (c) <then_branch = t () => (float[3,4] a) { a = Neg(x) },
                else_branch = e () => (float[3,4] b) { s = Constant<value_ints = [5]>() b = Reshape(x, s) }> }""",
        "one cannot be .*Reshape.*as in --fix c=VALUE",
    ),
    "results of unknown length": (
        """g (bool c, float[3] x) => (float[3] y, float[N,3] r) {
            m = Constant<value_int = 5>()
            y, r = Loop (m, c, x) <body = b (int64 i, bool go, float[3] s) => (bool go2, float[3] t, float[3] u) {
                go2 = Identity(go) t = Neg(s) u = Identity(s) }> }""",
        "Loop 'y': how many trips there are is known only when the model runs, and so is the length of what they stack",
    ),
    "states that grow": (
        """g (bool c, float[1] x) => (float[N] y) {
            m = Constant<value_int = 5>()
            y = Loop (m, c, x) <body = b (int64 i, bool go, float[1] s) => (bool go2, float[2] t) {
                go2 = Identity(go) t = Concat<axis = 0>(s, s) }> }""",
        "the states of a loop that may end early must keep their types",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_known(name: str) -> None:
    text, law = REFUSED[name]
    with pytest.raises(GraphError, match=law) as found:
        from_onnx(model_of(text))
    assert "\n" not in str(found.value)


def test_states_that_grow_in_trips_that_are_known() -> None:
    """They are no loop of the graph, and are written out."""
    text = """g (float[1] x) => (float[8] y) {
        m = Constant<value_int = 3>()
        y = Loop (m, , x) <body = b (int64 i, bool go, float[N] s) => (bool go2, float[M] t) {
            go2 = Identity(go) n = Neg(s) t = Concat<axis = 0>(s, n) }> }"""
    graph, _ = from_onnx(model_of(text))
    np.testing.assert_array_equal(run(graph, [np.ones(1, "float32")]), [1, -1, -1, 1, -1, 1, 1, -1])
