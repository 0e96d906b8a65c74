"""Long loops over registers ask for what they read later: one element of each line, and the results are the same."""

from __future__ import annotations

import itertools
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
    """A line of B an iteration, of both its vectors, 16 iterations later; not rows of A, which move by 4 bytes an
    iteration.
    """
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


def panels(rows: int, columns: int, terms: int, fused: bool) -> tuple[te.LoweredFunc, list[Tensor]]:
    """Tiles of 4 rows and panels of 16 columns, one behind the other; `fused`: tiles and panels in one loop."""
    a, b = te.placeholder((rows, terms), name="A"), te.placeholder((columns // 16, terms, 16), name="B")
    r = te.reduce_axis((0, terms), name="r")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, r] * b[j // 16, r, j % 16], axis=r), name="C")
    s = te.create_schedule([c])
    i, j = s[c].op.axis
    i0, i1 = s[c].split(i, 4)
    j0, j1 = s[c].split(j, 16)
    s[c].reorder(j0, i0, r, i1, j1)
    s[c].unroll(i1)
    s[c].vectorize(j1)
    if fused:
        s[c].parallel(s[c].fuse(j0, i0))
    return te.lower(s, [a, b, c]), [a, b, c]


@pytest.mark.parametrize("fused", [False, True])
def test_tiles_share_the_lines_of_the_next_panel(fused: bool) -> None:
    """Ten tiles ask for 52 lines each of 512, all different; arrays that caches hold are not asked for."""
    func, _ = panels(40, 1024, 512, fused)
    text = codegen_c.emit(func, options=AVX2)
    (lines,) = map(int, re.findall(r"line < (\d+)", text))
    (place,) = asked(func)
    found = set()
    for panel, tile, line in itertools.product(range(2), range(10), range(lines)):
        names = {"i_0": tile, "j_0": panel, "j_0_i_0": panel * 10 + tile, "line": line}
        found.add(eval(place[2:].partition("]")[0].replace("/", "//"), names))
    assert lines == 52 and found == {512 * 16 + 16 * n for n in range(2 * 512 + 8)}
    assert asked(panels(40, 128, 512, fused)[0]) == []


def test_panels_of_one_tile_are_not_asked_for() -> None:
    assert asked(panels(4, 1024, 512, fused=False)[0]) == ["B[j_0 * 8192 + r * 16 + 256]"]


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


@pytest.mark.parametrize("fused", [False, True])
def test_results_with_panels_are_the_same(fused: bool) -> None:
    func, tensors = panels(12, 1040, 260, fused)
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(t.shape).astype("float32") for t in tensors[:2])
    c = np.full(tensors[2].shape, np.nan, "float32")
    module = codegen_c.build(func)
    assert "line < " in module.source
    module(a, b, c)
    want = np.concatenate([a.astype("float64") @ panel for panel in b], axis=1)
    np.testing.assert_allclose(c, want, rtol=2e-4, atol=2e-4)
