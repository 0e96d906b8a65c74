"""Asynchronous copies: what becomes one, what the emulator says of faults around them, what compilers make of it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor.sketch import generate_sketches
from ansor_ext.pipeline.async_copy import WAIT, moved
from ansor_ext.pipeline.double_buffer import double_buffered
from codegen_cuda import CudaProgram, compile_source, emit, usage
from codegen_cuda.emulation.emulator import run, run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from te_lite.expr.expr import Select, Var, const, if_then_else
from te_lite.loops.stmt import Buffer
from tests.ansor.sketch_cases import HARDWARE
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER
from tests.codegen_cuda.sass import LDGSTS, count
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import Oracle
from tests.te_lite.tiled_programs import CONVOLUTIONS, PROGRAMS, Product
from tests.workloads import conv2d_nchw, matmul

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
compiled = pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
AHEAD = [name for name in PROGRAMS if name != "one turn"]

SAMPLED = {
    "half": lambda: matmul(32, 48, 40, "float16"),
    "bytes": lambda: matmul(32, 32, 64, "int8", "int32"),
    "double": lambda: matmul(17, 24, 20, "float64"),
    "padded": lambda: conv2d_nchw(2, 9, 6, 8, 3, 2, 1),
}


def emulate(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    run_program(emit(func), args)


def emulate_plain(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    """With the helpers that devices before sm_80 get."""
    program = emit(func)
    source = program.source.replace("copy_async", "copy_plain").replace("EMU_ASYNC", "NEVER")
    run_program(replace(program, source=source), args)


def sizes(source: str) -> set[int]:
    """The bytes of the asynchronous copies of a kernel."""
    return {int(n) for n in re.findall(r"copy_async<(\d+)>\(", source[source.rindex("#endif") :])}


# ----------------------------------------------------------------------------------------------------- results


@emulated
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(3)
def test_programs(name: str) -> None:
    state = PROGRAMS[name].state()
    assert Oracle(state.dag, np.random.default_rng(2)).mismatch(te.lower(state), emulate) is None


@emulated
@pytest.mark.parametrize("name", ["cut tiles", "wide padding", "vectors"])
def test_programs_on_older_devices(name: str) -> None:
    state = PROGRAMS[name].state()
    assert Oracle(state.dag, np.random.default_rng(2)).mismatch(te.lower(state), emulate_plain) is None


@emulated
@pytest.mark.parametrize("name", SAMPLED)
@pytest.mark.one_in(3)
def test_sampled_sketches(name: str) -> None:
    dag = te.ComputeDAG(SAMPLED[name]())
    oracle = Oracle(dag, np.random.default_rng(2))
    found = set()
    for sketch in generate_sketches(dag, "cuda", HARDWARE["cuda"]):
        ahead = double_buffered(sketch)
        assert ahead is not None
        for seed in range(5):
            state = drawn_program(ahead, "cuda", HARDWARE["cuda"], np.random.default_rng(seed))
            assert state is not None
            func = te.lower(state)
            assert oracle.mismatch(func, emulate) is None
            source = emit(func).source
            found |= sizes(source) if WAIT in source else set()
    assert found, "none of the sampled programs copies asynchronously"


def test_a_turn_has_one_barrier() -> None:
    for name in nonempty(AHEAD):
        source = emit(te.lower(PROGRAMS[name].state())).source
        kernel = source[source.rindex("#endif") :]
        # operands that are read a step ahead begin with a barrier of their own
        first = 1 if "_operands" in kernel else 0
        assert kernel.count(WAIT) == first + 1
        assert kernel.count("__syncthreads();") == first + (2 if name == "run again, odd turns" else 1)


# ----------------------------------------------------------------------------------------- what is a copy


def test_copies_are_as_wide_as_both_ends_allow() -> None:
    assert sizes(emit(te.lower(CONVOLUTIONS["vectors"].state())).source) == {16}
    assert sizes(emit(te.lower(CONVOLUTIONS["three loops"].state())).source) == {4}
    # pairs of lanes whose padding differs go one by one
    assert sizes(emit(te.lower(CONVOLUTIONS["wide padding"].state())).source) == {4}


def test_single_halves_are_stored_as_usual() -> None:
    dag = te.ComputeDAG(matmul(16, 16, 24, "float16"))
    state = Product(16, 16, 24, 4, 4, 8).state()
    from_floats = emit(te.lower(state)).source
    halves = te.lower(te.schedule.replay.replay(dag, state.steps))
    source = emit(halves).source
    assert sizes(from_floats) == {4} and not sizes(source) and WAIT in source


def test_values_that_are_moved() -> None:
    data, local = Buffer("data", "float32", (8,)), Buffer("local", "float32", (8,), "local")
    i = Var("i")
    inside, more = i < 5, i > 1
    read = data[i]
    assert moved(read) == (read, None)
    assert moved(if_then_else(inside, read, 0.0)) is not None
    found = moved(if_then_else(inside, Select(more, read, const(0.0, "float32")), 0.0))
    assert found is not None and found[0] is read and "&&" in te.loops.stmt_text.pretty(found[1])  # type: ignore[arg-type]
    others = [local[i], read + 1.0, if_then_else(inside, read, 1.0), if_then_else(inside, read, -0.0),
              if_then_else(inside, 0.0, read), const(0.0, "float32")]  # fmt: skip
    assert [moved(e) for e in others] == [None] * len(others)


# -------------------------------------------------------------------------------------------- planted faults


def without_wait(kernel: str) -> str:
    return kernel.replace(WAIT, "")


def without_barrier(kernel: str) -> str:
    return re.sub(re.escape(WAIT) + r"\s*__syncthreads\(\);", WAIT, kernel)


def wait_after_barrier(kernel: str) -> str:
    return re.sub(re.escape(WAIT) + r"\s*__syncthreads\(\);", "__syncthreads();" + WAIT, kernel)


def same_tile(kernel: str) -> str:
    return re.sub(r"\(\((\w+) \+ 1\) & 1\)", r"(\1 & 1)", kernel)


def parts(program: CudaProgram) -> tuple[str, str]:
    at = program.source.rindex("#endif")
    return program.source[:at], program.source[at:]


@emulated
@pytest.mark.parametrize("fault", [without_wait, without_barrier, wait_after_barrier, same_tile])
@pytest.mark.parametrize("name", ["cut tiles", "virtual threads", "three loops", "vectors"])
@pytest.mark.one_in(3)
def test_faults_are_found(name: str, fault: Callable[[str], str]) -> None:
    state = PROGRAMS[name].state()
    program = emit(te.lower(state))
    head, kernel = parts(program)
    assert fault(kernel) != kernel
    with pytest.raises(EmulatorError) as caught:
        run_program(
            replace(program, source=head + fault(kernel)), Oracle(state.dag, np.random.default_rng(2)).arguments()
        )
    assert {f.kind for f in caught.value.findings} <= {"race", "uninitialised"}


KERNEL = """
extern "C" __global__ void k(const float *a, float *out) {
  __shared__ __align__(16) float s[64];
  const int t = threadIdx.x;
  BODY
}
"""
CLEAN = "copy_async<4>(s + t, a + t, t > 3); copy_async_wait(); __syncthreads(); out[t] = s[31 - t];"
FAULTS = {
    "own data before they are there": ("copy_async_wait(); __syncthreads();", "", "uninitialised"),
    "a store meanwhile": ("copy_async_wait();", "s[t] = 1.0f; copy_async_wait();", "race"),
    "two copies to one place": ("copy_async_wait();", "copy_async<4>(s + t, a); copy_async_wait();", "race"),
    "data of others": ("__syncthreads();", "", "uninitialised"),
    "no barrier after": ("copy_async_wait(); __syncthreads();", "__syncthreads(); copy_async_wait();", "race"),
    "from behind the array": ("a + t, t > 3", "a + t + 1, true", "out of bounds"),
    "to behind the tile": ("s + t,", "s + t + 40,", "out of bounds"),
    "wide and misaligned": ("copy_async<4>(s + t, a + t, t > 3)", "if (t < 7) copy_async<16>(s + t, a + 4 * t)",
                            "misaligned"),
}  # fmt: skip


def on_emulator(body: str, check: bool = True) -> np.ndarray:
    a, out = np.arange(32, dtype="float32"), np.full(32, np.nan, "float32")
    run(KERNEL.replace("BODY", body), "k", 1, 32, [a, out], check=check)
    return out


@emulated
@pytest.mark.parametrize("check", [True, False])
def test_copies_arrive_and_padding_is_zero(check: bool) -> None:
    want = np.where(np.arange(32) > 3, np.arange(32), 0)[::-1]
    assert np.array_equal(on_emulator(CLEAN, check), want)
    late = CLEAN.replace("copy_async_wait();", "", 1)
    assert np.isnan(on_emulator(late, False)).all(), "data must not be there without a wait"


@emulated
@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_single_copies(name: str) -> None:
    old, new, kind = FAULTS[name]
    assert CLEAN.count(old) == 1
    with pytest.raises(EmulatorError) as caught:
        on_emulator(CLEAN.replace(old, new))
    assert kind in {f.kind for f in caught.value.findings}


# --------------------------------------------------------------------------------------------------- compilers


@compiled
@pytest.mark.parametrize("name", ["cut tiles", "virtual threads", "three loops", "vectors"])
def test_compiled_programs_copy_without_registers(name: str) -> None:
    ahead, plain = [emit(te.lower(PROGRAMS[name].state(ahead=x))) for x in (True, False)]
    for arch, any_there in (("sm_75", False), ("sm_80", True), ("sm_90", True)):
        found, before = compile_source(ahead.source, arch), compile_source(plain.source, arch)
        assert (count(found.cubin, LDGSTS) > 0) == any_there and count(before.cubin, LDGSTS) == 0
        assert sum(k.spills for k in found.resources) <= sum(k.spills for k in before.resources)


@compiled
def test_shared_memory_is_what_was_counted() -> None:
    for name in nonempty(AHEAD):
        func = te.lower(PROGRAMS[name].state())
        (kernel,) = compile_source(emit(func).source, "sm_80").resources
        assert 0 <= usage(func)[0].shared_bytes - kernel.shared < 16
