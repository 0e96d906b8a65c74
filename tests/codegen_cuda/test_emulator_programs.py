"""Emitted programs run as CUDA: random schedules and sketches compute the workload, and no thread does wrong."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor.sketch import generate_sketches
from codegen_cuda import CudaProgram, emit
from codegen_cuda.emulation.emulator import run, run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json, to_json
from tests.ansor.sketch_cases import HARDWARE
from tests.backward_reads import random_case
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import Oracle
from tests.schedule_fuzz import Fuzzer
from tests.te_lite.test_golden_logs import lines
from tests.workloads import WORKLOADS, conv2d_nchw, matmul

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")

PER_KIND = max(1, int(os.environ.get("ANSOR_FUZZ", "4")) // 4)
SEED = int(os.environ.get("ANSOR_FUZZ_SEED", "20261121"))
LARGER = {
    "matmul_half": lambda: matmul(32, 48, 40, "float16"),
    "matmul_bytes": lambda: matmul(32, 32, 64, "int8", "int32"),
    "conv2d_14": lambda: conv2d_nchw(1, 14, 16, 16, 3, 1, 1),
}
BUILDS = WORKLOADS | LARGER


@pytest.fixture(scope="module", params=sorted(BUILDS))
def oracle(request: pytest.FixtureRequest) -> Oracle:
    return Oracle(te.ComputeDAG(BUILDS[request.param]()), np.random.default_rng(SEED))


def emulated(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    run_program(emit(func), args)


@pytest.mark.one_in(2)
def test_random_schedules(oracle: Oracle) -> None:
    for i in nonempty(range(PER_KIND)):
        state, func = Fuzzer(oracle.dag, np.random.default_rng([SEED, i]), gpu=True).draw()
        assert oracle.mismatch(func, emulated) is None, [to_json(s) for s in state.steps]


def test_random_schedules_of_backward_reads() -> None:
    for number in nonempty(range(PER_KIND)):
        case = random_case([SEED, 2, number])
        state, func = Fuzzer(case.dag, np.random.default_rng([SEED, number]), gpu=True).draw()
        assert case.mismatch(func, emulated) is None, (case.chain, [to_json(s) for s in state.steps])


@pytest.mark.one_in(2)
def test_annotated_sketches(oracle: Oracle) -> None:
    sketches = generate_sketches(oracle.dag, "cuda", HARDWARE["cuda"])
    drawn = (
        drawn_program(sketch, "cuda", HARDWARE["cuda"], np.random.default_rng([SEED, i]))
        for sketch in sketches
        for i in range(PER_KIND)
    )
    for state in nonempty(state for state in drawn if state is not None):
        assert oracle.mismatch(te.lower(state), emulated) is None, [to_json(s) for s in state.steps]


@pytest.mark.long
def test_one_block_of_the_golden_log() -> None:
    """The programs of a TVM tuning run that have many blocks, each seen for its first block."""
    dag = te.ComputeDAG(matmul(1024, 1024, 1024))
    rng = np.random.default_rng(SEED)
    a, b = (rng.standard_normal((1024, 1024)).astype(np.float32) for _ in range(2))
    want = a.astype("float64") @ b
    seen = 0
    for steps in lines("cuda_h200"):
        program = emit(te.lower(replay(dag, map(from_json, steps))))
        (kernel,) = program.kernels
        if np.prod(kernel.grid) >= 256:
            arrays = [a, b, np.full_like(a, np.nan)]
            run(program, kernel.name, 1, kernel.block, [arrays[i] for i in kernel.arguments], kernel.dynamic_bytes)
            written = ~np.isnan(arrays[2])
            assert written.sum() * np.prod(kernel.grid) == want.size
            assert np.abs(arrays[2] - want)[written].max() < 1e-5 * np.abs(want).max()
            seen += 1
    assert seen >= 10


def tiled_matmul(seed: int) -> tuple[Oracle, CudaProgram]:
    """A sampled matrix product of blocks of several threads, its tiles in shared memory."""
    dag = te.ComputeDAG(matmul(32, 32, 32))
    (sketch, *_) = generate_sketches(dag, "cuda", HARDWARE["cuda"])
    rng = np.random.default_rng([SEED, seed])
    while True:
        state = drawn_program(sketch, "cuda", HARDWARE["cuda"], rng)
        assert state is not None
        program = emit(te.lower(state))
        (kernel,) = program.kernels
        trips = re.search(r"for \(int k\w* = 0; k\w* < (\d+)", program.source)
        if kernel.threads > 32 and program.source.count("__syncthreads") == 2 and trips and int(trips[1]) > 1:
            return Oracle(dag, np.random.default_rng(seed)), program


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("barrier", [0, 1])
@pytest.mark.one_in(3)
def test_every_barrier_of_a_tiled_matmul_is_needed(seed: int, barrier: int) -> None:
    oracle, program = tiled_matmul(seed)
    run_program(program, oracle.arguments())
    parts = program.source.split("__syncthreads();")
    without = "__syncthreads();".join(parts[: barrier + 1]) + ";" + "__syncthreads();".join(parts[barrier + 1 :])
    with pytest.raises(EmulatorError) as caught:
        run_program(replace(program, source=without), oracle.arguments())
    assert {f.kind for f in caught.value.findings} & {"race", "uninitialised"}


def test_programs_of_several_kernels_share_scratch_memory() -> None:
    oracle = Oracle(te.ComputeDAG(WORKLOADS["softmax"]()), np.random.default_rng(SEED))
    (sketch, *_) = generate_sketches(oracle.dag, "cuda", HARDWARE["cuda"])
    draws = (drawn_program(sketch, "cuda", HARDWARE["cuda"], np.random.default_rng([SEED, i])) for i in range(50))
    program = next(p for p in (emit(te.lower(s)) for s in draws if s is not None) if p.scratch)
    assert len(program.kernels) > 1
    args = oracle.arguments()
    report = run_program(program, args)
    assert oracle.compare(args) is None and report.accesses > 0
    with pytest.raises(EmulatorError) as caught:
        run_program(replace(program, kernels=program.kernels[1:]), oracle.arguments())
    assert caught.value.findings[0].kind == "uninitialised" and program.scratch[0].name in str(caught.value)


def test_arguments_must_fit() -> None:
    oracle, program = tiled_matmul(0)
    a, b, c = oracle.arguments()
    with pytest.raises(EmulatorError, match="one array per argument, got arrays=2"):
        run_program(program, [a, b])
    with pytest.raises(EmulatorError, match="dtype and size, got dtype='float64'"):
        run_program(program, [a, b.astype("float64"), c])
