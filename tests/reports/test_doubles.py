"""Models in float64: every result in float64, to its last digits, by all who can run it, and checked as closely."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import relay_lite as relay
from ansor.core.target.target import Target
from relay_lite.frontend import from_onnx
from relay_lite.ir.make import call
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Constant, Expr, Function, Var
from relay_lite.ir.types import TensorType
from relay_lite.ir.visit import rewrite
from relay_lite.tuning.network import load_network
from relay_lite.tuning.tune_network import WrongResult, check, compile_best
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_graph, of_onnx

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")
CLOSE = 1e-14


def drawn(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def near(got: Array, want: Any, who: str, tol: float = CLOSE) -> None:
    assert got.dtype == np.float64, (who, got.dtype)
    scale = max(1.0, float(np.abs(want).max()))
    np.testing.assert_allclose(got, want, rtol=0, atol=tol * scale, err_msg=who)


def function_of(name: str, *shapes: tuple[int, ...], **attrs: Any) -> Function:
    variables = [Var(f"x{k}", TensorType(s, "float64")) for k, s in enumerate(shapes)]
    return Function(tuple(variables), call(name, *variables, **attrs))


OPERATORS: dict[str, tuple[str, list[tuple[int, ...]], dict[str, Any], Callable[..., Any]]] = {
    "sum": ("sum", [(3, 1000)], {"axis": (1,), "keepdims": False}, lambda x: [math.fsum(r) for r in x]),
    "product": ("nn.dense", [(3, 65), (5, 65)], {}, lambda a, b: [
        [math.fsum(p * q for p, q in zip(r, s, strict=True)) for s in b] for r in a]),
    "exp": ("exp", [(16,)], {}, lambda x: [math.exp(v) for v in x]),
    "tanh": ("tanh", [(16,)], {}, lambda x: [math.tanh(v) for v in x]),
    "erf": ("erf", [(16,)], {}, lambda x: [math.erf(v) for v in x]),
    "sigmoid": ("sigmoid", [(16,)], {}, lambda x: [1 / (1 + math.exp(-v)) for v in x]),
    "softmax": ("nn.softmax", [(2, 40)], {"axis": 1}, lambda x: [
        [math.exp(v - max(r)) / math.fsum(math.exp(u - max(r)) for u in r) for v in r] for r in x]),
    "division": ("divide", [(16,), (16,)], {}, lambda a, b: [p / q for p, q in zip(a, b, strict=True)]),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    op, shapes, attrs, oracle = OPERATORS[name]
    arrays = [drawn(k, *shape) for k, shape in enumerate(shapes)]
    want = np.array(oracle(*arrays))
    for who, (got,) in nonempty(of_graph(function_of(op, *shapes, **attrs), arrays)):
        near(got, want, f"{name}: {who}")


def encoder() -> tuple[onnx.ModelProto, Callable[[Array], Array]]:
    """A scaler, two layers with a norm and an activation between them, and what it means."""
    mean, deviation = drawn(1, 6), np.abs(drawn(2, 6)) + 0.5
    w, b, scale, shift, v = drawn(3, 6, 16), drawn(4, 16), drawn(5, 16), drawn(6, 16), drawn(7, 16, 4)
    given = {"mean": mean, "deviation": deviation, "w": w, "b": b, "scale": scale, "shift": shift, "v": v}
    nodes = [
        helper.make_node("Sub", ["x", "mean"], ["c"]),
        helper.make_node("Div", ["c", "deviation"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["e"]),
        helper.make_node("Add", ["e", "b"], ["f"]),
        helper.make_node("LayerNormalization", ["f", "scale", "shift"], ["g"], axis=-1, epsilon=2.0**-10),
        helper.make_node("LeakyRelu", ["g"], ["h"]),
        helper.make_node("MatMul", ["h", "v"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [5, 6])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [5, 4])
    weights = [numpy_helper.from_array(a, n) for n, a in given.items()]
    graph = helper.make_graph(nodes, "g", [x], [y], weights)

    def meaning(data: Array) -> Array:
        f = ((data - mean) / deviation) @ w + b
        f = f - f.mean(1, keepdims=True)
        g = f / np.sqrt((f * f).mean(1, keepdims=True) + 2.0**-10) * scale + shift
        return np.asarray(np.where(g > 0, g, float(np.float32(0.01)) * g) @ v)

    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), meaning


def test_an_encoder_of_tables() -> None:
    model, meaning = encoder()
    x = drawn(8, 5, 6)
    for who, (got,) in nonempty(of_onnx(model, [x])):
        near(got, meaning(x), who, 1e-13)


def test_defaults_of_attributes_are_those_of_onnx() -> None:
    """They are stored in float32: 0.01 is 0.009999999776482582."""
    x = np.array([-1.0, -3.0])
    for op, want in (
        ("LeakyRelu", [-0.009999999776482582, -0.029999999329447746]),
        ("HardSigmoid", [0.5 - 0.20000000298023224, 0.0]),
    ):
        for who, (got,) in nonempty(of_onnx(node_model(op, [x]), [x])):
            near(got, np.array(want), f"{op}: {who}", 1e-16)


def test_it_is_checked_to_ten_digits(tmp_path: Path) -> None:
    """A weight that is wrong by a hundred millionth after compiling is found."""
    path, log = tmp_path / "encoder.onnx", tmp_path / "log.json"
    onnx.save(encoder()[0], path)
    log.touch()
    network = load_network(str(path), layout="NCHW")
    module = compile_best(network, Target("c"), log)
    found = check(module, network, np.random.default_rng(1))
    assert found.error < 1e-13 and found.limit == 1e-10

    def spoiled(node: Expr) -> Expr:
        large = isinstance(node, Constant) and node.value.ndim == 2
        return Constant(node.value * (1 + 1e-8)) if large else node

    wrong = IRModule({name: rewrite(f, spoiled) for name, f in network.original.functions.items()})
    with pytest.raises(WrongResult, match="may differ from the reference by 1e-10"):
        check(module, replace(network, original=wrong), np.random.default_rng(1))


def test_forests_in_doubles() -> None:
    """A threshold that float32 does not have parts what is the same in float32."""
    value = 0.1
    attrs: dict[str, Any] = {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_values_as_tensor": numpy_helper.from_array(np.array([value, 0, 0])),
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
        "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "n_targets": 1,
        "target_weights_as_tensor": numpy_helper.from_array(np.array([1.0, 2.0])),
    }  # fmt: skip
    x = np.array([[value], [np.nextafter(value, 1)], [np.nextafter(value, 0)]])
    for who, (got,) in nonempty(
        of_onnx(node_model("TreeEnsembleRegressor", [x], domain=("ai.onnx.ml", 3), **attrs), [x])
    ):
        assert got.ravel().tolist() == [1, 2, 1], who


def test_one_matrix_alone() -> None:
    """A largest element of one, in a graph without any other axis."""
    for rows in (1, 2, 3):
        x = drawn(rows, rows, rows)
        for who, (got,) in nonempty(of_onnx(node_model("Det", [x]), [x])):
            near(got, np.linalg.det(x), who, 1e-12)


def test_the_graph_keeps_doubles() -> None:
    module, _ = from_onnx(encoder()[0])
    kinds = {e.dtype for e in relay.post_order(module["main"].body) if isinstance(e.type, TensorType)}
    assert kinds == {"float64"}
