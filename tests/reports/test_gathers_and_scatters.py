"""GatherElements of fewer indices than the data has along other axes, and scatters that would join bools.

The oracle is ONNX's formula, element by element.
"""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import numpy_helper

from ansor.core.errors import GraphError
from relay_lite.frontend import from_onnx

from .everywhere import node_model, of_onnx, same_bits

pytestmark = [pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler"),
              pytest.mark.one_in(2)]  # fmt: skip


CASES = [((4, 6), (2, 3), 1), ((4, 6), (3, 7), -1), ((3, 4, 5), (1, 9, 2), 1), ((5, 3), (8, 3), 0)]


@pytest.mark.parametrize(("shape", "where", "axis"), CASES)
def test_indices_that_end_before_the_data(shape: tuple[int, ...], where: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(len(shape))
    x, n = rng.standard_normal(shape).astype("float32"), shape[axis]
    at = rng.integers(-n, n, where)
    want = np.empty(where, "float32")
    for place in np.ndindex(where):
        source = list(place)
        source[axis] = at[place]
        want[place] = x[tuple(source)]
    for who, (got,) in of_onnx(node_model("GatherElements", [x, at], axis=axis), [x, at]):
        same_bits(got, want, who)


@pytest.mark.parametrize("how", ["max", "min", "add", "mul"])
@pytest.mark.parametrize("op", ["ScatterElements", "ScatterND"])
def test_bools_are_not_joined(op: str, how: str) -> None:
    x, rows = np.zeros((5, 3), bool), np.zeros((6, 3 if op == "ScatterElements" else 1), "int64")
    with pytest.raises(GraphError, match="a tensor of numbers is needed, got dtype='bool'"):
        from_onnx(node_model(op, [x, rows, np.ones((6, 3), bool)], reduction=how))


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_one_hot_of_indices_outside_is_cold(dtype: str) -> None:
    """As ONNX says; known and not known when the model is read."""
    at = np.array([0, 4, 5, -1, -5, -6, 2**31 - 1, -(2**31)], dtype)
    want = np.zeros((8, 5), "float32")
    for k, i in enumerate(at.tolist()):
        if -5 <= i < 5:
            want[k, i] = 3.0
    model = node_model("OneHot", [at])
    model.graph.node[0].input.extend(["depth", "values"])
    model.graph.initializer.append(numpy_helper.from_array(np.array(5, "int64"), "depth"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0, 3], "float32"), "values"))
    for who, (got,) in of_onnx(model, [at]):
        same_bits(got, want, who)
