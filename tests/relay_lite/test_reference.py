"""The reference executor: whole graphs in NumPy, in any float dtype and of any depth, in little memory."""

from __future__ import annotations

import sys
import weakref

import numpy as np
import pytest

import relay_lite as relay
from relay_lite import reference
from relay_lite.ir.op_registry import Op, OpPattern


def f(name: str, *shape: int) -> relay.Var:
    return relay.var(name, shape)


def small_network() -> tuple[relay.Function, dict[str, np.ndarray]]:
    """A residual block with a batch normalisation, and a linear layer."""
    rng = np.random.default_rng(0)
    x, w, gamma, dense = f("x", 2, 3, 6, 5), f("w", 3, 3, 3, 3), f("gamma", 3), f("dense", 4, 3)
    norm = relay.nn.batch_norm(relay.nn.conv2d(x, w, padding=1), gamma, gamma, gamma, relay.exp(gamma))[0]
    y = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(norm + x)))
    function = relay.Function([x, w, gamma, dense], relay.nn.softmax(relay.nn.dense(y, dense)))
    return function, {v.name: rng.normal(size=v.shape).astype("float32") for v in function.params}


def by_hand(a: dict[str, np.ndarray]) -> np.ndarray:
    a = {k: v.astype("float64") for k, v in a.items()}
    padded = np.pad(a["x"], [(0, 0), (0, 0), (1, 1), (1, 1)])
    conv = sum(
        np.einsum("nchw,oc->nohw", padded[:, :, i : i + 6, j : j + 5], a["w"][:, :, i, j])
        for i in range(3)
        for j in range(3)
    )
    g = a["gamma"][:, None, None]
    norm = (conv - g) / np.sqrt(np.exp(g) + 1e-5) * g + g
    y = np.maximum(norm + a["x"], 0).mean((2, 3)) @ a["dense"].T
    e = np.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_a_network_in_float32_and_float64() -> None:
    function, arrays = small_network()
    want = by_hand(arrays)
    got = reference.run(function, arrays)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-5)
    exact = reference.run(relay.IRModule.from_expr(function), arrays, dtype="float64")
    assert exact.dtype == np.float64
    np.testing.assert_allclose(exact, want, rtol=1e-13)


def test_inputs_by_name_by_place_and_with_parameters() -> None:
    function, arrays = small_network()
    want = reference.run(function, arrays)
    params = {k: v for k, v in arrays.items() if k != "x"}
    for got in (
        reference.run(function, list(arrays.values())),
        reference.run(function, {"x": arrays["x"]}, params),
        reference.run(function, [arrays["x"]], params),
        reference.run(relay.bind_params(function, params), [arrays["x"]]),
    ):
        np.testing.assert_array_equal(got, want)


def test_tuples_and_fused_functions() -> None:
    a, b = f("a", 2), f("b", 2)
    inner = relay.Function([a, b], relay.Tuple((a + b, relay.exp(a))), {"primitive": True})
    x = f("x", 2)
    fused = relay.FunctionCall(inner, (x, relay.const(np.array([1, 2], "float32"))))
    out = relay.Function([x], relay.Tuple((fused[1], x, fused[0], fused[0])))
    got = reference.run(out, [np.array([3, 4], "float32")])
    assert isinstance(got, tuple) and len(got) == 4
    np.testing.assert_allclose(got[0], np.exp([3, 4]), rtol=1e-6)
    np.testing.assert_array_equal(np.stack(got[1:]), [[3, 4], [4, 6], [4, 6]])


def test_float64_reaches_casts_and_made_tensors() -> None:
    x = relay.var("x", (3,), "int32")
    out = relay.Function([x], relay.cast(x, "float32") / relay.full(3.0, (3,), "float32") + relay.zeros((3,)))
    got = reference.run(out, [np.array([1, 2, 4], "int32")], dtype="float64")
    np.testing.assert_array_equal(got, np.array([1, 2, 4]) / 3)


def test_deep_graphs() -> None:
    depth = 3 * sys.getrecursionlimit()
    x = f("x", 2)
    y: relay.Expr = x
    for _ in range(depth):
        y = y + relay.const(1.0)
    np.testing.assert_array_equal(reference.run(relay.Function([x], y), [np.zeros(2, "float32")]), [depth, depth])


def test_values_are_freed_after_their_last_reader() -> None:
    alive: list[weakref.ref[np.ndarray]] = []
    most = 0

    def count(args: object, attrs: object) -> np.ndarray:
        nonlocal most
        most = max(most, sum(r() is not None for r in alive))
        made = np.zeros(4, "float32")
        alive.append(weakref.ref(made))
        return made

    op = Op("count", OpPattern.ELEMWISE, lambda types, attrs: types[0], count, None)
    x = f("x", 4)
    first: relay.Expr = relay.Call(op, (x,))
    y = first
    for _ in range(10):
        y = relay.Call(op, (y,))
    reference.run(relay.Function([x], y + first), [np.zeros(4, "float32")])
    assert most == 2, "the first value, which is read at the end, and the last one"


def test_refusals() -> None:
    function, arrays = small_network()
    missing = {k: v for k, v in arrays.items() if k != "w"}
    wrong = {**arrays, "x": arrays["x"][:1]}
    twice = relay.Function([f("x", 2), f("x", 2)], f("x", 2))
    lost = relay.Function([f("x", 2)], f("y", 2))
    liar = Op("liar", OpPattern.ELEMWISE, lambda types, attrs: types[0], lambda args, attrs: args[0][:1], None)
    x = f("x", 2)
    for graph, inputs, sentence in (
        (function, missing, "an input is missing, got name='w'"),
        (function, {**arrays, "z": arrays["x"]}, "the graph has no such input"),
        (function, wrong, r"input x: Tensor\[\(2, 3, 6, 5\), float32\] is needed"),
        (function, {**arrays, "x": arrays["x"].astype("float64")}, "input x: .* is needed"),
        (function, [arrays["x"]], "one array for each of x, w, gamma, dense"),
        (twice, {"x": np.zeros(2, "float32")}, "the names of the parameters must differ"),
        (lost, {"x": np.zeros(2, "float32")}, "the variable y is not a parameter"),
        (relay.Function([x], relay.Call(liar, (x,))), {"x": np.zeros(2, "float32")}, "liar: the type rule says"),
    ):
        with pytest.raises(relay.GraphError, match=sentence):
            reference.run(graph, inputs)
