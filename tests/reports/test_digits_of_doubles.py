"""ONNX operators of float64 have all its digits where their definition has a number that float32 rounds."""

from __future__ import annotations

import re
import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from relay_lite.frontend import from_onnx
from relay_lite.frontend.onnx.table import find
from relay_lite.frontend.torch import layers
from relay_lite.frontend.torch.node import OPSET
from relay_lite.ir.reference import run as run_graph
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_onnx
from tests.whole_way.bounded import exact, mismatch
from tests.whole_way.model import Model, onnx_of
from tests.whole_way.model_oracle import meaning

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")


def drawn(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape)


def right(model: onnx.ModelProto, arrays: list[Array], want: Array, tol: float = 1e-14) -> None:
    for who, (got, *_) in nonempty(of_onnx(model, arrays)):
        assert got.dtype == np.float64, who
        np.testing.assert_allclose(got, want, rtol=0, atol=tol * max(1.0, float(np.abs(want).max())), err_msg=who)


UNARY: dict[str, list[dict[str, Any]]] = {
    **{op: [{}] for op in (
        "Exp", "Log", "Sqrt", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Erf", "Sigmoid", "Asinh", "Atan",
        "Softplus", "Softsign", "Mish", "HardSwish", "Reciprocal", "Selu")},
    "Elu": [{}, {"alpha": 0.3}], "Celu": [{}, {"alpha": 0.3}], "LeakyRelu": [{}, {"alpha": 0.3}],
    "HardSigmoid": [{}, {"alpha": 0.3, "beta": 0.4}], "Gelu": [{}, {"approximate": "tanh"}],
    "Shrink": [{"bias": 0.1, "lambd": 0.3}], "ThresholdedRelu": [{"alpha": 0.3}],
}  # fmt: skip
"""Operators of one tensor, with attributes that float32 has not exactly."""
NARROW = ("Asin", "Acos", "Atanh")


def test_operators_of_one_tensor() -> None:
    """To a few units in the last place: the graph, compiled C, and the constants of folding."""
    everywhere = np.concatenate([np.linspace(0.017, 6.3, 24), -np.linspace(0.013, 6.1, 24)])
    given = {
        "all": everywhere,
        "positive": np.abs(everywhere),
        "narrow": everywhere / 7,
        "large": 1 + np.abs(everywhere),
    }
    names = list(given)
    nodes: list[Any] = [
        ("input", (), {"shape": x.shape, "dtype": "float64", "values": "small"}) for x in given.values()
    ]
    for op, attrs in [(op, a) for op, forms in UNARY.items() for a in forms] + [(op, {}) for op in (*NARROW, "Acosh")]:
        kind = {"Log": "positive", "Sqrt": "positive", "Acosh": "large"}.get(op, "narrow" if op in NARROW else "all")
        nodes.append((op, (names.index(kind),), attrs))
    model = Model(tuple(nodes), tuple(range(len(names), len(nodes))), 0)
    known = {k: exact(x, "float64") for k, x in enumerate(given.values())}
    for who, found in nonempty(of_onnx(onnx_of(model), list(given.values()))):
        for k, got in nonempty(zip(model.outputs, found, strict=True)):
            assert mismatch(meaning(nodes[k], k, known, 0), got) is None, (who, nodes[k])


def test_a_sixth() -> None:
    """ONNX's text says alpha = 1/6; its body has float32's."""
    x = np.array([-3.5, -2.0, -0.11873696, 0.0, 1.0, 2.875, 4.0])
    right(node_model("HardSwish", [x], opset=22), [x], x * np.clip(x / 6 + 0.5, 0, 1), 1e-15)


WINDOWS: dict[str, tuple[float, float, float]] = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}


