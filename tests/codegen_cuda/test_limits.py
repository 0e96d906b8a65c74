"""Limits are counted before compiling, as the emitter and ptxas will find them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.sketch import generate_sketches
from codegen_cuda import CompileError, Limits, check_limits, compile_source, emit, usage
from te_lite.expr.expr import Var, const
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, LoweredFunc, Store, seq, stmts_of
from tests.codegen_cuda.golden_states import COUNT, golden_func
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER, func, kernel, nest, sum_of, v
from tests.codegen_cuda.test_emit_reduce import reduction
from tests.drawn_programs import drawn_program
from tests.workloads import matmul

HARDWARE = HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32)
U, V = ForKind.UNROLLED, ForKind.VECTORIZED


def launch(*axes: tuple[str, int]) -> LoweredFunc:
    a = Buffer("A", "float32", (4,))
    return func([a], kernel([(tag, Var(tag), n) for tag, n in axes], Store(a, const(0), const(1, "float32"))), "p")


def shared(dtype: str, size: int) -> LoweredFunc:
    (t,) = v("t")
    a, s = Buffer("A", "float32", (4,)), Buffer("s", dtype, (size,), "shared")
    body = Alloc(s, seq(Store(s, t, const(0, dtype)), Store(a, const(0), te.cast("float32", s[t]))))
    return func([a], kernel([("threadIdx.x", t, 1)], body), "p")


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ((("threadIdx.x", 1025),), "p_kernel0: threads of a block: at most 1024, got 1025"),
        ((("threadIdx.x", 64), ("threadIdx.y", 17)), "p_kernel0: threads of a block: at most 1024, got 1088"),
        ((("threadIdx.z", 65),), "p_kernel0: threadIdx.z: at most 64, got 65"),
        ((("blockIdx.y", 65536), ("threadIdx.x", 2)), "p_kernel0: blockIdx.y: at most 65535, got 65536"),
        ((("blockIdx.z", 65536),), "p_kernel0: blockIdx.z: at most 65535, got 65536"),
        ((("blockIdx.x", 2**31),), "p_kernel0: blockIdx.x: at most 2147483647, got 2147483648"),
    ],
)
def test_launch_shapes(axes: tuple[tuple[str, int], ...], sentence: str) -> None:
    assert sentence in check_limits(launch(*axes), Limits())
    allowed = [(tag, n if n <= 2 else n // 2) for tag, n in axes]
    assert check_limits(launch(*allowed), Limits()) == []


@pytest.mark.parametrize(("dtype", "size"), [("float32", 12288), ("float64", 6144), ("int8", 49152)])
def test_shared_memory_and_what_a_device_grants_on_request(dtype: str, size: int) -> None:
    assert check_limits(shared(dtype, size), Limits()) == []
    (found,) = check_limits(shared(dtype, size + 1), Limits())
    assert found == "p_kernel0: bytes of shared memory of a block: at most 49152, got 49168"
    assert check_limits(shared(dtype, size + 1), Limits.of_architecture("sm_90")) == []


def test_the_work_space_of_reductions_counts() -> None:
    f = reduction((98,), 0, 98, sum_of("float64"))
    assert usage(f)[0].shared_bytes == 98 * 8 == emit(f).kernels[0].shared_bytes


def test_vector_loops_local_memory_and_code_size() -> None:
    t, i, j = v("t", "i", "j")
    a, local = Buffer("A", "float32", (1 << 20,)), Buffer("local", "float32", (1 << 18,), "local")
    one = const(1, "float32")
    vector = func([a], kernel([("threadIdx.x", t, 2)], nest((i, 64, V), Store(a, t * 64 + i, one))), "p")
    assert check_limits(vector, Limits()) == ["p_kernel0: bytes of a vectorized loop: at most 128, got 256"]
    body = Alloc(local, seq(nest((i, 1 << 18, ForKind.SERIAL), Store(local, i, one)), Store(a, t, local[t])))
    stack = func([a], kernel([("threadIdx.x", t, 2)], body), "p")
    (found,) = check_limits(stack, Limits())
    assert found == "p_kernel0: bytes of local memory of a thread: at most 524288, got 1048576"
    code = func([a], kernel([("threadIdx.x", t, 2)], nest((i, 512, U), (j, 512, U), Store(a, i * 512 + j, one))), "p")
    assert check_limits(code, Limits()) == ["p_kernel0: statements after unrolling: at most 65536, got 262144"]


@pytest.mark.parametrize("k", range(COUNT))
@pytest.mark.one_in(5)
def test_no_program_that_tvm_measured_is_masked_out(k: int) -> None:
    assert check_limits(golden_func(k), Limits()) == []


def test_sampled_programs_keep_to_the_limits() -> None:
    dag = te.ComputeDAG(matmul(512, 512, 512))
    (sketch,) = generate_sketches(dag, "cuda", HARDWARE)
    for seed in range(40):
        state = drawn_program(sketch, "cuda", HARDWARE, np.random.default_rng(seed))
        assert state is not None
        assert check_limits(te.lower(state), Limits()) == []


def loads_in_flight(func: te.LoweredFunc) -> int:
    """The longest copy to shared memory that is written out: ptxas starts as many of its loads as registers allow."""
    copies = [
        s.extent
        for s in stmts_of(func.body)
        if isinstance(s, For) and s.kind is ForKind.UNROLLED
        if all(x.buffer.scope == "shared" for x in stmts_of(s) if isinstance(x, Store))
    ]
    return max(copies, default=0)


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
@pytest.mark.parametrize("k", [0, 9, 13, 26, 43, 54, 60, 61])
@pytest.mark.one_in(3)
def test_usage_is_what_the_compiler_finds(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CODEGEN_CUDA_CACHE", "off")
    program = emit(golden_func(k))
    (counted,) = usage(golden_func(k))
    launched = program.kernels[0]
    found = compile_source(program.source, "sm_90").resources[0]
    assert (counted.grid, counted.block, counted.name) == (launched.grid, launched.block, launched.name)
    assert counted.shared_bytes == launched.shared_bytes == found.shared
    assert counted.registers / 2 <= found.registers <= 4 * counted.registers + loads_in_flight(golden_func(k))


def test_a_compiler_error_is_an_error_of_this_package() -> None:
    assert issubclass(CompileError, te.TeError)


def test_copies_and_loops_count_as_statements() -> None:
    t, i, j = v("t", "i", "j")
    a = Buffer("A", "float32", (64,))
    inner = For(i, 4, U, For(j, 8, ForKind.SERIAL, Store(a, t, const(0, "float32"))))
    assert usage(func([a], kernel([("threadIdx.x", t, 2)], inner)))[0].statements == 4


def test_each_limit_is_the_most_that_is_allowed() -> None:
    """Exactly what a kernel uses is enough of everything, one less of anything is not."""
    t, i = v("t", "i")
    a, shared_copy = Buffer("A", "float32", (1 << 16,)), Buffer("s", "float32", (64,), "shared")
    local = Buffer("l", "float32", (8,), "local")
    one = const(1, "float32")
    body = Alloc(shared_copy, Alloc(local, seq(nest((i, 8, V), Store(local, i, one)), Store(shared_copy, t, local[t]))))
    axes = [(tag, Var(tag), n) for tag, n in (("blockIdx.x", 5), ("blockIdx.y", 4), ("blockIdx.z", 3))]
    axes += [("threadIdx.x", t, 6), ("threadIdx.y", Var("y"), 7), ("threadIdx.z", Var("z"), 2)]
    f = func([a], kernel(axes, body), "p")
    (used,) = usage(f)
    exact = Limits(
        threads_per_block=used.threads, block=used.block, grid=used.grid, shared_bytes=used.shared_bytes,
        local_bytes=used.local_bytes, vector_loop_bytes=used.vector_loop_bytes, statements=used.statements,
    )  # fmt: skip
    assert min(used.shared_bytes, used.local_bytes, used.vector_loop_bytes, used.statements) > 0
    assert check_limits(f, exact) == []
    scalars = ("threads_per_block", "shared_bytes", "local_bytes", "vector_loop_bytes", "statements")
    less = [replace(exact, **{name: getattr(exact, name) - 1}) for name in scalars]
    for name in ("block", "grid"):
        shape = getattr(exact, name)
        less += [replace(exact, **{name: (*shape[:k], shape[k] - 1, *shape[k + 1 :])}) for k in range(3)]
    assert [len(check_limits(f, limits)) for limits in less] == [1] * 11
