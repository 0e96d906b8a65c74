"""A computation at some sizes is the one that is written with numbers, and steps fit both."""

from __future__ import annotations

import numpy as np
import pytest

import te_lite as te
from ansor_ext.open_sizes.sized import sized
from te_lite.errors import ExprError
from te_lite.meaning.interp import run
from te_lite.schedule.replay import replay
from tests.ansor_ext.open_sizes.programs import CASES, Case, arrays
from tests.nonempty import nonempty
from tests.schedule_fuzz import Fuzzer


@pytest.fixture(params=sorted(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[str(request.param)](1, 9)


def test_it_computes_what_numpy_says(case: Case) -> None:
    dag = te.ComputeDAG(case.tensors)
    for n in nonempty((1, 5, 9)):
        values = tuple([n - k if n > k else 1 for k in range(len(case.sizes))])
        fixed = sized(dag, dict(zip(case.sizes, values, strict=True)))
        assert not fixed.sizes
        assert [op.name for op in fixed.ops] == [op.name for op in dag.ops]
        *given, out = arrays(case, values, np.random.default_rng(n))
        run(te.lower(fixed.init_state), [*given, out])
        np.testing.assert_allclose(out, case.expected(*given), rtol=1e-5, atol=1e-5)


def test_steps_fit_both(case: Case) -> None:
    dag = te.ComputeDAG(case.tensors)
    fixed = sized(dag, dict.fromkeys(case.sizes, 7))
    state, _ = Fuzzer(fixed, np.random.default_rng(3), False).draw()
    text = str(te.lower(replay(dag, state.steps)))
    assert all(f"{v.name}" in text for v in case.sizes)
    assert te.lower(replay(fixed, state.steps)).sizes == ()


def test_keys_are_those_of_numbers() -> None:
    def rows(n: object) -> list[te.Tensor]:
        a = te.placeholder((n, 12), name="A")
        k = te.reduce_axis((0, 12), "k")
        return [a, te.compute((n,), lambda i: te.sum(a[i, k], axis=k), name="B")]

    n = te.size_var("n", 1, 64)
    assert sized(te.ComputeDAG(rows(n)), {n: 33}).workload_key() == te.ComputeDAG(rows(33)).workload_key()


def test_the_same_sizes_give_the_same_tensors(case: Case) -> None:
    dag = te.ComputeDAG(case.tensors)
    values = dict.fromkeys(case.sizes, 4)
    assert sized(dag, values).tensors == sized(dag, values).tensors
    assert sized(dag, values).tensors != sized(dag, dict.fromkeys(case.sizes, 5)).tensors


def test_sizes_out_of_bounds_are_refused(case: Case) -> None:
    dag = te.ComputeDAG(case.tensors)
    first = case.sizes[0]
    with pytest.raises(ExprError, match=f"^sizes: {first.name} must be 1 to 9, got 10$"):
        sized(dag, {**dict.fromkeys(case.sizes, 4), first: 10})
    with pytest.raises(ExprError, match=f"^sizes: {first.name} must be 1 to 9, got None$"):
        sized(dag, {})


def test_open_axes_are_not_joined() -> None:
    """A step that needs the numbers of extents says so; a task leaves out programs with it."""
    case = CASES["rows_by_matrix"](1, 9)
    d = case.tensors[-1]
    c = d.op.input_tensors()[0]
    s = te.create_schedule(d)
    with pytest.raises(
        te.errors.ScheduleError, match="join_axes C: it must have one output, and axes of known extents"
    ):
        s.join_axes(c, 0, 2)
