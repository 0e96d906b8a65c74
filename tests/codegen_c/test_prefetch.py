"""Long loops over registers ask for what they read later: one element of each line, and the results are the same."""

from __future__ import annotations

import re

import numpy as np
import pytest

import codegen_c
import te_lite as te
from te_lite import Tensor
from tests.workloads import matmul

AVX2 = codegen_c.Options(vector_bytes=32, registers=12)


def tile(terms: int, columns: int = 16) -> tuple[te.LoweredFunc, list[Tensor]]:
    """6 rows times some columns in registers, the columns read row by row."""
    a, b, c = matmul(6, columns, terms)
    s = te.create_schedule([c])
    (i, j), (k,) = s[c].op.axis, s[c].op.reduce_axis
    s[c].reorder(k, i, j)
    s[c].unroll(i)
    s[c].vectorize(j)
    return te.lower(s, [a, b, c]), [a, b, c]


def asked(func: te.LoweredFunc) -> list[str]:
    return re.findall(r"__builtin_prefetch\(&(.*)\);", codegen_c.emit(func, options=AVX2))


def test_long_streams_are_asked_for_line_by_line() -> None:
    """A line of B a turn, of both its vectors, 16 turns later; not rows of A, which move by 4 bytes a turn."""
    assert asked(tile(2000)[0]) == []
    assert asked(tile(2100)[0]) == ["B[k * 16 + 256]"]
    assert asked(tile(2100, 8)[0]) == []
    assert sorted(asked(tile(2100, 24)[0])) == ["B[k * 24 + 384]", "B[k * 24 + 400]"]


def windows(channels: int) -> te.LoweredFunc:
    """Three terms of 6 x 16 sums for each channel; the filters lie in the order in which they are read."""
    data, filters = te.placeholder((8, channels), name="data"), te.placeholder((3, channels, 16), name="filters")
    w, r = te.reduce_axis((0, 3), name="w"), te.reduce_axis((0, channels), name="r")
    out = te.compute((6, 16), lambda i, j: te.sum(data[i + w, r] * filters[w, r, j], axis=[w, r]), name="out")
    s = te.create_schedule([out])
    i, j = s[out].op.axis
    s[out].reorder(w, r, i, j)
    s[out].unroll(i)
    s[out].vectorize(j)
    return te.lower(s, [data, filters, out])


def test_a_stream_goes_on_in_the_loops_around() -> None:
    """Filters of 3 x 700 channels are as long as the 2,100 rows above, and are asked for in the same place."""
    assert asked(windows(600)) == []
    assert asked(windows(700)) == ["filters[w * 11200 + r * 16 + 256]"]


def test_short_loops_and_loops_around_others_ask_for_nothing() -> None:
    a = te.placeholder((64, 4096), name="A")
    r = te.reduce_axis((0, 4096), name="r")
    rows = te.compute((64,), lambda i: te.sum(a[i, r], axis=r), name="rows")
    assert "__builtin_prefetch" not in codegen_c.emit(te.lower(te.create_schedule([rows]), [a, rows]))


@pytest.mark.parametrize("columns", [16, 24])
def test_results_are_the_same(columns: int) -> None:
    func, _ = tile(2100, columns)
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((6, 2100), "float32"), rng.standard_normal((2100, columns), "float32")
    c = np.full((6, columns), np.nan, "float32")
    module = codegen_c.build(func)
    assert "__builtin_prefetch" in module.source
    module(a, b, c)
    np.testing.assert_allclose(c, a.astype("float64") @ b, rtol=2e-4, atol=2e-4)
