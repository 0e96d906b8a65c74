"""Sums of shares in parts, each with an extreme of its own: what they compute, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from ansor_ext.online.online import LAWS, Law, combined
from ansor_ext.online.steps import CarryParts
from te_lite import ScheduleError, Tensor
from te_lite.expr.expr import Var, const
from te_lite.meaning.interp import run
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json, to_json
from tests.amount import examples
from tests.ansor_ext.online.test_online import value
from tests.ansor_ext.online.test_rescaling import Weighted
from tests.oracle import poisoned

NUMBERS = st.floats(-50, 50)


def in_parts(w: Weighted, length: int) -> te.Schedule:
    s = te.Schedule(w.dag)
    s.cache_write(s.postpone_division(w.share, w.y), "local")
    s.carry_parts(w.y, length)
    return s


@examples(10)
@given(
    sizes=st.tuples(st.integers(1, 5), st.integers(2, 23), st.integers(1, 4)),
    sign=st.sampled_from([1.0, -1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_parts_add_up(sizes: tuple[int, int, int], sign: float, seed: int) -> None:
    """Some values of a row, a whole part of it or all of it, may be the identity of its extreme."""
    rng, (m, n, d) = np.random.default_rng(seed), sizes
    w, length = Weighted(sizes, sign), int(rng.integers(1, n))
    x, weight = rng.normal(0, 30, (m, n)).astype("float32"), rng.standard_normal((n, d)).astype("float32")
    x[rng.random((m, n)) < 0.3] = -sign * np.inf
    x[0, :length] = -sign * np.inf
    x[m - 1] = -sign * np.inf
    out = poisoned((m, d), "float32")
    run(te.lower(in_parts(w, length), [w.x, w.w, w.y]), [x, weight, out])
    with np.errstate(invalid="ignore"):
        v = sign * x.astype("float64")
        e = np.exp(v - v.max(1, keepdims=True))
        want = e / e.sum(1, keepdims=True) @ weight
    np.testing.assert_allclose(out, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.extreme)
@examples(20)
@given(numbers=st.lists(st.tuples(NUMBERS, st.floats(0, 9), st.floats(-9, 9)), min_size=3, max_size=3))
def test_triples_know_no_order(law: Law, numbers: list[tuple[float, float, float]]) -> None:
    """Two sums with one extreme: (a + b) + c = a + (b + c) = (c + b) + a, and the identity changes nothing."""
    identity = -np.inf if law.extreme == "max" else np.inf
    triple = combined(law, "float64", const(identity, "float64"), 2)
    neutral = (identity, 0.0, 0.0)

    def added(a: tuple[float, ...], b: tuple[float, ...]) -> tuple[float, ...]:
        names = [v.name for v in (*triple.lhs, *triple.rhs) if isinstance(v, Var)]
        return tuple([value(e, **dict(zip(names, (*a, *b), strict=True))) for e in triple.result])

    a, b, c = numbers
    orders = [added(added(a, b), c), added(a, added(b, c)), added(added(c, b), a)]
    orders.append(added(neutral, added(added(b, a), c)))
    for other in orders[1:]:
        np.testing.assert_allclose(orders[0], other, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(added(neutral, a), a)
    np.testing.assert_array_equal(added(neutral, neutral), neutral)


def test_the_step_is_recorded_and_written_as_python() -> None:
    w = Weighted()
    state = in_parts(w, 3).state
    again = replay(state.dag, [from_json(to_json(step)) for step in state.steps])
    assert again == state and isinstance(state.steps[-1], CarryParts)
    assert [state.ops[k].shape[0] for k in (1, 2, 3)] == [3, 3, 3]
    names = {"te": te, "s": te.Schedule(state.dag), **python_names(state.dag)}
    exec(python_schedule(state), names)
    assert names["s"].state == state


def refused(w: Weighted, length: int, *outputs: Tensor) -> str:
    s = te.Schedule(ComputeDAG([w.x, w.w, w.y, *outputs]))
    s.cache_write(s.postpone_division(w.share, w.y), "local")
    with pytest.raises(ScheduleError) as error:
        s.carry_parts(w.y, length)
    return str(error.value)


def test_sums_that_stay_whole() -> None:
    assert "there must be several parts" in refused(Weighted(), 7)
    w = Weighted()
    other = te.compute(w.top.shape, lambda i: w.top[i] * 2.0, name="other")
    assert "nothing else may see its sums" in refused(w, 3, other)
    k = te.reduce_axis((0, 5), "k")
    w = Weighted()
    assert "must divide sums of shares" in refused(w, 3, te.compute((1,), lambda i: te.sum(w.top[k], axis=k), name="t"))
    w = Weighted()
    assert "nothing else may see its sums" in refused(w, 3, w.whole)
    s = te.Schedule(w.dag)
    with pytest.raises(ScheduleError, match="must divide sums of shares"):
        s.carry_parts(w.y, 3)


@pytest.mark.parametrize("doubled", [False, True])
def test_a_sum_of_a_part_knows_no_sum_of_all(doubled: bool) -> None:
    w, k = Weighted(), te.reduce_axis((0, 7), "k")
    whole = te.compute((5,), lambda i: w.whole[i] * 2.0, name="twice") if doubled else w.whole
    w.y = te.compute((5, 3), lambda i, c: te.sum(w.share[i, k] * (w.w[k, c] * whole[i]), axis=k), name="Y")
    assert "must divide sums of shares" in refused(w, 3)


@pytest.mark.parametrize("kind", ["terms are written out", "another row", "a condition"])
def test_what_is_refused_of_sums_of_other_points(kind: str) -> None:
    """Parts are made of stages of terms, fold all points, and refer to the extreme of their own row."""
    x, w = te.placeholder((4, 6), name="x"), te.placeholder((6, 3), name="w")
    ks = [te.reduce_axis((0, 6), name) for name in "klm"]
    asked = [k <= 4 if kind == "a condition" else None for k in ks]

    def row(i: te.Expr) -> te.Expr:
        return 3 - i if kind == "another row" else i

    top = te.compute((4,), lambda i: te.max(x[i, ks[0]], axis=ks[0], where=asked[0]), name="top")
    terms = te.compute((4, 6), lambda i, j: te.exp(x[row(i), j] - top[row(i)]), name="terms")
    written = kind == "terms are written out"

    def term(i: te.Expr, j: te.Expr) -> te.Expr:
        return te.exp(x[i, j] - top[i]) if written else terms[i, j]

    whole = te.compute((4,), lambda i: te.sum(term(i, ks[1]), axis=ks[1], where=asked[1]), name="whole")
    sums = te.compute(
        (4, 3), lambda i, c: te.sum(term(i, ks[2]) * w[ks[2], c], axis=ks[2], where=asked[2]), name="sums"
    )
    copy = te.compute((4, 3), lambda i, c: sums[i, c], name="copy")
    y = te.compute((4, 3), lambda i, c: copy[i, c] / whole[i], name="y")
    with pytest.raises(ScheduleError, match="must divide sums of shares"):
        te.Schedule(ComputeDAG([x, w, y])).carry_parts(y, 3)
