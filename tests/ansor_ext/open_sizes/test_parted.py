"""Quotients and remainders that fall apart where conditions hold: what becomes of them is worth the same."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor_ext.open_sizes.closed import closed
from ansor_ext.open_sizes.places import Here
from te_lite.expr.expr import INDEX, Const, Expr, Var
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute
from te_lite.loops.stmt_text import pretty
from te_lite.meaning.interp import run
from te_lite.verify.verify_form import Forms
from te_lite.verify.verify_scope import Scope
from te_lite.verify.verify_span import Spans
from tests.nonempty import nonempty

B, T, J = [Var(name, INDEX) for name in "btj"]
ENDS = {B: 9, T: 16, J: 7}


def value(e: Expr, at: dict[Var, int]) -> int:
    found = Simplifier().simplify(substitute(e, {v: Const(n) for v, n in at.items()}))
    assert isinstance(found, Const)
    return int(found.value)


@pytest.mark.parametrize(
    ("e", "cond", "text"),
    [
        (te.floormod(B * 8 + T, 32), T < 8, "b%4*8 + t"),
        (te.floordiv(B * 8 + T, 32), T < 8, "b//4"),
        (te.floordiv(B * 10 + J * 2 - 3 + 60, 60), te.all(J >= 2, J < 6), "b//6 + 1"),
        (te.floormod(B * 10 + J * 2 - 3, 60), te.all(J >= 2, J < 6), "b%6*10 + j*2 - 3"),
        (te.floormod(B * 8 + T, 32), T < 9, "(b*8 + t)%32"),
        (te.floormod(B * 8 + T, 30), T < 8, "(b*8 + t)%30"),
        (te.floormod(B * 10 + J * 2 - 3, 60), J < 6, "(b*5 + j + 28)%30*2 + 1"),
        (te.floormod(B * 12 + T * 4 + J, 48), te.all(T < 3, J < 4), "b%4*12 + t*4 + j"),
    ],
)
def test_parts(e: Expr, cond: Expr, text: str) -> None:
    scope = Scope(Spans({v: (0, n - 1) for v, n in ENDS.items()}), frozenset()).where(cond)
    found = Here(scope, Forms()).less_digits(e)
    for numbers in nonempty(itertools.product(*[range(n) for n in ENDS.values()])):
        at = dict(zip(ENDS, numbers, strict=True))
        if value(cond, at):
            assert value(found, at) == value(e, at), (at, pretty(found))
    assert pretty(Simplifier({v: (0, n - 1) for v, n in ENDS.items()}).simplify(found)) == text


def test_open_images_joined_with_channels() -> None:
    """The rows of images are counted together, of which each reads what is not padding."""
    n = te.size_var("n", 1, 6)
    x = te.placeholder((n, 4, 5, 5), name="x")
    inside = te.compute((n, 4, 7, 7), lambda b, c, i, j: te.if_then_else(
        te.all(i >= 1, i < 6, j >= 1, j < 6), x[b, c, i - 1, j - 1], 0.0), name="pad")  # fmt: skip
    s = te.create_schedule(inside)
    s[inside].parallel(s[inside].fuse(*s[inside].op.axis[:2]))
    func = te.lower(s, [x, inside])
    module = codegen_c.build(func)
    for images in nonempty(range(1, 7)):
        given, out = np.random.default_rng(images).standard_normal((images, 4, 5, 5)).astype("float32"), []
        for call in (lambda *a, images=images: run(closed(func, {n: images}), [*a]), module):
            out.append(np.full((images, 4, 7, 7), np.nan, "float32"))
            call(given, out[-1])
        for found in nonempty(out):
            np.testing.assert_array_equal(found, np.pad(given, ((0, 0), (0, 0), (1, 1), (1, 1))))
