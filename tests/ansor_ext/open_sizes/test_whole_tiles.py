"""Sums in an argument: a part for whole tiles, without guards, and one for the others; right at every size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor_ext.open_sizes.closed import closed
from te_lite.meaning.interp import run
from te_lite.verify.verify import verify
from tests.nonempty import nonempty

MOST = 21
ORDERS = {
    "terms around the tile": "i0 j0 k0 k1 i1 j1", "terms in parts": "i0 j0 k0 i1 k1 j1",
    "rows in the middle": "i0 k0 i1 j0 k1 j1", "tile around the terms": "i0 i1 j0 j1 k0 k1",
    "columns first": "j0 k0 j1 i0 k1 i1",
}  # fmt: skip


def product(order: str, both: bool = True, terms: bool = False) -> tuple[te.LoweredFunc, tuple[te.SizeVar, ...]]:
    """A product of rows [n, 8] and columns [8, m], summed up in the result itself; its number of terms may be open."""
    n = te.size_var("n", 1, MOST)
    m = te.size_var("m", 1, MOST) if both else 12
    length = te.size_var("k", 1, MOST) if terms else 8
    a, b, k = te.placeholder((n, length), name="A"), te.placeholder((length, m), name="B"), te.reduce_axis((0, length))
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c)
    loops = dict(zip(("i0", "i1"), s[c].split(c.op.axis[0], factor=4), strict=True))
    loops |= dict(zip(("j0", "j1"), s[c].split(c.op.axis[1], factor=3), strict=True))
    loops |= dict(zip(("k0", "k1"), s[c].split(c.op.reduce_axis[0], factor=4), strict=True))
    s[c].reorder(*[loops[name] for name in order.split()])
    func = te.lower(s, [a, b, c])
    return func, func.sizes


def multiplied(func: te.LoweredFunc, sizes: dict[te.SizeVar, int], module: codegen_c.Module) -> None:
    """The interpreter and C beside NumPy, on a result that holds NaN before."""
    fixed = closed(func, sizes)
    rng, (a, b, c) = np.random.default_rng(sorted(sizes.values())), [tuple(map(int, x.shape)) for x in fixed.args]
    given, out = [rng.standard_normal(shape).astype("float32") for shape in (a, b)], np.full(c, np.nan, "float32")
    again = out.copy()
    verify(fixed)
    run(fixed, [*given, out])
    module(*given, again)
    for found in (out, again):
        np.testing.assert_allclose(found, given[0] @ given[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("order", sorted(ORDERS))
def test_every_size(order: str) -> None:
    func, sizes = product(ORDERS[order])
    module = codegen_c.build(func)
    for values in nonempty(itertools.product((1, 3, 4, 6, 8, MOST), (1, 2, 3, 9, MOST))):
        multiplied(func, dict(zip(sizes, values, strict=True)), module)


def test_an_open_number_of_terms() -> None:
    func, sizes = product(ORDERS["terms in parts"], terms=True)
    module = codegen_c.build(func)
    for values in nonempty(itertools.product((1, 4, MOST), (1, 7, 8), (1, 3, 12))):
        multiplied(func, dict(zip(sizes, values, strict=True)), module)


def test_terms_of_whole_tiles_are_not_guarded() -> None:
    """All rows of the tile are asked for once; what is left is one condition for each of its rows."""
    lines = [x.strip() for x in str(product(ORDERS["terms around the tile"], both=False)[0]).splitlines()]
    at = lines.index("if i_0*4 < n - 3:")
    assert [x.split(" in ")[0] for x in lines[at + 1 : at + 5]] == ["for rv_0", "for rv_1", "for i_1", "for j_1"]
    assert lines[at + 5].startswith("C[") and lines[at + 6] == "if !(i_0*4 < n - 3):"
    assert lines[at + 10] == "if i_0*4 + i_1 < n:" and lines[at + 12].startswith("C[")
    assert lines.count("if i_0*4 < n - 3:") == 1


def test_inner_tiles_of_others_have_a_part_of_their_own() -> None:
    """Where not all rows of a tile of 12 are there, four of them may be."""
    a, b = te.placeholder((te.size_var("n", 1, 48), 8), name="A"), te.placeholder((8, 5), name="B")
    k = te.reduce_axis((0, 8), "k")
    c = te.compute((a.shape[0], 5), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c)
    i0, rest = s[c].split(c.op.axis[0], factor=12)
    i1, i2 = s[c].split(rest, factor=4)
    k0, k1 = s[c].split(c.op.reduce_axis[0], factor=2)
    s[c].reorder(i0, k0, i1, k1, i2, c.op.axis[1])
    func = te.lower(s, [a, b, c])
    text, module = str(func), codegen_c.build(func)
    assert "if i_0*12 < n - 8 && i_0*12 < n - 11:" in text and "if i_0*12 + i_1_0*4 < n - 3:" in text
    assert text.count("!(") == 2
    for n in nonempty((1, 4, 7, 12, 13, 23, 48)):
        multiplied(func, {func.sizes[0]: n}, module)


def test_a_tile_that_is_never_whole_has_no_part() -> None:
    """Rows in tiles of 24, of which there are 21 at most."""
    text = str(product("j0 k0 i0 k1 i1 j1", both=False)[0])
    assert "false" not in text and "if !(i_0*4 < n - 3):" in text


@pytest.mark.parametrize("order", ["i0 i1 j0 j1 k0 k1"])
def test_what_is_asked_around_the_terms_is_left_alone(order: str) -> None:
    assert "!(" not in str(product(order)[0])
