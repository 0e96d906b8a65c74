"""Loops that were fused of an open extent and others end with the size, and inner loops stop inside of them."""

from __future__ import annotations

import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor_ext.open_sizes.shorten import Shortener
from te_lite.expr.expr import INDEX, Const, Var, compare
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute
from tests.ansor_ext.open_sizes.programs import CASES, arrays
from tests.nonempty import nonempty

N = te.size_var("n", 1, 100)
F = Var("f", INDEX)
SIZES = range(1, 101)


def value_of(e: te.Expr, v: Var, n: int) -> int:
    found = substitute(e, {v: Const(n)})
    assert isinstance(found, Const)
    return int(found.value)


@pytest.mark.parametrize(
    ("left", "extent", "width"),
    [
        (F // 8 * 5, 160, 1),
        (F // 8 * 16 + F % 8 * 2, 56, 1),
        (F // 6 * 12 + F // 2 % 3 * 4, 54, 2),
        (F // 4 * 7 + F % 4, 60, 4),
        (F // 4 * 7 + F // 2 * 3 + F, 60, 4),
    ],
)
def test_no_iteration_behind_the_end_has_a_point_inside(left: te.Expr, extent: int, width: int) -> None:
    """For each size, by all values: the end is behind the last iteration inside, by `width` or less."""
    simplifier = Simplifier({F: (0, extent - 1)})
    end = Shortener(simplifier, False).end(compare("<", simplifier.simplify(left), N), F)
    assert end is not None
    values = [value_of(left, F, f) for f in range(extent)]
    for n in nonempty(SIZES):
        last = max([f for f in range(extent) if values[f] < n])
        assert last < value_of(end, N, n) <= last + width


def fused(most: int, rows: int) -> te.LoweredFunc:
    """Tiles of rows by tiles of columns, the outer loops fused and parallel, the product computed in each tile."""
    case = CASES["rows_by_matrix"](1, most)
    s = te.create_schedule(case.tensors[-1])
    out = case.tensors[-1]
    c = out.op.input_tensors()[0]
    i, j = s[out].op.axis
    i, inner = s[out].split(i, factor=rows)
    j, columns = s[out].split(j, factor=5)
    s[out].reorder(i, j, inner, columns)
    outer = s[out].fuse(i, j)
    s[out].parallel(outer)
    middle, _ = s[out].split(inner, factor=2)
    s[c].compute_at(s[out], middle)
    return te.lower(s, list(case.tensors))


def test_the_text_of_a_fused_loop() -> None:
    text = str(fused(64, 8))
    assert "parallel i_0_j_0 in 0..16:\n        if i_0_j_0 < (n + 7)//8*2:" in text
    assert "in 0..4:\n                if i_0_j_0//2*8 + i_1_0*2 < n:" in text


def test_fused_programs_compute_what_numpy_says() -> None:
    case = CASES["rows_by_matrix"](1, 20)
    func = fused(20, 8)
    module = codegen_c.build(func)
    for n in nonempty(range(1, 21)):
        *given, out = arrays(case, (n,), np.random.default_rng(n))
        module(*given, out)
        np.testing.assert_allclose(out, case.expected(*given), rtol=1e-5, atol=1e-5)


def test_an_open_extent_inside_of_a_fused_loop_is_asked_for_at_once() -> None:
    """The loop has no end by sizes alone, but an iteration that would store nothing computes nothing, either."""
    case = CASES["batches"](1, 20)
    y = case.tensors[-1]
    s = te.create_schedule(y)
    c = s.cache_write(y, "local")
    b, i, *_ = s[y].op.axis
    i, _ = s[y].split(i, factor=4)
    outer = s[y].fuse(b, i)
    s[y].parallel(outer)
    s[c].compute_at(s[y], outer)
    func = te.lower(s, list(case.tensors))
    assert "        if h_i_0 < b*5:\n            if h_i_0%5*4 < n:\n                alloc" in str(func)
    module = codegen_c.build(func)
    for sizes in nonempty([(1, 1), (3, 7), (20, 20), (2, 13)]):
        *given, out = arrays(case, sizes, np.random.default_rng(sizes))
        module(*given, out)
        np.testing.assert_allclose(out, case.expected(*given), rtol=1e-5, atol=1e-5)
