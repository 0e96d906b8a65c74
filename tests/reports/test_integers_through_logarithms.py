"""Means, norms and logarithms of sums of integers: ONNX allows them, and what they give is cut to the integer below 0.

The oracle is Python: integers of any size for means, `math` for the rest.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.nonempty import nonempty
from tests.reports.everywhere import node_model, of_onnx

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")

Row = Sequence[int]
MEANINGS: dict[str, Callable[[Row], float]] = {
    "ReduceMean": lambda row: abs(sum(row)) // len(row) * (1 if sum(row) > 0 else -1),
    "ReduceL2": lambda row: math.isqrt(sum(v * v for v in row)),
    "ReduceLogSum": lambda row: math.log(sum(row)),
    "ReduceLogSumExp": lambda row: max(row) + math.log(sum(math.exp(v - max(row)) for v in row)),
}
ROWS = [[7, 8, -100], [1, -2, -2], [5, 6, 7], [-9, -9, -9], [2**29, 2**29, 2**29], [46341, 46341, 0]]


@pytest.mark.parametrize("op", MEANINGS)
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint32"])
def test_integers(op: str, dtype: str) -> None:
    signed = dtype != "uint32" and op != "ReduceLogSum"
    rows = ROWS if signed else [[abs(v) for v in row] for row in ROWS]
    rows = [*rows, [2**32 - 1, 2**32 - 3, 2**32 - 2]] if (op, dtype) == ("ReduceMean", "uint32") else rows
    want = np.array([[int(MEANINGS[op](row))] for row in rows], dtype)
    x = np.array(rows, dtype)
    for who, (got,) in nonempty(of_onnx(node_model(op, [x], opset=13, axes=[1]), [x])):
        assert got.dtype == want.dtype, who
        np.testing.assert_array_equal(got, want, who)


@pytest.mark.parametrize("op", MEANINGS)
def test_over_no_axis(op: str) -> None:
    x = np.array([1, 2, 90], "int64")
    want = [int(MEANINGS[op]([int(v)])) for v in x]
    for who, (got,) in nonempty(of_onnx(node_model(op, [x], noop_with_empty_axes=1), [x])):
        np.testing.assert_array_equal(got, want, who)