def window_of(op: str, size: int, dtype: int, periodic: int) -> Array:
    node = helper.make_node(op, ["n"], ["y"], output_datatype=dtype, periodic=periodic)
    n = helper.make_tensor("n", onnx.TensorProto.INT64, [], [size])
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y", dtype, [size])], [n])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    return np.asarray(run_graph(from_onnx(model)[0]["main"], []))


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("op", WINDOWS)
def test_windows(op: str, periodic: int) -> None:
    a, b, c = WINDOWS[op]
    for size in (2, 7, 8):
        t = 2 * np.pi * np.arange(size) / (size if periodic else size - 1)
        want = a - b * np.cos(t) + c * np.cos(2 * t)
        for dtype, tol in ((onnx.TensorProto.DOUBLE, 1e-15), (onnx.TensorProto.FLOAT, 1e-7)):
            got = window_of(op, size, dtype, periodic)
            assert got.dtype == helper.tensor_dtype_to_np_dtype(dtype)
            np.testing.assert_allclose(got, want, rtol=0, atol=tol)
    assert window_of(op, 0, onnx.TensorProto.DOUBLE, periodic).shape == (0,)
    assert np.isnan(window_of(op, 1, onnx.TensorProto.DOUBLE, 0)).all()


def weights(out: int, extent: int) -> Array:
    """The matrix of a cubic resize with half pixels, exactly."""
    a = Fraction(-3, 4)
    matrix = np.zeros((out, extent))
    for k in range(out):
        at = Fraction(2 * k + 1, 2) * extent / out - Fraction(1, 2)
        for p in range(at.__floor__() - 1, at.__floor__() + 3):
            d = abs(at - p)
            w = (a + 2) * d**3 - (a + 3) * d**2 + 1 if d <= 1 else a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
            matrix[k, min(max(p, 0), extent - 1)] += w
    return matrix


@pytest.mark.parametrize("out", [3, 7])
def test_cubic_weights_along_one_axis(out: int) -> None:
    x = drawn(1, 1, 2, 5)
    given: list[Any] = [np.zeros(0), np.zeros(0), np.array([1, 2, out])]
    model = node_model("Resize", [x, *given], mode="cubic", opset=19)
    for k in (3, 2, 1):
        name = model.graph.input[k].name
        del model.graph.input[k]
        if k == 3:
            model.graph.initializer.append(helper.make_tensor(name, onnx.TensorProto.INT64, [3], given[2]))
        else:
            model.graph.node[0].input[k] = ""
    right(model, [x], x @ weights(out, 5).T)


def test_attention_without_a_scale() -> None:
    q, k, v = drawn(2, 1, 2, 3, 6), drawn(3, 1, 2, 4, 6), drawn(4, 1, 2, 4, 5)
    scores = np.exp(q @ k.transpose(0, 1, 3, 2) / np.sqrt(6))
    right(node_model("Attention", [q, k, v], opset=23), [q, k, v], scores / scores.sum(-1, keepdims=True) @ v)


def test_root_mean_square() -> None:
    x, scale = drawn(5, 3, 4, 5), drawn(6, 4, 5)
    want = x / np.sqrt((x * x).mean((1, 2), keepdims=True) + float(np.float32(0.01))) * scale
    right(node_model("RMSNormalization", [x, scale], opset=23, axis=1, epsilon=0.01), [x, scale], want)


def test_operators_that_torch_converts_by_are_read() -> None:
    """By the names in the source, as PyTorch is not always there."""
    folder = Path(layers.__file__).parent
    names = {n for file in folder.glob("*.py") for n in re.findall(r'node\.onnx\(\s*"(\w+)"', file.read_text())}
    for name in nonempty(sorted(names)):
        assert find(name, {"": OPSET}) is not None, name


def test_places_of_boxes() -> None:
    """A ramp read in the middle of the bins of a box is where they are."""
    rows = np.broadcast_to(np.arange(9.0)[:, None], (1, 1, 9, 9)).copy()
    boxes, images = np.array([[1.1, 1.3, 6.1, 5.7]]), np.zeros(1, np.int64)
    middles = 1.3 - 0.5 + (np.arange(4) + 0.5) * (5.7 - 1.3) / 4
    model = node_model("RoiAlign", [rows, boxes, images], opset=16, output_height=4, output_width=1, sampling_ratio=2)
    right(model, [rows, boxes, images], middles.reshape(1, 1, 4, 1))
    whole = np.array([[0, 1.0, 2.0, 6.0, 5.0]])
    right(node_model("MaxRoiPool", [rows, whole], pooled_shape=[2, 1]), [rows, whole], np.array([[[[3.0], [5.0]]]]))
