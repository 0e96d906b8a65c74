"""Inputs that are numbers beside the data: known only when the model runs, of bools, or of another shape.

The oracle is NumPy.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

import numpy as np
import pytest
from onnx import numpy_helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_onnx

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")

X = np.arange(24, dtype="float32").reshape(2, 3, 4)
PADS = np.array([0, 0, 1, 0, 0, -2])


def check(want: Array, op: str, arrays: Sequence[Array], known: Sequence[int], **attrs: object) -> None:
    """One node, whose inputs in `known` are constants, by the graph, compiled, and as a constant."""
    model = node_model(op, arrays, opset=attrs.pop("opset", 19), **attrs)
    for k in sorted(known, reverse=True):
        del model.graph.input[k]
        model.graph.initializer.append(numpy_helper.from_array(arrays[k], f"x{k}"))
    for who, (got,) in nonempty(of_onnx(model, [a for k, a in enumerate(arrays) if k not in known])):
        assert got.dtype == want.dtype, who
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=who)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_the_value_of_pads(shape: tuple[int, ...]) -> None:
    want = np.pad(X, [(0, 0), (0, 0), (1, 0)], constant_values=7)[..., :-2]
    check(want, "Pad", [X, PADS, np.full(shape, 7, "float32")], [1])
    large = 2**60 + 1
    check(np.array([large, 5]), "Pad", [np.array([5]), np.array([1, 0]), np.full(shape, large)], [1])


def test_other_modes_read_no_value() -> None:
    want = np.pad(X, [(0, 0), (0, 0), (1, 0)], mode="edge")
    check(want, "Pad", [X, np.array([0, 0, 1, 0, 0, 0]), np.float32(7)], [1], mode="edge")


@pytest.mark.parametrize("value", [False, True])
def test_pads_of_bools(value: bool) -> None:
    want = np.pad(X > 9, [(0, 0), (0, 0), (1, 0)], constant_values=value)[..., :-2]
    for known in ([1], [1, 2]):
        check(want, "Pad", [X > 9, PADS, np.bool_(value)], known)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_the_two_values_of_one_hot(dtype: str) -> None:
    at, values = np.array([[0, -1, 3], [7, -5, -4]]), np.array([2, 5], dtype)
    want = values[((at[..., None] == np.arange(4)) | (at[..., None] + 4 == np.arange(4))).astype(int)]
    for known in ([1], [1, 2]):
        check(want, "OneHot", [at, np.int64(4), values], known)


@pytest.mark.parametrize("shapes", [((1, 4), (4,)), ((3, 1), (1,)), ((), (3, 4)), ((3, 4), ())])
def test_scales_of_norms_broadcast(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    rng = np.random.default_rng(0)
    x, scale, shift = (rng.normal(size=s).astype("float32") for s in ((2, 3, 4), *shapes))
    rows = x.astype("float64")
    normal = (rows - rows.mean((1, 2), keepdims=True)) / np.sqrt(rows.var((1, 2), keepdims=True) + 1e-5)
    check((normal * scale + shift).astype("float32"), "LayerNormalization", [x, scale, shift], [], axis=1)


@pytest.mark.parametrize("shape", [(2, 3, 4), (4, 1), (2,)])
def test_scales_that_do_not_broadcast_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(GraphError, match=r"scale and B must broadcast to \(3, 4\)"):
        from_onnx(node_model("LayerNormalization", [X, np.ones(shape, "float32")], axis=1))
