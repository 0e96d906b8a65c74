"""Rows that no block keeps, in parts over blocks or streamed: the structure of programs, and what they compute."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import te_lite as te
from ansor.core.tasks.task import SearchTask
from ansor.cost_model import RandomModel
from ansor.policy.sketch_policy import SketchPolicy
from ansor.sketch.generate import extra_sketches
from ansor.space.spaces import space_of
from ansor_ext.online.steps import JoinReductions
from ansor_ext.rows.long_rows import Cut, in_parts
from ansor_ext.rows.row_stages import row_program
from codegen_cuda import emit
from te_lite.meaning.interp import run
from te_lite.schedule.replay import replay
from te_lite.schedule.state import ROOT, State
from te_lite.schedule.step import from_json, to_json
from tests.ansor.sketch_cases import HARDWARE
from tests.ansor_ext.rows.test_row_rule import differs, emulated, inputs_of, program_of, special
from tests.nonempty import nonempty
from tests.row_programs import ROW_CASES, RowCase, softmax

SIZES = ((1, 97), (3, 64), (2, 500), (5, 257), (4, 33))
CUTS = tuple(
    Cut(t, e, lanes, split) for t in (32, 64) for e, lanes in ((4, 4), (8, 4), (3, 1)) for split in (True, False)
)


def in_kernels(case: RowCase, m: int, n: int, cut: Cut) -> State | None:
    """The program of a case with rows cut so; None where vectors do not divide them."""
    state = te.ComputeDAG(case.tensors(m, n)).init_state
    program = row_program(state)
    assert program is not None
    return in_parts(state, program, cut) if program.length % cut.lanes == 0 else None


def kernels(state: State) -> int:
    return sum(s.where == ROOT and not s.is_placeholder for s in state.stages)


def sketches_of(name: str, m: int, n: int) -> list[State]:
    return extra_sketches(te.ComputeDAG(ROW_CASES[name].tensors(m, n)), "cuda", HARDWARE["cuda"], rules=["long_rows"])


# ------------------------------------------------------------------------------------------ which sketches


def test_rows_that_are_kept_are_not_cut_and_others_are() -> None:
    """Few long rows are spread over blocks; many that do not fit a block are streamed, too; the rest stays as it is."""
    found = {size: [kernels(s) for s in sketches_of("softmax", *size)] for size in (
        (4096, 1024), (1, 4096), (4096, 50257), (128, 50257), (16, 1_000_000), (1024, 131_072)
    )}  # fmt: skip
    assert found[4096, 1024] == found[1, 4096] == found[4096, 50257] == []
    assert set(found[128, 50257]) == set(found[16, 1_000_000]) == {2}
    assert set(found[1024, 131_072]) == {1, 2}
    assert all(len(counts) <= 10 for counts in found.values())
    assert set(map(kernels, sketches_of("rms_norm", 16, 1_000_000))) == {2}


def test_a_maximum_and_its_sum_are_one_pass() -> None:
    """Softmax and logsumexp, log-softmax and attention's join two reductions; norms have none that a law carries."""
    joined = {name for name in ROW_CASES if any(
        isinstance(step, JoinReductions) for s in [in_kernels(ROW_CASES[name], 3, 64, CUTS[0])] if s for step in s.steps
    )}  # fmt: skip
    assert joined == {"softmax", "one_softmax", "log_softmax", "masked_softmax", "log_sum_exp"}


def test_parts_fill_the_machine_and_their_loads_come_first() -> None:
    for sketch in nonempty(sketches_of("softmax", 128, 50257)):
        program = emit(te.lower(sketch))
        assert all(128 <= kernel.grid[0] <= 4096 for kernel in nonempty(program.kernels))
        body = program.source.split('extern "C"')[1]
        reads, folds = body.split("= max_f32(", 1)
        assert " A[" in reads and " A[" not in folds


# ------------------------------------------------------------------------------------------ what they compute


@pytest.mark.parametrize("name", ROW_CASES)
@pytest.mark.one_in(2)
def test_programs_compute_the_rows(name: str) -> None:
    case, rng = ROW_CASES[name], np.random.default_rng([19, len(name)])
    cases = ((m, n, CUTS[k]) for m, n in SIZES for k in rng.permutation(len(CUTS))[:2])
    for *where, state in nonempty((*c, s) for c in cases if (s := in_kernels(case, *c)) is not None):
        assert not differs(state, case, inputs_of(state, rng), run), where


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm"])
def test_special_values_are_kept(name: str) -> None:
    """Parts without anything finite, rows without, NaN, infinities: as the definition has them."""
    case, rng = ROW_CASES[name], np.random.default_rng(20)
    for cut in nonempty(CUTS[1::3]):
        for m, n in ((6, 96), (5, 260)):
            state = in_kernels(case, m, n, cut)
            assert state is not None
            inputs = [special(rng, m, n), *inputs_of(state, rng)[1:]]
            assert not differs(state, case, inputs, run), cut


@pytest.mark.parametrize(("name", "m", "n"), [("softmax", 2, 16411), ("layer_norm", 1, 20000), ("arg_max", 1, 50257)])
def test_sketches_compute_the_rows_and_come_back_from_records(name: str, m: int, n: int) -> None:
    case, rng = ROW_CASES[name], np.random.default_rng(21)
    sketches = sketches_of(name, m, n)
    for k in nonempty(rng.permutation(len(sketches))[:2]):
        state = program_of(sketches[k])
        assert space_of(sketches[k], "cuda", HARDWARE["cuda"]).width == 0, "all is decided"
        assert not differs(state, case, inputs_of(state, rng), run)
        assert replay(state.dag, map(from_json, json.loads(json.dumps(list(map(to_json, state.steps)))))) == state


def test_the_policy_proposes_them() -> None:
    task = SearchTask(compute_dag=te.ComputeDAG(softmax(64, 40_000)), target="cuda", hardware_params=HARDWARE["cuda"])
    asked = [s for _ in range(3) for s in SketchPolicy(task, RandomModel(0), verbose=0, seed=3).ask(16)]
    assert any(isinstance(step, JoinReductions) for s in asked for step in s.steps)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
@pytest.mark.parametrize(("name", "cut"), [("softmax", CUTS[0]), ("softmax", CUTS[5]), ("layer_norm", CUTS[10])])
def test_kernels_compute_the_rows(name: str, cut: Cut) -> None:
    case, rng = ROW_CASES[name], np.random.default_rng(22)
    state = in_kernels(case, 3, 260, cut)
    assert state is not None and not differs(state, case, inputs_of(state, rng), emulated)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
@pytest.mark.parametrize("name", ROW_CASES)
def test_all_kernels_compute_the_rows(name: str) -> None:
    case, rng = ROW_CASES[name], np.random.default_rng(23)
    cases = ((m, n, cut) for m, n in SIZES for cut in CUTS)
    for *where, state in nonempty((*c, s) for c in cases if (s := in_kernels(case, *c)) is not None):
        assert not differs(state, case, inputs_of(state, rng), emulated), where
