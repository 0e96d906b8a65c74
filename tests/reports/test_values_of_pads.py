"""What Pad puts around its data: bools, numbers of every dtype, and values that are known when the model runs."""

from __future__ import annotations

import shutil
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
WIDTHS = [(0, 0), (2, 0), (1, 3)]


def padding(x: Array, value: Array, pads: list[int], given: bool, **attrs: Any) -> onnx.ModelProto:
    """Pad; its value is an input of the model if `given`, else a constant."""
    arrays = [x, np.array(pads), value]
    model = node_model("Pad", arrays, opset=21, **attrs)
    for k in (1,) if given else (2, 1):
        model.graph.initializer.append(numpy_helper.from_array(arrays[k], model.graph.input[k].name))
        del model.graph.input[k]
    return model


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [("bool", False), ("bool", True), ("int64", 2**40 + 1), ("uint8", 200), ("float32", -0.1), ("float64", 0.1)],
)
def test_values(dtype: str, value: float, shape: tuple[int, ...], given: bool) -> None:
    x = np.random.default_rng(1).integers(0, 2, (2, 3, 4)).astype(dtype)
    number = np.full(shape, value, dtype)
    model = padding(x, number, [b for b, _ in WIDTHS] + [e for _, e in WIDTHS], given)
    for who, (got,) in nonempty(of_onnx(model, [x, number] if given else [x])):
        np.testing.assert_array_equal(got, np.pad(x, WIDTHS, constant_values=number.item()), who)


@pytest.mark.parametrize("given", [False, True])
def test_some_is_put_there_and_some_taken(given: bool) -> None:
    x, number = np.arange(12.0).reshape(3, 4), np.array(7.0)
    want = np.pad(x[:2, 1:], [(1, 0), (0, 2)], constant_values=7.0)
    model = padding(x, number, [1, -1, -1, 2], given)
    for who, (got,) in nonempty(of_onnx(model, [x, number] if given else [x])):
        np.testing.assert_array_equal(got, want, who)


def test_one_number() -> None:
    with pytest.raises(GraphError, match="input 2 must hold one number"):
        from_onnx(padding(np.zeros(3), np.zeros(2), [1, 1], True))
