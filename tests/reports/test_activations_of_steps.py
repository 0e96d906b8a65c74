"""Every activation of recurrent layers, with numbers of its own: they are taken in turn by those that have one.

The oracle is the layers' formulas, step by step in float64.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_onnx

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")

STEPS, BATCH, SIZE, HIDDEN = 4, 2, 3, 2
Function = Callable[[Array], Array]


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


FUNCTIONS: dict[str, tuple[list[float], list[float], Function]] = {
    "Relu": ([], [], lambda x: np.maximum(x, 0)),
    "Tanh": ([], [], np.tanh),
    "Sigmoid": ([], [], sigmoid),
    "Softsign": ([], [], lambda x: x / (1 + abs(x))),
    "Softplus": ([], [], lambda x: np.logaddexp(x, 0)),
    "LeakyRelu": ([0.3], [], lambda x: np.where(x > 0, x, 0.3 * x)),
    "Elu": ([0.7], [], lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0)))),
    "ThresholdedRelu": ([0.4], [], lambda x: np.where(x > 0.4, x, 0)),
    "HardSigmoid": ([0.25], [0.4], lambda x: np.clip(0.25 * x + 0.4, 0, 1)),
    "ScaledTanh": ([0.9], [0.6], lambda x: 0.9 * np.tanh(0.6 * x)),
    "Affine": ([0.5], [-0.2], lambda x: 0.5 * x - 0.2),
}
BY_DEFAULT: dict[str, Function] = {
    "LeakyRelu": lambda x: np.where(x > 0, x, 0.01 * x),
    "Elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "Affine": lambda x: x,
}


def layer(op: str, gates: int, directions: int, names: Sequence[str], **attrs: Any) -> tuple[onnx.ModelProto, Array]:
    """A model of one node whose weights are constants, and its data."""
    rng = np.random.default_rng(7)
    shapes = ((STEPS, BATCH, SIZE), (directions, gates * HIDDEN, SIZE), (directions, gates * HIDDEN, HIDDEN))
    arrays = [rng.normal(size=s).astype("float32") for s in shapes]
    direction = "bidirectional" if directions == 2 else "forward"
    model = node_model(op, arrays, opset=14, activations=names, direction=direction, hidden_size=HIDDEN, **attrs)
    for k in (2, 1):
        del model.graph.input[k]
        model.graph.initializer.append(numpy_helper.from_array(arrays[k], f"x{k}"))
    return model, arrays[0]


def weights(model: onnx.ModelProto, d: int) -> tuple[Array, Array]:
    known = {t.name: numpy_helper.to_array(t).astype("float64") for t in model.graph.initializer}
    return known["x1"][d], known["x2"][d]


def rnn(model: onnx.ModelProto, x: Array, f: Function) -> Array:
    w, r = weights(model, 0)
    h, every = np.zeros((BATCH, HIDDEN)), []
    for step in x:
        h = f(step @ w.T + h @ r.T)
        every.append(h)
    return np.stack(every)[:, None]


def lstm(model: onnx.ModelProto, x: Array, d: int, f: Function, g: Function, k: Function) -> Array:
    w, r = weights(model, d)
    h, c, every = np.zeros((BATCH, HIDDEN)), np.zeros((BATCH, HIDDEN)), []
    for step in x[::-1] if d else x:
        i, o, forget, cell = np.split(step @ w.T + h @ r.T, 4, axis=1)
        c = f(forget) * c + f(i) * g(cell)
        h = f(o) * k(c)
        every.append(h)
    return np.stack(every[::-1] if d else every)


def check(model: onnx.ModelProto, x: Array, want: Array) -> None:
    for who, (got, *_) in nonempty(of_onnx(model, [x])):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6, err_msg=who)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_of_one_gate(name: str) -> None:
    alpha, beta, function = FUNCTIONS[name]
    given = {"activation_alpha": alpha} if alpha else {}
    model, x = layer("RNN", 1, 1, [name], **given, **({"activation_beta": beta} if beta else {}))
    check(model, x, rnn(model, x, function))


@pytest.mark.parametrize("name", BY_DEFAULT)
def test_by_default(name: str) -> None:
    model, x = layer("RNN", 1, 1, [name])
    check(model, x, rnn(model, x, BY_DEFAULT[name]))


def test_numbers_are_taken_in_turn() -> None:
    names = ["HardSigmoid", "Tanh", "Elu", "Sigmoid", "ScaledTanh", "LeakyRelu"]
    alpha, beta = ([v for n in names for v in FUNCTIONS[n][k]] for k in (0, 1))
    model, x = layer("LSTM", 4, 2, names, activation_alpha=alpha, activation_beta=beta)
    functions = [FUNCTIONS[n][2] for n in names]
    want = [lstm(model, x, d, *functions[3 * d : 3 * d + 3]) for d in (0, 1)]
    check(model, x, np.stack(want, axis=1))


def test_what_is_refused() -> None:
    for names, attrs, said in nonempty([
        (["ScaledTanh"], {}, "needs activation_alpha and activation_beta"),
        (["Tanh"], {"activation_alpha": [0.5]}, "0 activations take an alpha"),
        (["Mish"], {}, "activations are 1 a direction of relu"),
    ]):  # fmt: skip
        with pytest.raises(GraphError, match=said):
            from_onnx(layer("RNN", 1, 1, names, **attrs)[0])
