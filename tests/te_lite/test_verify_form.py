"""Indices as sums of atoms: of the same value at every point, and the same sum where quotients are of one kind."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from te_lite.expr.expr import Expr, Var
from te_lite.verify.verify_form import Forms
from te_lite.verify.verify_points import value_at
from tests.amount import examples

VARIABLES = B, T = Var("b"), Var("t")
GRID = {B: np.arange(-30, 60)[:, None], T: np.arange(0, 128)[None, :]}


@st.composite
def quotients(draw: st.DrawFn, depth: int = 4) -> Expr:
    """Scaled sums of quotients and remainders by small numbers, nested."""
    if depth == 0:
        return draw(st.sampled_from(VARIABLES)) * draw(st.integers(-3, 20)) + draw(st.integers(-9, 9))
    inner, by = draw(quotients(depth - 1)), draw(st.integers(1, 24))
    divided = inner // by if draw(st.booleans()) else inner % by
    rest = draw(st.sampled_from(VARIABLES)) * draw(st.integers(-3, 9))
    return divided * draw(st.sampled_from([1, 1, 1, 2, -1])) + rest + draw(st.integers(-4, 4))


@examples(150)
@given(quotients(), st.integers(2, 24))
def test_a_sum_has_the_value_of_the_index_at_every_point(inner: Expr, by: int) -> None:
    forms = Forms()
    for index in (inner // by, inner % by, inner // by % 3 + inner % by):
        terms, constant = forms.of(index)
        got = sum([c * forms.value(a, GRID) for a, c in terms.items()], constant)
        assert np.array_equal(*np.broadcast_arrays(got, value_at(index, GRID)))


@examples(100)
@given(st.integers(1, 40), st.integers(2, 20), st.integers(2, 120), st.integers(-5, 5))
def test_a_quotient_of_a_sum_with_a_quotient_is_one_quotient(k: int, m: int, n: int, more: int) -> None:
    forms = Forms()
    assert forms.of((B * k + T // m + more) // n) == forms.of((B * (k * m) + T + more * m) // (m * n))
