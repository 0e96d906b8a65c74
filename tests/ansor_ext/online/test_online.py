"""Reductions joined into one pass: the obligations of every law, and what joined programs compute."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from ansor_ext.online.online import LAWS, Law, combined
from ansor_ext.online.steps import JoinReductions
from te_lite import ScheduleError, Tensor, topi
from te_lite.expr.expr import Expr, Var, const
from te_lite.expr.visit import free_vars, substitute
from te_lite.meaning.interp import run
from te_lite.meaning.reference import evaluate
from te_lite.printing.python_text import python_names, python_schedule
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.schedule import Schedule
from te_lite.schedule.state import State
from te_lite.schedule.step import from_json, to_json
from tests.amount import examples
from tests.oracle import poisoned

Array = np.ndarray
BY_NAME = pytest.mark.parametrize("law", LAWS, ids=lambda law: law.extreme)
IDENTITY = {"max": -np.inf, "min": np.inf}


def value(e: Expr, **variables: float) -> float:
    """What a float64 expression of variables is, by its text in Python's operators."""
    scalars = {name: te.placeholder((1,), "float64", name=name) for name in variables}
    found = {v: scalars[v.name][0] for v in free_vars(e) if isinstance(v, Var)}
    out = te.compute((1,), lambda _i: substitute(e, found), name="out")
    with np.errstate(all="ignore"):
        given = {t: np.array([variables[name]]) for name, t in scalars.items()}
        return float(evaluate([*scalars.values(), out], given, dtype="float64")[out][0])


def symbols(*names: str) -> list[Var]:
    return [Var(name, "float64") for name in names]


# --------------------------------------------------------------------------------------------- obligations

NUMBERS = st.floats(-50, 50)


@BY_NAME
@examples(25)
@given(v=NUMBERS, near=NUMBERS, far=st.floats(0, 100), s=st.floats(0, 1e6), t=st.floats(0, 1e6))
def test_terms_can_be_carried(law: Law, v: float, near: float, far: float, s: float, t: float) -> None:
    """1: a term of its own extreme is 1.  2: carried, it is the term of another one.  3: sums are.  4: none grows."""
    x, a, b, p, q = symbols("x", "a", "b", "p", "q")
    better = max if law.extreme == "max" else min
    m = better(v, near)
    to = m + far if law.extreme == "max" else m - far
    where = {"x": v, "a": m, "b": to, "p": s, "q": t}
    assert value(law.term(x, x), x=v) == 1.0
    moved = value(law.carry(law.term(x, a), a, b), **{k: where[k] for k in "xab"})
    assert np.isclose(moved, value(law.term(x, b), x=v, b=to), rtol=1e-12, atol=0)
    both = value(law.carry(p + q, a, b), **{k: where[k] for k in "abpq"})
    each = [value(law.carry(e, a, b), **{n: where[n], "a": m, "b": to}) for n, e in (("p", p), ("q", q))]
    assert np.isclose(both, sum(each), rtol=1e-12, atol=0)
    assert 0 <= each[0] <= s


def folded(law: Law, points: list[float], order: np.random.Generator) -> tuple[float, float]:
    """Pairs of points put together two at a time, in any order, the identity among them."""
    combiner = combined(law, "float64", const(IDENTITY[law.extreme], "float64"))
    names = [v.name for v in (*combiner.lhs, *combiner.rhs)]
    left = [(p, 1.0) for p in points] + [(IDENTITY[law.extreme], 0.0)] * 2
    while len(left) > 1:
        i, j = order.permutation(len(left))[:2]
        where = dict(zip(names, (*left[i], *left[j]), strict=True))
        pair = tuple([value(e, **{v.name: where[v.name] for v in free_vars(e)}) for e in combiner.result])
        left = [p for k, p in enumerate(left) if k not in (i, j)] + [(pair[0], pair[1])]
    return left[0]


def defined(law: Law, points: list[float]) -> tuple[float, float]:
    """The extreme and the sum of terms by definition, in float64."""
    with np.errstate(all="ignore"):
        m = (np.max if law.extreme == "max" else np.min)(points)
        sign = 1 if law.extreme == "max" else -1
        return float(m), float(np.exp(sign * (np.array(points) - m)).sum())


SPECIAL = (np.inf, -np.inf, np.nan, 0.0, 3e38)


