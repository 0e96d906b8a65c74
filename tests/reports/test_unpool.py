"""MaxUnpool with the shape that was pooled: every maximum comes back to its place, also where windows left a rest."""

from __future__ import annotations

import itertools
import shutil

import numpy as np
import pytest
from onnx import numpy_helper

from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_onnx

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")

CASES = [
    ((1, 1, 2, 3), 2, 2, 0), ((2, 3, 5, 7), 2, 2, 0), ((1, 2, 7, 5), 3, 2, 0), ((1, 2, 6, 6), 2, 2, 1),
    ((1, 1, 7, 7), 3, 3, 1), ((2, 1, 6), 4, 3, 0),
]  # fmt: skip


def pooled(x: Array, k: int, s: int, pad: int) -> tuple[Array, Array]:
    """The maxima of windows and where they are in the whole tensor, window by window."""
    counts = [(d + 2 * pad - k) // s + 1 for d in x.shape[2:]]
    best, at = np.empty((*x.shape[:2], *counts), x.dtype), np.empty((*x.shape[:2], *counts), "int64")
    for place in np.ndindex(best.shape):
        ranges = [
            range(max(p * s - pad, 0), min(p * s - pad + k, d)) for p, d in zip(place[2:], x.shape[2:], strict=True)
        ]
        found = max(itertools.product(*ranges), key=lambda c: x[place[:2] + c])
        best[place], at[place] = x[place[:2] + found], np.ravel_multi_index(place[:2] + found, x.shape)
    return best, at


@pytest.mark.parametrize("case", range(len(CASES)))
def test_maxima_come_back(case: int) -> None:
    shape, k, s, pad = CASES[case]
    x = np.random.default_rng(case).permutation(int(np.prod(shape))).reshape(shape).astype("float32") + 1
    best, at = pooled(x, k, s, pad)
    want = np.zeros(x.size, "float32")
    want[at.ravel()] = best.ravel()
    n = len(shape) - 2
    given = [best, at, np.array(shape, "int64")]
    model = node_model("MaxUnpool", given, opset=11, kernel_shape=[k] * n, strides=[s] * n, pads=[pad] * 2 * n)
    model.graph.input.pop()
    model.graph.initializer.append(numpy_helper.from_array(given[2], "x2"))
    for who, (got,) in nonempty(of_onnx(model, given[:2])):
        np.testing.assert_array_equal(got, want.reshape(shape), who)
