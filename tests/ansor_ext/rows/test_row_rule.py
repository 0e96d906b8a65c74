"""Rows in one kernel: which computations are row programs, how they are cut, and that they compute what they mean."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.tasks.task import SearchTask
from ansor.cost_model import RandomModel
from ansor.policy.sketch_policy import SketchPolicy
from ansor.sketch.generate import extra_sketches
from ansor.space.limits import accumulators
from ansor.space.spaces import space_of
from ansor_ext.rows.rows import thread_counts
from benchmarks import workloads as benchmarks
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite.bounds.bounds import infer_bounds
from te_lite.loops.stmt import Alloc, stmts_of
from te_lite.meaning.interp import run
from te_lite.schedule.replay import replay
from te_lite.schedule.state import ROOT, State
from te_lite.schedule.step import from_json, to_json
from te_lite.schedule.storage_steps import SetScope
from tests.ansor.sketch_cases import HARDWARE
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import poisoned
from tests.row_programs import ROW_CASES, RowCase, softmax

Runner = Callable[[te.LoweredFunc, Sequence[np.ndarray]], None]
SIZES = ((1, 31), (3, 33), (40, 10), (5, 64), (13, 128), (3, 1000), (2, 1023), (9, 384), (6, 97))
PER_SIZE = 2


def emulated(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    run_program(emit(func), args)


def sketches_of(case: RowCase, m: int, n: int, hardware: HardwareParams = HARDWARE["cuda"]) -> list[State]:
    return extra_sketches(te.ComputeDAG(case.tensors(m, n)), "cuda", hardware, rules=["rows"])


def program_of(sketch: State) -> State:
    state = drawn_program(sketch, "cuda", HARDWARE["cuda"], np.random.default_rng(0))
    assert state is not None
    return state


def differs(state: State, case: RowCase, inputs: list[np.ndarray], runner: Runner) -> bool:
    """Whether a program computes something else than float64 NumPy, where the inputs are what they are."""
    output = state.dag.tensors[-1]
    out = poisoned(output.shape, output.dtype)
    runner(te.lower(state), [*[x.copy() for x in inputs], out])
    with np.errstate(all="ignore"):
        want = case.meaning(*[x.astype("float64") for x in inputs])
    scale = np.abs(want[np.isfinite(want)]).max(initial=1e-30)
    return not np.allclose(out, want, rtol=1e-4, atol=1e-5 * scale, equal_nan=True)


def inputs_of(state: State, rng: np.random.Generator) -> list[np.ndarray]:
    return [rng.standard_normal(t.shape).astype("float32") for t in state.dag.tensors[:-1]]


# ------------------------------------------------------------------------------------------ which sketches


@pytest.mark.parametrize("name", ROW_CASES)
def test_everything_is_one_kernel_that_reads_its_rows_once(name: str) -> None:
    for sketch in nonempty(sketches_of(ROW_CASES[name], 12, 256)):
        assert sum(s.where == ROOT and not s.is_placeholder for s in sketch.stages) == 1
        whole = [k for k, s in enumerate(sketch.stages) if s.is_placeholder and s.op.shape == SHAPE_OF[name]]
        assert all(len(sketch.access.read_by[k]) == 1 for k in nonempty(whole))


SHAPE_OF = {name: next(t for t in case.tensors(12, 256) if t.name == "A").shape for name, case in ROW_CASES.items()}


def test_what_mixes_rows_is_no_row_program() -> None:
    a = te.placeholder((6, 64), name="A")
    k, r = te.reduce_axis((0, 64), name="k"), te.reduce_axis((0, 6), name="r")
    total = te.compute((6,), lambda i: te.sum(a[i, k], axis=k), name="total")
    others = {
        "another row": te.compute((6, 64), lambda i, j: a[i, j] / total[5 - i], name="out"),
        "a column": te.compute((64,), lambda j: te.sum(a[r, j] / total[r], axis=r), name="out"),
        "elementwise": te.compute((6, 64), lambda i, j: a[i, j] + 1.0, name="out"),
    }
    for name, out in others.items():
        assert not extra_sketches(te.ComputeDAG([a, out]), "cuda", HARDWARE["cuda"], rules=["rows"]), name
    assert not extra_sketches(
        te.ComputeDAG(list(benchmarks.dense(64, 64, 64))), "cuda", HARDWARE["cuda"], rules=["rows"]
    )


def test_threads_take_equal_shares_or_powers_of_two() -> None:
    assert thread_counts(768, 4, 32, 1024) == [192, 96, 64, 32]
    assert thread_counts(1024, 4, 32, 1024) == [256, 128, 64, 32]
    assert thread_counts(49, 1, 32, 1024) == [64, 32] and thread_counts(10, 2, 32, 1024) == [8]
    assert thread_counts(50257, 1, 32, 1024) == [1024, 512] and thread_counts(50256, 4, 32, 1024) == [992, 512]
    assert thread_counts(65536, 4, 32, 1024) == []


@pytest.mark.parametrize(("m", "n"), [(2048, 768), (4096, 1024), (8192, 16384), (128, 50257)])
def test_a_thread_keeps_its_part_and_the_search_keeps_the_sketch(m: int, n: int) -> None:
    """A row of 50,257 floats is no accumulator of one thread; its parts are, and only they are allocated."""
    sketches = sketches_of(ROW_CASES["softmax"], m, n)
    assert 1 <= len(sketches) <= 12
    for sketch in sketches:
        bounds = infer_bounds(sketch)
        ((elements, size),) = accumulators(bounds).values()
        assert elements <= 2 * 99 + 2 and size == 4 * elements
        allocated = [s.buffer.size for s in stmts_of(te.lower(sketch).body) if isinstance(s, Alloc)]
        assert max(allocated) <= 99 and sum(allocated) >= elements


def test_a_sketch_is_one_program() -> None:
    """All is decided: kernels that are bound are not bound again, unrolled reductions have no limit to draw."""
    for sketch in nonempty(sketches_of(ROW_CASES["layer_norm"], 64, 256)):
        assert space_of(sketch, "cuda", HARDWARE["cuda"]).width == 0
        assert program_of(sketch).steps == sketch.steps


def test_the_policy_proposes_them() -> None:
    task = SearchTask(compute_dag=te.ComputeDAG(softmax(256, 512)), target="cuda", hardware_params=HARDWARE["cuda"])
    asked = [s for _ in range(3) for s in SketchPolicy(task, RandomModel(0), verbose=0, seed=3).ask(16)]
    found = [s for s in asked if any(isinstance(step, SetScope) for step in s.steps)]
    assert found
    steps = json.loads(json.dumps([to_json(step) for step in found[0].steps]))
    assert replay(task.compute_dag, map(from_json, steps)) == found[0]


# ------------------------------------------------------------------------------------------ what they compute


@pytest.mark.parametrize("name", ROW_CASES)
@pytest.mark.one_in(5)
def test_programs_compute_the_rows(name: str) -> None:
    """Rows of one, of prime length, of a warp less or more one; several rows a block, whose number does not divide."""
    case, rng = ROW_CASES[name], np.random.default_rng([16, len(name)])
    for m, n in SIZES:
        sketches = sketches_of(case, m, n)
        assert sketches
        for k in rng.permutation(len(sketches))[:PER_SIZE]:
            state = program_of(sketches[k])
            assert not differs(state, case, inputs_of(state, rng), run), (m, n, [to_json(s) for s in state.steps])


def special(rng: np.random.Generator, m: int, n: int) -> np.ndarray:
    """Rows with -inf, with nothing else, with NaN, with inf, and ordinary ones."""
    x = rng.standard_normal((m, n)).astype("float32")
    x[0, 5:], x[1], x[2, 3], x[3, n - 1] = -np.inf, -np.inf, np.nan, np.inf
    return x


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_special_values_are_kept(name: str) -> None:
    case, rng = ROW_CASES[name], np.random.default_rng(17)
    for m, n in ((6, 97), (5, 64)):
        for sketch in nonempty(sketches_of(case, m, n)[::2]):
            state = program_of(sketch)
            inputs = [special(rng, m, n), *inputs_of(state, rng)[1:]]
            assert not differs(state, case, inputs, run)


EMULATED = [("softmax", 5, 97), ("layer_norm", 6, 384), ("log_sum_exp", 7, 64), ("masked_softmax", 3, 33)]


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
@pytest.mark.parametrize(("name", "m", "n"), EMULATED)
def test_kernels_compute_the_rows(name: str, m: int, n: int) -> None:
    case, rng = ROW_CASES[name], np.random.default_rng(18)
    sketches = sketches_of(case, m, n)
    state = program_of(sketches[int(rng.integers(len(sketches)))])
    assert not differs(state, case, inputs_of(state, rng), emulated)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
@pytest.mark.parametrize("name", ROW_CASES)
def test_all_kernels_compute_the_rows(name: str) -> None:
    case, rng = ROW_CASES[name], np.random.default_rng(19)
    for m, n in SIZES:
        for sketch in nonempty(sketches_of(case, m, n)):
            state = program_of(sketch)
            assert not differs(state, case, inputs_of(state, rng), emulated), (m, n, sketch.steps)