@BY_NAME
def test_any_order_gives_what_the_definition_says(law: Law) -> None:
    """Ordinary points, and all pairs of special ones among them; in the end the sum is carried to where it is."""
    rng = np.random.default_rng(17)
    total, m = symbols("total", "m")
    for special in [(), *itertools.combinations_with_replacement(SPECIAL, 2)]:
        points = [*rng.normal(0, 20, int(rng.integers(3) if special else 2)), *special]
        extreme, s = folded(law, points, rng)
        got = extreme, value(law.carry(total, m, m), total=s, m=extreme)
        assert np.allclose(got, defined(law, points), rtol=1e-12, equal_nan=True), points


# ------------------------------------------------------------------------------------------------ programs


def soft_min(n: int) -> list[Tensor]:
    """Weights that prefer the least, over two axes; the terms are written where they are summed up."""
    a = te.placeholder((3, n, 4), name="A")
    k, q, r, w = (te.reduce_axis((0, d), name=x) for x, d in zip("kqrw", (n, 4, n, 4), strict=True))
    least = te.compute((3,), lambda i: te.min(a[i, k, q] * 2.0, axis=[k, q]), name="least")
    total = te.compute((3,), lambda i: te.sum(te.exp(least[i] - a[i, r, w] * 2.0), axis=[r, w]), name="total")
    return [a, te.compute((3,), lambda i: te.log(total[i]) - least[i], name="out")]


def soft_max(n: int) -> list[Tensor]:
    a = te.placeholder((3, n), name="A")
    return [a, topi.nn.softmax(a)]


def joined(tensors: list[Tensor], inlined: tuple[int, ...], first: int, second: int) -> State:
    state = ComputeDAG(tensors).init_state
    for k in inlined:
        state = apply(state, ComputeInline(k))
    return apply(state, JoinReductions(first, second))


@pytest.mark.parametrize(("make", "inlined", "pair"), [(soft_max, (2,), (1, 3)), (soft_min, (), (1, 2))])
def test_joined_programs_compute_the_definition(make: object, inlined: tuple[int, ...], pair: tuple[int, int]) -> None:
    rng = np.random.default_rng(19)
    for n in (1, 2, 37):
        state = joined(make(n), inlined, *pair)  # type: ignore[operator]
        tensors = state.dag.tensors
        x = rng.normal(0, 10, tensors[0].shape).astype("float32")
        x[0, 0], x[1] = (-np.inf, -np.inf) if n > 1 else (1.0, 2.0)
        out = poisoned(tensors[-1].shape, "float32")
        run(te.lower(state), [x.copy(), out])
        with np.errstate(all="ignore"):
            want = evaluate(tensors, {tensors[0]: x.astype("float64")}, dtype="float64")[tensors[-1]]
        assert np.allclose(out, want, rtol=1e-5, atol=1e-7, equal_nan=True)


def test_the_step_is_recorded_printed_and_shared() -> None:
    state = joined(soft_max(8), (2,), 1, 3)
    assert replay(state.dag, [from_json(to_json(step)) for step in state.steps]) == state
    names = {"te": te, "s": Schedule(state.dag), **python_names(state.dag)}
    exec(python_schedule(state), names)
    assert names["s"].state == state
    schedule = Schedule(state.dag)
    ops = state.dag.ops
    schedule[ops[2].output()].compute_inline()
    first, second = schedule.join_reductions(ops[1].output(), ops[3].output())
    assert (first.op is second.op) and schedule.state == state


def test_what_no_law_allows_is_refused() -> None:
    a = te.placeholder((3, 8), name="A")
    k, r = te.reduce_axis((0, 8), name="k"), te.reduce_axis((0, 8), name="r")
    most = te.compute((3,), lambda i: te.max(a[i, k], axis=k), name="most")

    def refused(term: object, n: int = 2) -> None:
        total = te.compute((3,), lambda i: te.sum(term(i), axis=r), name="total")  # type: ignore[operator]
        out = te.compute((3,), lambda i: total[i] + most[i], name="out")
        with pytest.raises(ScheduleError, match="carried"):
            apply(ComputeDAG([a, out]).init_state, JoinReductions(1, n))

    refused(lambda i: te.exp(a[i, r] - most[2 - i]))
    refused(lambda i: te.exp(most[i] - a[i, r]))
    refused(lambda i: te.exp(a[i, r] * 2.0 - most[i]))
    refused(lambda i: te.exp(a[i, 7 - r] - most[i]))
    refused(lambda i: a[i, r] - most[i])
