"""Programs for all sizes as CUDA: emulated, they compute what NumPy says, on grids that follow the sizes."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ansor
import ansor_ext.open_sizes.cuda
import codegen_cuda.driver.module
import te_lite as te
from ansor.core.errors import GraphError
from ansor.sketch import generate_sketches
from ansor_ext.open_sizes.closed import closed
from ansor_ext.open_sizes.grids import closed_program, grid_at
from codegen_cuda import CudaKernel, CudaProgram, compile_source, emit
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from codegen_cuda.program.errors import DeviceError
from codegen_cuda.program.facts import program_facts
from te_lite.meaning.interp import run
from te_lite.schedule.replay import replay
from te_lite.verify.verify import verify
from tests.ansor_ext.open_sizes.gpu_tiles import tiled
from tests.ansor_ext.open_sizes.programs import CASES, Case, arrays, points
from tests.codegen_cuda.emulated_device import EmulatedDevice
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.schedule_fuzz import Fuzzer

SEED = 20261202
TARGET = ansor.Target("cuda")
HARDWARE = ansor.HardwareParams.for_target(TARGET)


@pytest.fixture(params=sorted(CASES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def check(case: Case, program: CudaProgram, sizes: tuple[int, ...]) -> None:
    *given, out = arrays(case, sizes, np.random.default_rng(sizes))
    run_program(program, [*given, out])
    np.testing.assert_allclose(out, case.expected(*given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("draw", range(2))
def test_random_schedules(name: str, draw: int) -> None:
    """Bound loops, splits by constants, caches in shared memory, stages computed at loops, pipelines."""
    case = CASES[name](1, 20)
    state, _ = Fuzzer(te.ComputeDAG(case.tensors), np.random.default_rng([SEED, draw]), True).draw()
    func = te.lower(state)
    program = emit(func)
    for sizes in nonempty(points(case, 1, 20)):
        check(case, program, sizes)
    fixed = closed(func, dict(zip(case.sizes, sizes, strict=True)))
    verify(fixed)
    *given, out = arrays(case, sizes, np.random.default_rng(1))
    run(fixed, [*given, out])
    np.testing.assert_allclose(out, case.expected(*given), rtol=1e-5, atol=1e-5)


def test_programs_of_the_search(name: str) -> None:
    """What the GPU policy makes of the greatest sizes, for all: tiles in shared memory, cooperative fetches."""
    most = 33
    fixed, case = te.ComputeDAG(CASES[name](most, most).tensors), CASES[name](2, most)
    for sketch in nonempty(generate_sketches(fixed, TARGET, HARDWARE)):
        drawn = drawn_program(sketch, TARGET, HARDWARE, np.random.default_rng(SEED))
        assert drawn is not None
        program = emit(te.lower(replay(te.ComputeDAG(case.tensors), drawn.steps)))
        for sizes in nonempty(itertools.product((2, 17, most), repeat=len(case.sizes))):
            check(case, program, sizes)


def test_the_ends_of_a_large_range(name: str) -> None:
    case = CASES[name](3, 300)
    state, _ = Fuzzer(te.ComputeDAG(case.tensors), np.random.default_rng([SEED, 99]), True).draw()
    program = emit(te.lower(state))
    for sizes in nonempty(itertools.product((3, 300), repeat=len(case.sizes))):
        check(case, program, sizes)


@pytest.mark.parametrize("fuse", [False, True])
def test_grids_follow_sizes(fuse: bool) -> None:
    case, func = tiled(200, fuse)
    program = emit(func)
    assert "A[n, 12] float32, B[12, 10] float32, D[n, 10] float32" in program.source
    assert "float *__restrict__ D, int n) {" in program.source
    grid = "(n + 15)//16*2 x 1 x 1" if fuse else "(n + 15)//16 x 2 x 1"
    assert f"default_function_kernel0: grid {grid}, block 16 x 1 x 1" in program.source
    sizes = {case.sizes[0]: 33}
    assert grid_at(program.kernels[0], sizes) == ((6, 1, 1) if fuse else (3, 2, 1))
    assert closed_program(program, sizes).args[0].shape == (33, 12)
    for n in nonempty((1, 15, 16, 17, 200)):
        check(case, program, (n,))


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
def test_nvrtc_compiles_it() -> None:
    assert compile_source(emit(tiled(4096)[1]).source, "sm_80").cubin


def test_the_greatest_size_costs_nothing_to_prove() -> None:
    """The kernel is the same, and as many steps make it: nothing is tried out."""
    small, large = [emit(tiled(most)[1]).source for most in (64, 1 << 20)]
    assert small == large


def test_indices_are_as_wide_as_the_greatest_sizes_need() -> None:
    """Of a matrix of 2^17 rows and columns they do not fit 32 bits."""
    wide, narrow = [emit(te.lower(te.ComputeDAG(CASES["turned_around"](1, most).tensors).init_state)).source
                    for most in (1 << 17, 1 << 10)]  # fmt: skip
    assert "(long long)n" in wide
    assert "long long" not in narrow


def test_a_kernel_without_blocks_is_not_launched() -> None:
    n = te.size_var("n", 1, 64)
    kernel = CudaKernel("k", (3, 1, 1), (16, 1, 1), (), 0, 0, (), (te.floordiv(n - 5, 16), te.const(1), te.const(1)))
    assert [grid_at(kernel, {n: at}) for at in (1, 21, 64)] == [(0, 1, 1), (1, 1, 1), (3, 1, 1)]
    program = CudaProgram("p", "", (), (kernel,), (), (), (n,))
    assert [len(closed_program(program, {n: at}).kernels) for at in (1, 21)] == [0, 1]


def test_vectors_need_rows_of_whole_vectors() -> None:
    """Rows of 12 elements are read four at a time; rows as long as a size says are not, whatever it is."""
    assert "(const float4 *)(A + " in emit(tiled(64)[1]).source
    n = te.size_var("n", 4, 64)
    for width, whole in nonempty(((12, True), (n, False))):
        a = te.placeholder((n, width), name="A")
        b = te.compute((n, 4), lambda i, j, a=a: a[i, j] + 1.0, name="B")
        s = te.create_schedule(b)
        s[b].bind(b.op.axis[0], te.thread_axis("blockIdx.x"))
        s[b].vectorize(b.op.axis[1])
        assert ("const float4 *)(A" in emit(te.lower(s, [a, b])).source) == whole


def test_arrays_that_do_not_fit_are_refused() -> None:
    program = emit(tiled(64)[1])
    b = np.ones((12, 10), "float32")
    for rows, got in nonempty(((65, "got 65"), (0, "got 0"))):
        with pytest.raises(EmulatorError, match=rf"argument 0 \(A\[n, 12\]\): n must be 1 to 64, .*{got}"):
            run_program(program, [np.ones((rows, 12), "float32"), b, np.ones((rows, 10), "float32")])
    with pytest.raises(EmulatorError, match=r"D\[n, 10\]\): n must be 1 to 64, the same in all arguments, got 3"):
        run_program(program, [np.ones((2, 12), "float32"), b, np.ones((3, 10), "float32")])


def test_what_is_not_a_function_in_this_process_is_refused() -> None:
    func = tiled(64)[1]
    with pytest.raises(GraphError, match="a program of open sizes is a function of arrays in this process"):
        program_facts(emit(func))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> EmulatedDevice:
    """A device in the emulator, for which the text is the machine code."""
    found = EmulatedDevice()
    for module in (codegen_cuda.driver.module, ansor_ext.open_sizes.cuda):
        monkeypatch.setattr(module, "open_device", lambda: found)

    def compiled(func: te.LoweredFunc, arch: str) -> tuple[CudaProgram, Any]:
        program = emit(func)
        return program, SimpleNamespace(cubin=program.source.encode())

    monkeypatch.setattr(ansor_ext.open_sizes.cuda, "compiled_program", compiled)
    return found


def two_kernels(most: int) -> tuple[Case, te.LoweredFunc]:
    """Sums of rows by a kernel, what they are taken from by another one, each with a grid of its own."""
    case = CASES["open_columns"](1, most)
    _, d = case.tensors
    s = te.create_schedule(d)
    total = next(t for t in d.op.input_tensors() if t.name == "S")
    s[total].bind(total.op.axis[0], te.thread_axis("blockIdx.x"))
    outer, inner = s[d].split(d.op.axis[1], factor=8)
    s[d].bind(d.op.axis[0], te.thread_axis("blockIdx.y"))
    s[d].bind(outer, te.thread_axis("blockIdx.x"))
    s[d].bind(inner, te.thread_axis("threadIdx.x"))
    return case, te.lower(s, list(case.tensors))


def test_functions_of_arrays(device: EmulatedDevice) -> None:
    """One module, called for several sizes in turn; kernels have grids of their own, and scratch memory is shared."""
    case, func = two_kernels(40)
    module = ansor.build(func, target="cuda -arch=sm_80")
    for n in nonempty((3, 40, 8, 3, 17)):
        *given, out = arrays(case, (n,), np.random.default_rng(n))
        module(*given, out)
        np.testing.assert_allclose(out, case.expected(*given), rtol=1e-5, atol=1e-5)
        calls = module.at([*given, out])._load().launches([device.put(x) for x in (*given, out)])
        assert [(tuple(grid), values[-1]) for _, grid, _, values, _ in calls] == [
            ((5, 1, 1), n),
            ((-(-n // 8), 5, 1), n),
        ]
    assert len(module.time(*given, out, repeat=2).results) == 1
    with pytest.raises(DeviceError, match=r"argument 0 \(A\[5, n\]\): n must be 1 to 40, the same .* got 41"):
        module(np.ones((5, 41), "float32"), np.ones((5, 41), "float32"))
    with pytest.raises(DeviceError, match=r"2 arrays are needed \(A\[5, n\], D\[5, n\]\), got 1"):
        module(np.ones((5, 4), "float32"))
    with pytest.raises(DeviceError, match="A: an array of"):
        module(np.ones((4, 4), "float32"), np.ones((5, 4), "float32"))


def test_arrays_that_are_only_read_may_be_read_only(device: EmulatedDevice) -> None:
    """They are not copied back; a result that cannot be written is refused before anything runs."""
    case, func = tiled(64)
    module = ansor.build(func, target="cuda -arch=sm_80")
    *given, out = arrays(case, (9,), np.random.default_rng(0))
    for array in given:
        array.setflags(write=False)
    module(*given, out)
    np.testing.assert_allclose(out, case.expected(*given), rtol=1e-4, atol=1e-4)
    out.setflags(write=False)
    with pytest.raises(DeviceError, match=r"^D: is written, it must not be read-only$"):
        module(*given, out)
    with pytest.raises(DeviceError, match=r"^A: an array of \[1, 12\] float32 is needed, got \[\[1\.0, "):
        module([[1.0] * 12], *given[1:], np.empty((1, 10), "float32"))
