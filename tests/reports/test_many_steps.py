"""Recurrent networks over hundreds of steps are loops: right, and of as many kernels as a few steps have."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper

import relay_lite as relay
from relay_lite.frontend import from_onnx

Array = np.ndarray[Any, np.dtype[Any]]
FEATURES, UNITS = 5, 4


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def gru(x: Array, w: Array, r: Array, b: Array) -> Array:
    """Gates update, reset, hidden; the reset is applied behind the product."""
    h, given = np.zeros(UNITS), []
    wb, rb = b[: 3 * UNITS], b[3 * UNITS :]
    for row in x:
        inside, back = row @ w.T + wb, h @ r.T + rb
        z, s = (sigmoid(inside[k * UNITS : (k + 1) * UNITS] + back[k * UNITS : (k + 1) * UNITS]) for k in range(2))
        new = np.tanh(inside[2 * UNITS :] + s * back[2 * UNITS :])
        h = (1 - z) * new + z * h
        given.append(h)
    return np.array(given)


def lstm(x: Array, w: Array, r: Array, b: Array) -> Array:
    """Gates input, output, forget, cell."""
    h, c, given = np.zeros(UNITS), np.zeros(UNITS), []
    for row in x:
        gates = row @ w.T + h @ r.T + b[: 4 * UNITS] + b[4 * UNITS :]
        i, o, f = (sigmoid(gates[k * UNITS : (k + 1) * UNITS]) for k in range(3))
        c = f * c + i * np.tanh(gates[3 * UNITS :])
        h = o * np.tanh(c)
        given.append(h)
    return np.array(given)


KINDS: dict[str, tuple[Callable[[Array, Array, Array, Array], Array], int]] = {"GRU": (gru, 3), "LSTM": (lstm, 4)}


def network(op: str, steps: int) -> tuple[Any, Callable[[Array], Array]]:
    """Two layers, one behind the other, and both of them by hand in float64."""
    by_hand, gates = KINDS[op]
    rng, nodes, weights, layers = np.random.default_rng(steps), [], [], []
    name = "x"
    for k in range(2):
        size = UNITS if k else FEATURES
        shapes = ((1, gates * UNITS, size), (1, gates * UNITS, UNITS), (1, 2 * gates * UNITS))
        arrays = [rng.standard_normal(s).astype("float32") for s in shapes]
        names = [f"{n}{k}" for n in "wrb"]
        weights += [numpy_helper.from_array(a, n) for a, n in zip(arrays, names, strict=True)]
        more = {"linear_before_reset": 1} if op == "GRU" else {}
        nodes += [helper.make_node(op, [name, *names], [f"y{k}"], hidden_size=UNITS, **more),
                  helper.make_node("Squeeze", [f"y{k}", "one"], [f"z{k}"])]  # fmt: skip
        layers.append([a[0].astype("float64") for a in arrays])
        name = f"z{k}"
    weights.append(numpy_helper.from_array(np.array([1]), "one"))
    ends = [
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s)] for n, s in (("x", [steps, 1, FEATURES]), (name, None))
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *ends, weights), opset_imports=[helper.make_opsetid("", 17)]
    )

    def want(x: Array) -> Array:
        rows = x[:, 0].astype("float64")
        for one in layers:
            rows = by_hand(rows, *one)
        return rows[:, None]

    return model, want


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("op", KINDS)
def test_layers_over_many_steps(op: str) -> None:
    kernels = {}
    for steps in (3, 300):
        model, want = network(op, steps)
        library = relay.build(from_onnx(model)[0], "c")
        x = np.random.default_rng(steps).standard_normal((steps, 1, FEATURES)).astype("float32")
        module = relay.graph_executor.GraphModule(library["default"]())
        module.run(x=x)
        np.testing.assert_allclose(module.get_output(0).numpy(), want(x), rtol=1e-4, atol=1e-5)
        kernels[steps] = len(library.kernels)
        assert kernels[steps] == len({kernel.source.replace(name, "") for name, kernel in library.kernels.items()})
    assert kernels[3] == kernels[300] <= 10


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_three_hundred_tensors_put_together() -> None:
    names = [f"x{k}" for k in range(300)]
    nodes = [helper.make_node("Neg", [n], [f"n{n}"]) for n in names]
    nodes.append(helper.make_node("Concat", [f"n{n}" for n in names], ["y"], axis=1))
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 1 + k % 3]) for k, n in enumerate(names)]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "g", inputs, [out]), opset_imports=[helper.make_opsetid("", 17)])
    module = relay.graph_executor.GraphModule(relay.build(from_onnx(model)[0], "c")["default"]())
    rng = np.random.default_rng(0)
    given = {n: rng.standard_normal((2, 1 + k % 3)).astype("float32") for k, n in enumerate(names)}
    module.run(**given)
    np.testing.assert_array_equal(module.get_output(0).numpy(), -np.concatenate(list(given.values()), 1))
