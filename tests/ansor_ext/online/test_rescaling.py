"""Sums that follow an extreme: which do, what a postponed division computes, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from ansor_ext.online.online import LAWS
from ansor_ext.online.rescaling import carried, postponed, share
from ansor_ext.online.steps import ComputeAlong, PostponeDivision
from ansor_ext.tensor_core.mma import ROWS, mma
from te_lite import LowerError, ScheduleError, Tensor
from te_lite.bounds.bounds import infer_bounds
from te_lite.computation.tensor import ComputeOp
from te_lite.meaning.interp import run
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.step import from_json, to_json
from tests.ansor_ext.attention.test_attention import CASES, sketches
from tests.ansor_ext.online.test_online import value
from tests.oracle import poisoned


class Weighted:
    """softmax(X) W, whose parts can be changed: X [M, N], W [N, D]."""

    def __init__(self, sizes: tuple[int, int, int] = (5, 7, 3), sign: float = 1.0, other: bool = False) -> None:
        m, n, d = sizes
        k1, k2, k3 = [te.reduce_axis((0, n), name) for name in ("k1", "k2", "k3")]
        self.x, self.w = te.placeholder((m, n), name="X"), te.placeholder((n, d), name="W")
        pick = te.max if sign > 0 else te.min
        self.top = te.compute((m,), lambda i: pick(self.x[i, k1], axis=k1), name="top")
        self.term = te.compute((m, n), lambda i, j: te.exp((self.x[i, j] - self.top[i]) * sign), name="term")
        if sign < 0:
            self.term = te.compute((m, n), lambda i, j: te.exp(self.top[i] - self.x[i, j]), name="term")
        summed = self.x if other else self.term
        self.whole = te.compute((m,), lambda i: te.sum(summed[i, k2], axis=k2), name="whole")
        self.share = te.compute((m, n), lambda i, j: self.term[i, j] / self.whole[i], name="share")
        self.y = te.compute((m, d), lambda i, c: te.sum(self.share[i, k3] * self.w[k3, c], axis=k3), name="Y")

    @property
    def dag(self) -> ComputeDAG:
        return ComputeDAG([self.x, self.w, self.y])


def op(x: Tensor) -> ComputeOp:
    assert isinstance(x.op, ComputeOp)
    return x.op


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.extreme)
def test_carrying_is_a_product(law: object) -> None:
    """What sums are multiplied by is carried from 1: the obligation that `lower_along.py` adds to those of `online`."""
    rng = np.random.default_rng(0)
    s, m, to = [te.expr.expr.Var(name, "float64") for name in ("s", "m", "to")]
    one = te.const(1.0, "float64")
    for _ in range(20):
        where = {"s": float(rng.uniform(0, 9)), "m": float(rng.normal()), "to": float(rng.normal())}
        moved = value(law.carry(s, m, to), **where)  # type: ignore[attr-defined]
        factor = value(law.carry(one, m, to), m=where["m"], to=where["to"])  # type: ignore[attr-defined]
        assert np.isclose(moved, where["s"] * factor, rtol=1e-14)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_sum_of_terms_follows_their_extreme(sign: float) -> None:
    w = Weighted(sign=sign)
    ops = w.dag.ops
    found = carried(op(w.whole), op(w.top), ops)
    assert found is not None and found.law.extreme == ("max" if sign > 0 else "min")
    part = share(op(w.share), ops)
    assert part is not None and part.extreme is w.top.op and part.whole.tensor == w.whole
    assert carried(op(w.y), op(w.top), ops) is None, "divided by what is not known yet"


def test_other_sums_do_not_follow() -> None:
    w, other = Weighted(), Weighted(other=True)
    assert carried(op(other.whole), op(other.top), other.dag.ops) is None
    assert share(op(other.share), other.dag.ops) is None
    assert share(op(w.term), w.dag.ops) is None
    assert postponed(op(w.term), op(w.y), w.dag.ops) is None


def test_a_postponed_division_means_the_same() -> None:
    w, rng = Weighted((9, 33, 5)), np.random.default_rng(1)
    s = te.Schedule(w.dag)
    sums = s.postpone_division(w.share, w.y)
    s[w.share].compute_inline()
    x, weight = rng.normal(0, 30, (9, 33)).astype("float32"), rng.standard_normal((33, 5)).astype("float32")
    out = poisoned((9, 5), "float32")
    run(te.lower(s, [w.x, w.w, w.y]), [x, weight, out])
    e = np.exp(x.astype("float64") - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True) @ weight, rtol=2e-5, atol=2e-6)
    assert sums.name == "Y.undivided" and from_json(to_json(s.state.steps[0])) == PostponeDivision(4, 6)


def test_divisions_that_stay() -> None:
    w = Weighted(other=True)
    s = te.Schedule(w.dag)
    with pytest.raises(ScheduleError, match="postpone_division share: Y must sum up products with shares of a whole"):
        s.postpone_division(w.share, w.y)
    with pytest.raises(ScheduleError, match="the total must be a sum"):
        s.postpone_division(w.term, w.share)


def test_places_along_which_nothing_is_computed() -> None:
    """In the attention of a sketch, with its maximum put elsewhere, or without the sums that follow it."""
    tensors = CASES["one turn"].tensors()
    state = next(s for s in sketches(tensors) if "for i_c.0 (0,2)" in str(infer_bounds(s).state))
    steps = [step for step in state.steps if isinstance(step, ComputeAlong)]
    assert [from_json(to_json(step)) for step in steps] == steps and len(steps) == 2
    names = [state.stages[step.stage].op.name for step in steps]
    assert names == ["most", "whole"]
    s = te.Schedule(state)
    (sums,) = [op.output() for op in state.ops if op.name == "O.undivided"]
    head, iteration, step, rows, *inner = s[sums].leaf_iter_vars
    s[sums].reorder(head, rows, iteration, step, *inner)
    with pytest.raises(LowerError, match="compute_along most: the loop must be the first one that runs in turn"):
        te.lower(s, tensors)
    w = Weighted()
    s = te.Schedule(w.dag)
    with pytest.raises(ScheduleError, match="it and the target must be reductions over axes of the same extents"):
        s[w.share].compute_along(s[w.y], s[w.y].leaf_iter_vars[0])
    s[w.top].compute_along(s[w.y], s[w.y].leaf_iter_vars[2])
    with pytest.raises(LowerError, match="compute_along top: "):
        te.lower(s, [w.x, w.w, w.y])


def test_a_value_for_each_row_is_in_all_lanes_of_the_row() -> None:
    instruction = mma("m16n8k16_f16_f32")
    rows = instruction.fragment(ROWS)
    assert (rows.rows, rows.columns, rows.lanes, rows.values) == (16, 1, 32, 2)
    lane, held = np.meshgrid(np.arange(32), np.arange(2), indexing="ij")
    row, column = rows.place(lane, held)
    assert (column == 0).all() and [int((row == r).sum()) for r in range(16)] == [4] * 16
    again = rows.holder(row, column, lane)
    assert (again[0] == lane).all() and (again[1] == held).all()
    whole_row, _ = instruction.d.place(lane, 2 * held)
    assert (whole_row == row).all()


def test_other_storage_has_no_rows_of_lanes() -> None:
    """Lanes fold rows of fragments together; a fused loop on threads means nothing to an array in memory."""
    a, k = te.placeholder((32, 24), name="A"), te.reduce_axis((0, 24), "k")
    b = te.compute((32,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], 8)
    rest, part = s[b].split(b.op.reduce_axis[0], 4)
    s[b].reorder(outer, rest, inner, part)
    s[b].bind(outer, "blockIdx.x")
    s[b].bind(s[b].fuse(inner, part), "threadIdx.x")
    with pytest.raises(LowerError, match="spatial and reduction loops are fused"):
        te.lower(s, [a, b])


def test_shares_that_are_read_twice_stay_divided() -> None:
    w = Weighted()
    twice = te.compute(w.share.shape, lambda i, j: w.share[i, j] * 2.0, name="twice")
    s = te.Schedule(ComputeDAG([w.x, w.w, w.y, twice]))
    with pytest.raises(ScheduleError):
        s.postpone_division(w.share, w.y)


def test_whole_numbers_do_not_follow() -> None:
    """A cast to an integer is no factor that a product may be moved through."""
    w = Weighted()
    j = te.reduce_axis((0, 7), "j")
    cut = te.compute((5,), lambda i: te.sum(w.term[i, j].astype("int32").astype("float32"), axis=j), name="cut")
    assert carried(op(cut), op(w.top), ComputeDAG([w.x, cut]).ops) is None
