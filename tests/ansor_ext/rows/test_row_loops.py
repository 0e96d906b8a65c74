"""Row programs on a CPU: their sketches, that the search keeps them together, and that they compute what they mean."""

from __future__ import annotations

import json

import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.generate import extra_sketches
from ansor_ext.rows.row_loops import VECTORS
from te_lite.meaning.interp import run
from te_lite.schedule.replay import replay
from te_lite.schedule.state import ROOT, State
from te_lite.schedule.step import from_json, to_json
from tests.drawn_programs import drawn_program
from tests.oracle import poisoned
from tests.row_programs import ROW_CASES, RowCase

HARDWARE = HardwareParams(4, 64, 64, target=Target.of("c")).completed(Target.of("c"))
SIZES = ((1, 64), (5, 48), (13, 197), (3, 1000), (7, 20))


def sketches_of(case: RowCase, m: int, n: int) -> list[State]:
    return extra_sketches(te.ComputeDAG(case.tensors(m, n)), "c", HARDWARE, rules=["rows"])


def differs(state: State, case: RowCase, rng: np.random.Generator, compiled: bool) -> bool:
    """Whether a program computes something else than float64 NumPy."""
    tensors = state.dag.tensors
    inputs = [rng.standard_normal(t.shape).astype("float32") for t in tensors[:-1]]
    args = [*[x.copy() for x in inputs], poisoned(tensors[-1].shape, tensors[-1].dtype)]
    func = te.lower(state)
    codegen_c.build(func)(*args) if compiled else run(func, args)
    want = case.meaning(*[x.astype("float64") for x in inputs])
    return not np.allclose(args[-1], want, rtol=1e-4, atol=1e-5 * max(np.abs(want).max(), 1e-30))


def test_lanes_are_vectors_that_hardly_run_over_the_row() -> None:
    case = next(iter(ROW_CASES.values()))
    assert [len(sketches_of(case, 8, n)) for n in (1024, 197, 48, 20, 3)] == [len(VECTORS), 2, 1, 1, 0]


@pytest.mark.parametrize("name", ROW_CASES)
@pytest.mark.one_in(3)
def test_programs_compute_the_rows(name: str) -> None:
    case, rng = ROW_CASES[name], np.random.default_rng([20, len(name)])
    for n, (rows, length) in enumerate(SIZES):
        sketches = sketches_of(case, rows, length)
        assert sketches
        state = drawn_program(sketches[int(rng.integers(len(sketches)))], "c", HARDWARE, rng)
        assert state is not None
        steps = [to_json(s) for s in state.steps]
        assert not differs(state, case, rng, compiled=n == 2), (rows, length, steps)
        assert replay(state.dag, [from_json(json.loads(json.dumps(s))) for s in steps]) == state


@pytest.mark.parametrize("name", ROW_CASES)
def test_rows_stay_together_in_the_search(name: str) -> None:
    """Folds and kept rows stay in the loops over rows, so that the output alone is a loop nest of its own."""
    (*_, sketch) = sketches_of(ROW_CASES[name], 12, 256)
    roots = [k for k, s in enumerate(sketch.stages) if s.where == ROOT and not s.is_placeholder]
    assert roots == [len(sketch.stages) - 1]
    for seed in range(4):
        state = drawn_program(sketch, "c", HARDWARE, np.random.default_rng(seed))
        assert state is not None
        folds = [s for s in state.stages if s.op.reduce_axis and s is not state.stages[-1]]
        assert all(s.where != ROOT for s in folds)
