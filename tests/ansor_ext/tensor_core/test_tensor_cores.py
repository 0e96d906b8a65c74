"""Kernels with `mma.sync`, `ldmatrix` and groups of `cp.async`: on the emulator, and through compilers."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor_ext.tensor_core import mma as table
from ansor_ext.tensor_core.mma import MMA, Mma
from codegen_cuda import compile_source, emit
from codegen_cuda.emulation.emulator import run, run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from codegen_cuda.emulation.inline_ptx import Address, Instruction, Vector, assemblies
from codegen_cuda.program.errors import CompileError
from te_lite.expr.dtype import SMALL_FLOATS
from te_lite.meaning.interp import run as interpret
from tests.ansor_ext.pipeline.test_pipeline import piped
from tests.ansor_ext.tensor_core.mma_kernels import pipelined, plain, plain_launch
from tests.ansor_ext.tensor_core.mma_schedules import PROGRAMS, left_out, multiplied
from tests.ansor_ext.tensor_core.test_mma import swapped
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER
from tests.oracle import Oracle

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
compiled = pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
SIZES = 32, 16, 64
OF_WARPS = [name for name, op in MMA.items() if op.warps == 1]


def drawn(op: Mma, sizes: tuple[int, int, int], seed: int = 0) -> list[np.ndarray]:
    """A, B, and C, which the product is added to."""
    m, n, k = sizes
    rng, shapes = np.random.default_rng(seed), ((m, k), (k, n), (m, n))
    dtypes = (*op.dtypes, op.sum.dtype)
    if op.sum.dtype == "int32":
        return [rng.integers(-128, 128, s).astype(t) for s, t in zip(shapes, dtypes, strict=True)]
    return [rng.standard_normal(s).astype(t) for s, t in zip(shapes, dtypes, strict=True)]


def as_stored(x: np.ndarray) -> np.ndarray:
    """The bits of small floats, which kernels keep in integers."""
    return x.view(f"u{x.itemsize}") if x.dtype.name in SMALL_FLOATS else x


def launch(op: Mma, source: str, arrays: list[np.ndarray]) -> np.ndarray:
    a, b, c = arrays
    out = c.copy()
    run(source, "k", *plain_launch(SIZES), [as_stored(a), as_stored(b), out])
    return out


def wrong(op: Mma, arrays: list[np.ndarray], got: np.ndarray) -> bool:
    """Whether a result is further from the exact one than its arithmetic explains.

    A sum is rounded once an instruction, to `u` of what is summed up; TF32 operands are cut to what is read of them.
    """
    a, b, c = [*multiplied(op, *arrays[:2]), arrays[2].astype("float64")]
    exact = a @ b + c
    if op.sum.dtype == "int32":
        return not np.array_equal(got, exact)
    u = 2.0**-11 if op.sum.dtype == "float16" else 2.0**-24
    bound = (a.shape[1] // op.k * u + left_out(op.element)) * (np.abs(a) @ np.abs(b) + np.abs(c))
    return not bool((np.abs(got - exact) <= bound * 1.01).all())


@emulated
@pytest.mark.parametrize("name", OF_WARPS)
def test_products(name: str) -> None:
    op = MMA[name]
    arrays = drawn(op, SIZES)
    assert not wrong(op, arrays, launch(op, plain(op, SIZES), arrays))


@emulated
def test_tf32_is_as_near_to_the_floats_as_promised() -> None:
    op = table.mma("m16n8k8_tf32_f32")
    a, b, c = drawn(op, SIZES)
    got = launch(op, plain(op, SIZES), [a, b, c])
    exact, size = a.astype("float64") @ b + c, np.abs(a).astype("float64") @ np.abs(b)
    assert (np.abs(got - exact) <= 1.31 * 2.0**-10 * size + 1e-6).all() and np.abs(got - exact).max() > 1e-5


# What a wrong kernel has instead: halves of the tile exchanged in an operand, or one lane off.
FAULTS = {
    "a, halves": ("8 * (i >> 1 & 1)) * K + k0 + 2 * q + (i & 1) + 8 * (i >> 2)",
                  "8 * (i >> 2)) * K + k0 + 2 * q + (i & 1) + 8 * (i >> 1 & 1)"),
    "a, a lane off": ("a[i] = A[(m0 + g", "a[i] = A[(m0 + ((lane + 1) >> 2 & 7)"),
    "b, halves": ("(i & 1) + 8 * (i >> 1)) * N", "(i >> 1) + 8 * (i & 1)) * N"),
    "b, a lane off": ("* N + n0 + g]", "* N + n0 + ((lane ^ 4) >> 2)]"),
    "d, halves": ("8 * (i >> 1)) * N + n0 + 2 * q + (i & 1)] = d", "8 * (i & 1)) * N + n0 + 2 * q + (i >> 1)] = d"),
    "d, a lane off": ("n0 + 2 * q + (i & 1)] = d[i]", "n0 + 2 * (lane + 1 & 3) + (i & 1)] = d[i]"),
    "operands of the instruction": ('"r"(x[0]), "r"(x[1])', '"r"(x[1]), "r"(x[0])'),
    "sums of the instruction": ("{%0, %1, %2, %3};", "{%0, %1, %3, %2};"),
}  # fmt: skip


@emulated
@pytest.mark.parametrize("fault", FAULTS)
def test_a_kernel_with_a_wrong_map_is_caught(fault: str) -> None:
    op = table.mma("m16n8k16_f16_f32")
    arrays, source = drawn(op, SIZES), plain(op, SIZES)
    old, new = FAULTS[fault]
    assert old in source
    planted = source.replace(old, new)
    try:
        assert wrong(op, arrays, launch(op, planted, arrays))
    except EmulatorError as e:
        assert {f.kind for f in e.findings} == {"race"}  # lanes store what others have read as theirs


@emulated
@pytest.mark.parametrize("operand", "abd")
@pytest.mark.parametrize("name", ["m16n8k8_tf32_f32", "m16n8k32_s8_s32"])
def test_a_table_with_a_wrong_map_is_caught(name: str, operand: str, monkeypatch: pytest.MonkeyPatch) -> None:
    op = MMA[name]
    broken = replace(op, **{operand: swapped(op.fragment(operand))})
    monkeypatch.setattr("ansor_ext.tensor_core.emulated_ptx._BY_PTX", {op.ptx: broken})
    arrays = drawn(op, SIZES)
    assert wrong(op, arrays, launch(op, plain(op, SIZES), arrays))


# ------------------------------------------------------------------------- shared memory, ldmatrix, groups of copies


def pipelined_run(source: str) -> bool:
    """Whether the pipelined kernel gives a wrong product."""
    op = table.mma("m16n8k16_f16_f32")
    a, b, c = drawn(op, (64, 64, 128), 1)
    c[:] = 0
    out = np.full_like(c, np.nan)
    run(source, "k", 2, 64, [a, b, out])
    return wrong(op, [a, b, c], out)


@emulated
def test_three_stages() -> None:
    assert not pipelined_run(pipelined(table.mma("m16n8k16_f16_f32")))


@emulated
@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ('"n"(STAGES - 2)', '"n"(STAGES - 1)', "uninitialised"),  # a tile that has not arrived
        ("__syncthreads();  // arrived", "", "uninitialised"),  # tiles that others fetched
        ("const int next = t + STAGES - 1;", "const int next = t + STAGES;", "uninitialised"),
        ("b[t % STAGES] + row * 64", "b[t % STAGES] + 4 + row * 64", "misaligned"),
        ("if (next < K / 32)", "if (true)", "out of bounds"),
    ],
)
def test_faults_of_the_pipeline(old: str, new: str, kind: str) -> None:
    source = pipelined(table.mma("m16n8k16_f16_f32"))
    assert old in source
    with pytest.raises(EmulatorError) as caught:
        pipelined_run(source.replace(old, new))
    assert kind in {f.kind for f in caught.value.findings}


@emulated
def test_all_lanes_of_a_warp_must_come() -> None:
    op = table.mma("m16n8k8_tf32_f32")
    source, arrays = plain(op, SIZES), drawn(op, SIZES)
    call = "mma_m16n8k8_tf32_f32(d, a, b);"
    with pytest.raises(EmulatorError, match="divergence"):
        launch(op, source.replace(call, f"if (lane != 7) {call}"), arrays)
    with pytest.raises(EmulatorError, match="a warp of fewer than 32 threads"):
        run(source, "k", 1, 48, arrays)


# --------------------------------------------------------------------------------------------------- reading PTX


def test_statements_are_read() -> None:
    source = r"""// asm("a;");
      x = "asm(";  asm volatile("mma.x {%0, %1},\n\t {%2}, [%3], 16;" "wait 1;"
        : "+f"(d[f(0, 1)]), "=r"(y) : "r"(a ? b : c), "l"(p) : "memory");"""
    (found,) = assemblies(source)
    operands = (Vector(("(d[f(0, 1)])", "(y)")), Vector(("(a ? b : c)",)), Address("(p)"), "16")
    assert found.instructions == (Instruction("mma.x", operands), Instruction("wait", ("1",)))
    assert source[found.start : found.end].startswith("asm volatile") and source[found.end :] == ";"


@emulated
def test_an_unknown_instruction_is_named() -> None:
    source = 'extern "C" __global__ void k(float *x) { asm("foo.bar.f32 %0, %0;" : "+f"(x[0])); }'
    with pytest.raises(EmulatorError, match="the_emulator_does_not_know_foo_bar_f32"):
        run(source, "k", 1, 32, [np.zeros(4, np.float32)])


# ---------------------------------------------------------------------------------------------------- compilers


@compiled
@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_90", marks=pytest.mark.long)])
def test_compilers_take_them(arch: str) -> None:
    able = [name for name in OF_WARPS if MMA[name].least <= int(arch[3:])]
    for source in (*[plain(MMA[name], SIZES) for name in able], pipelined(table.mma("m16n8k16_f16_f32"))):
        (kernel,) = compile_source(source, arch).resources
        assert kernel.spills == 0 and kernel.registers < 128


# ----------------------------------------------------------------------------------------------------- schedules


@emulated
@pytest.mark.parametrize(
    ("name", "tiles"),
    [
        ("cut tiles", 3),
        ("vectors", 3),
        *[pytest.param(x, 5, marks=pytest.mark.long) for x in ("three loops", "vectors")],
    ],
)
def test_pipelines_wait_for_the_group_they_need(name: str, tiles: int) -> None:
    state = piped(name, tiles)
    program, oracle = emit(te.lower(state)), Oracle(state.dag, np.random.default_rng(2))
    arguments = oracle.arguments()
    run_program(program, arguments)
    assert oracle.compare(arguments) is None
    for left in {int(x) for x in re.findall(r"_all_but<(\d)>\(\)", program.source)}:
        late = program.source.replace(f"_all_but<{left}>()", f"_all_but<{left + 1}>()")
        with pytest.raises(EmulatorError) as caught:
            run_program(replace(program, source=late), oracle.arguments())
        assert "uninitialised" in {f.kind for f in caught.value.findings}


OFTEN = ("half sums", "bfloat16", "int8", "matrices, swizzled", "tf32, beyond the edge")
"""What `make test` runs."""
LONG = ("half", "tf32, ahead", "matrices, turned", "tf32x3", "beyond the edge")
"""What `make test-long` adds; the others are for `make fuzz`."""
MARKS = {**dict.fromkeys(OFTEN, ()), **dict.fromkeys(LONG, pytest.mark.long)}
SOME = [pytest.param(name, marks=MARKS.get(name, pytest.mark.slow)) for name in PROGRAMS]


@emulated
@pytest.mark.parametrize("name", SOME)
def test_schedules_on_the_emulator(name: str) -> None:
    program = PROGRAMS[name]
    tensors = program.tensors()
    func = te.lower(program.schedule(tensors), tensors)
    a, b = program.inputs(np.random.default_rng(1))
    by_emulator, by_interpreter = [np.full(program.sizes[:2], 99, program.op.sum.dtype) for _ in range(2)]
    run_program(emit(func), [a, b, by_emulator])
    interpret(func, [a, b, by_interpreter])
    assert program.wrong(a, b, by_emulator) is None and np.array_equal(by_emulator, by_interpreter)


@compiled
@pytest.mark.parametrize("name", SOME)
def test_schedules_keep_fragments_in_registers(name: str) -> None:
    program = PROGRAMS[name]
    tensors = program.tensors()
    arch = "sm_80" if program.op.least == 80 else "sm_90"
    (kernel,) = compile_source(emit(te.lower(program.schedule(tensors), tensors)).source, arch).resources
    assert kernel.spills == 0 and kernel.stack == 0


@compiled
def test_older_devices_are_refused() -> None:
    program = PROGRAMS["half"]
    tensors = program.tensors()
    with pytest.raises(CompileError, match=r"m16n8k16_f16_f32 needs compute capability 8.0"):
        compile_source(emit(te.lower(program.schedule(tensors), tensors)).source, "sm_75")


def test_fragments_are_loaded_a_step_ahead_where_tiles_are() -> None:
    """In pipelines of an even number of steps; the first step of the next tile stands behind its barrier."""
    for name, program in PROGRAMS.items():
        tensors = program.tensors()
        source = emit(te.lower(program.schedule(tensors), tensors)).source
        steps = program.block[2] // program.op.k
        assert ("_local_ahead[" in source) == (program.tiles > 1 and steps % 2 == 0), name
    tiled = PROGRAMS["matrices, swizzled"]
    tensors = tiled.tensors()
    iteration = emit(te.lower(tiled.schedule(tensors), tensors)).source.partition("for (int k_0 = 0")[2]
    (ahead,) = re.findall(r"__syncthreads\(\);(.*?)mma_m16n8k16", iteration, re.S)
    assert "A_shared_local_ahead" in ahead and "B_shared_local_ahead" in ahead and "copy_async<" not in ahead
