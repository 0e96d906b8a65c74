"""Tensors without elements as inputs of nodes, and nodes that leave or make none: as onnxruntime computes them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from relay_lite.ir.reference import run as run_graph
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, compiled, node_model

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")

none = np.zeros
ROW = np.arange(6, dtype="float32").reshape(2, 3)


def results(op: str, arrays: Sequence[Array], known: Sequence[int] = (), **attrs: Any) -> list[tuple[Array, Array]]:
    """Every output of one node by the reference and compiled; the inputs in `known` are constants."""
    model = node_model(op, arrays, **attrs)
    model.graph.initializer.extend(numpy_helper.from_array(arrays[k], f"x{k}") for k in known)
    data = {f"x{k}": a for k, a in enumerate(arrays) if k not in known}
    module = from_onnx(model, shape={n: a.shape for n, a in data.items()})[0]
    found = run_graph(module["main"], list(data.values()))
    found = found if isinstance(found, tuple | list) else [found]
    return [(np.asarray(a), b) for a, b in zip(found, compiled(module, list(data.values())), strict=True)]


def check(want: Sequence[Array], op: str, arrays: Sequence[Array], **more: Any) -> None:
    found = results(op, arrays, outputs=len(want), **more)
    for got, right in nonempty([(got, right) for pair, right in zip(found, want, strict=True) for got in pair]):
        assert got.dtype == right.dtype, op
        np.testing.assert_array_equal(got, right, op)


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("shape", [(3, 0, 2), (0, 3), (2, 0)])
def test_probabilities(op: str, shape: tuple[int, ...]) -> None:
    for opset in (11, 13):
        check([none(shape, "float32")], op, [none(shape, "float32")], opset=opset, axis=1)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_pads_of_the_axis_that_has_elements(mode: str) -> None:
    pads = np.array([0, 1, 0, 1])
    check([none((0, 5), "float32")], "Pad", [none((0, 3), "float32"), pads], known=[1], opset=19, mode=mode)
    if mode != "constant":
        with pytest.raises(GraphError, match=r"an edge needs an element|a mirror needs more|something to repeat"):
            results("Pad", [none((2, 0), "float32"), pads], known=[1], opset=19, mode=mode)


def test_pads_that_take_all_away() -> None:
    for pads, shape in (([0, -1, 0, -2], (2, 0)), ([-2, 0, 0, 1], (0, 4))):
        check([none(shape, "float32")], "Pad", [ROW, np.array(pads)], known=[1])
    check([np.full((2, 2), 7, "float32")], "Pad", [ROW, np.array([0, -3, 0, 2]), np.float32(7)], known=[1, 2])
    with pytest.raises(GraphError, match="no more can be taken away than there is"):
        results("Pad", [ROW, np.array([0, -2, 0, -2])], known=[1])


def test_repeats() -> None:
    check([none((0, 6), "float32")], "Tile", [ROW, np.array([0, 2])], known=[1])
    with pytest.raises(GraphError, match="no count must be negative"):
        results("Tile", [ROW, np.array([-1, 2])], known=[1])


@pytest.mark.parametrize("k", [0, 2])
def test_the_smallest_of_none(k: int) -> None:
    x = none((0, 3), "float32") if k else ROW
    want = [none((len(x), k), dtype) for dtype in ("float32", "int64")]
    check(want, "TopK", [x, np.array([k])], known=[1], opset=11, largest=0)


@pytest.mark.parametrize("reduction", ["add", "max"])
def test_scatters_of_nothing(reduction: str) -> None:
    where = none((2, 0), "int64")
    check([ROW], "ScatterElements", [ROW, where, none((2, 0), "float32")], axis=1, reduction=reduction)
    check([ROW], "ScatterND", [ROW, where.T, none(0, "float32")], reduction=reduction)


@pytest.mark.parametrize("shape", [(0, 2, 3), (1, 2, 0)])
def test_normalisations(shape: tuple[int, ...]) -> None:
    x, ones = none(shape, "float32"), np.ones(2, "float32")
    check([x], "BatchNormalization", [x, ones, ones, ones, ones], opset=15)
    check([x], "LpNormalization", [x], axis=-1)
    check([x], "MeanVarianceNormalization", [x], axes=[0, 2])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resized(mode: str) -> None:
    x, scales = none((0, 2, 3, 3), "float32"), np.array([1, 1, 2, 2], "float32")
    check([none((0, 2, 6, 6), "float32")], "Resize", [x, none(0, "float32"), scales], known=[1, 2], mode=mode)


def test_a_batch_of_none_times_one_of_one() -> None:
    for a, b in (((1, 2, 3), (0, 3, 4)), ((0, 2, 3), (1, 3, 4))):
        check([none((0, 2, 4), "float32")], "MatMul", [none(a, "float32"), none(b, "float32")])
    check([none((2, 4), "float32")], "MatMul", [none((2, 0), "float32"), none((0, 4), "float32")])


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize(("steps", "batch"), [(0, 3), (3, 0)])
def test_recurrent_layers(op: str, gates: int, steps: int, batch: int) -> None:
    rng = np.random.default_rng(0)
    arrays = [none((steps, batch, 2), "float32"), *(np.ones((1, 2 * gates, 2), "float32") for _ in range(2))]
    arrays += [none((1, 4 * gates), "float32"), none(batch, "int32"), rng.normal(size=(1, batch, 2)).astype("float32")]
    want = [none((steps, 1, batch, 2), "float32"), arrays[5], none((1, batch, 2), "float32")]
    activations: dict[str, Any] = {} if op == "LSTM" else {"linear_before_reset": 1} if op == "GRU" else {"clip": 0.5}
    check(want[: 3 if op == "LSTM" else 2], op, arrays, known=[1, 2], opset=14, hidden_size=2, **activations)


@pytest.mark.parametrize("value", [3.0, 0.0])
def test_positions_of_a_scalar(value: float) -> None:
    """A row for each axis, so none, and a column for each that is not zero: onnxruntime gives a row."""
    want = none((0, 1 if value else 0), "int64")
    model = node_model("NonZero", [np.array(value, "float32")], opset=13)
    model.graph.initializer.append(numpy_helper.from_array(np.array(value, "float32"), "x0"))
    got = np.asarray(run_graph(from_onnx(model)[0]["main"], []))
    assert (got.dtype, got.shape) == (want.dtype, want.shape)


def test_positions_of_none_that_is_not_zero() -> None:
    cases = [(none((2, 3)), none((2, 0))), (none((0, 3)), none((2, 0))), (np.array([0, 5]), np.array([[1]]))]
    for x, want in nonempty(cases):
        model = node_model("NonZero", [x], opset=13)
        model.graph.initializer.append(numpy_helper.from_array(x, "x0"))
        np.testing.assert_array_equal(run_graph(from_onnx(model)[0]["main"], []), want)
