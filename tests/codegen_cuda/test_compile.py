"""Sources become cubins for sm_80 and sm_90, resources are recorded, the cache is sound, refusals are clear."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import te_lite as te
from ansor.sketch import generate_sketches
from benchmarks.compiled import compile_many
from codegen_cuda import CompileError, available_compilers, compile_source, compiler_name, emit
from codegen_cuda.backend import CudaBackend
from codegen_cuda.driver import cache, nvrtc
from codegen_cuda.driver.resources import parse_resources
from te_lite.environment import CODEGEN_CUDA_CACHE
from te_lite.loops.stmt import LoweredFunc
from tests.codegen_cuda.golden_sketches import HARDWARE
from tests.codegen_cuda.golden_states import COUNT, golden_func
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER, argmax_of, sum_of
from tests.codegen_cuda.test_emit_reduce import reduction
from tests.codegen_cuda.test_emit_vectors import copy_of
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty

pytestmark = pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
KERNEL = """extern "C" __global__ void __launch_bounds__(64) twice(const float *__restrict__ a, float *__restrict__ b) {
  b[threadIdx.x] = a[threadIdx.x] * %s;
}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CODEGEN_CUDA_CACHE.name, str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def compile_all(sources: list[str], arch: str) -> None:
    for module in nonempty(compile_many(sources, arch, workers=2, use_cache=False)):
        assert not isinstance(module, CompileError), str(module)
        assert module.cubin[:4] == b"\x7fELF" and module.resources


@pytest.mark.long
@pytest.mark.parametrize("part", [3, *[pytest.param(k, marks=pytest.mark.slow) for k in (0, 1, 2)]])
def test_golden_states_keep_registers_and_compile(part: int) -> None:
    """No local memory where the tile fits the registers of a thread with room to spare."""
    functions = [golden_func(k) for k in range(part, COUNT, 4)]
    arch = ("sm_80", "sm_90")[part % 2]
    modules = compile_many([emit(f).source for f in functions], arch, workers=2, use_cache=False)
    for f, module in nonempty(zip(functions, modules, strict=True)):
        assert not isinstance(module, CompileError), str(module)
        program = emit(f)
        limit = min(255, 65536 // program.kernels[0].threads)
        found = module.resources[0]
        assert found.name == program.kernels[0].name and 0 < found.registers <= 255
        if accumulators(program.source) + 64 <= limit:
            assert found.stack == 0 and found.spills == 0, program.source


def accumulators(source: str) -> int:
    for line in source.splitlines():
        if line.strip().startswith("float C_local["):
            return int(line.split("[")[1].split("]")[0])
    return 1


PROGRAMS = {
    "warp": reduction((32, 2), 0, 32, sum_of("float32")),
    "warps": reduction((256,), 0, 250, sum_of("float16")),
    "tree": reduction((98,), 0, 98, sum_of("float64")),
    "argmax": reduction((16, 3), 0, 16, argmax_of("int64", "float16")),
    "argmax_warps": reduction((128,), 0, 128, argmax_of()),
    "int8_max": reduction((8, 4), 0, 8, sum_of("int8", te.max)),
    "half_vectors": copy_of("float16", 8),
    "half_misaligned": copy_of("float16", 2, 1),
    "bool_vectors": copy_of("bool", 4),
    "int64_vectors": copy_of("int64", 2),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_reductions_and_dtypes_compile(arch: str) -> None:
    compile_all([emit(f).source for f in PROGRAMS.values()], arch)


def half_matmul() -> te.LoweredFunc:
    a, b = te.placeholder((64, 96), name="A", dtype="float16"), te.placeholder((96, 32), name="B", dtype="float16")
    k = te.reduce_axis((0, 96), "k")
    c = te.compute((64, 32), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")
    sketch = generate_sketches(te.ComputeDAG([a, b, c]), "cuda", HARDWARE)[0]
    state = drawn_program(sketch, "cuda", HARDWARE, np.random.default_rng(3))
    assert state is not None
    return te.lower(state)


def test_half_programs_compile() -> None:
    source = emit(half_matmul()).source
    assert "#include <cuda_fp16.h>" in source
    compile_all([source], "sm_90")


# ----------------------------------------------------------------------------------------------- the compiler


def test_resources_are_recorded() -> None:
    source = (
        KERNEL % "3.0f"
        + """
extern "C" __global__ void __launch_bounds__(32) k(int *a, int n) {
  __shared__ int s[64];
  int local[100];
  for (int i = 0; i < n; ++i) local[i % 100] = a[i];
  s[threadIdx.x] = local[n];
  __syncthreads();
  a[threadIdx.x] = s[31 - threadIdx.x];
}
"""
    )
    module = compile_source(source, "sm_80")
    k, twice = module.resources
    assert (k.name, twice.name) == ("k", "twice")
    assert k.shared == 256 and k.stack >= 400 and k.registers > 0 and k.spills == 0
    assert twice.shared == 0 and twice.stack == 0 and module.seconds > 0


def test_a_source_that_is_refused_names_the_first_error() -> None:
    with pytest.raises(CompileError, match=r"refuses the program for sm_90: program.cu\(1\): error: .*undefined"):
        compile_source('extern "C" __global__ void k(int *a) { a[0] = nowhere; }', "sm_90")
    with pytest.raises(CompileError, match="it must be like sm_90, got arch='compute_90'"):
        compile_source(KERNEL % "1.0f", "compute_90")
    for arch in ("sm_99", "sm_1", "sm_99a"):
        with pytest.raises(CompileError, match=rf"^architecture: nvrtc .* compiles for .*sm_90.*, got arch='{arch}'$"):
            compile_source(KERNEL % "1.0f", arch)
    assert "for 'sm_90a'" in compile_source(KERNEL % "1.0f", "sm_90a").log


def test_refused_sources_do_not_stop_the_others() -> None:
    good, bad, fine = compile_many([KERNEL % "1.0f", "nonsense", KERNEL % "2.0f"], "sm_90", workers=2)
    assert isinstance(bad, CompileError) and not isinstance(good, CompileError) and not isinstance(fine, CompileError)


@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed")
def test_missing_headers_are_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    import codegen_cuda.driver.compile as module

    monkeypatch.setattr(module, "include_folders", lambda: ())
    with pytest.raises(CompileError, match=r"cuda_fp16.h: not found; install nvidia-cuda-runtime"):
        compile_source("#include <cuda_fp16.h>\n" + KERNEL % "1.0f", "sm_90")


def test_no_compiler_is_one_clear_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "library", lambda: None)
    assert available_compilers() == ()
    with pytest.raises(CompileError, match="libnvrtc is not installed; install nvidia-cuda-nvrtc or set CUDA_HOME"):
        compiler_name()


def test_importing_and_emitting_load_no_compiler_and_no_pycuda() -> None:
    code = (
        "import sys, codegen_cuda; from codegen_cuda.driver import nvrtc; assert 'pycuda' not in sys.modules; "
        "assert nvrtc.library.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.long
@pytest.mark.skipif(nvrtc.library() is None, reason="NVRTC is not installed")
def test_threads_compile_side_by_side() -> None:
    """Six sources on three threads give what they give one by one."""
    sources = [emit(golden_func(k)).source for k in (9, 15, 39, 43, 54, 31)]
    one = compile_many(sources, "sm_90", workers=1, use_cache=False)
    three = compile_many(sources, "sm_90", workers=3, use_cache=False)
    assert [m.cubin for m in one] == [m.cubin for m in three]  # type: ignore[union-attr]


def test_logs_without_a_report_have_no_resources() -> None:
    assert parse_resources("") == () and parse_resources("program.cu(3): warning: variable unused") == ()


# -------------------------------------------------------------------------------------------------- the cache


def test_equal_sources_are_compiled_once(own_cache: Path) -> None:
    first = compile_source(KERNEL % "7.0f", "sm_90")
    again = compile_source(KERNEL % "7.0f", "sm_90")
    assert again.seconds == 0 < first.seconds and again.cubin == first.cubin and again.resources == first.resources
    assert len(list(own_cache.iterdir())) == 1
    for other in (compile_source(KERNEL % "8.0f", "sm_90"), compile_source(KERNEL % "7.0f", "sm_80"),
                  compile_source(KERNEL % "7.0f", "sm_90", ["--use_fast_math"])):  # fmt: skip
        assert other.seconds > 0
    assert len(list(own_cache.iterdir())) == 4


def two_kernels(threads: int) -> LoweredFunc:
    """Doubles, in blocks of 64 threads, then adds 1, in blocks of `threads`."""
    a = te.placeholder((256,), name="A")
    b = te.compute((256,), lambda i: a[i] * 2.0, name="B")
    c = te.compute((256,), lambda i: b[i] + 1.0, name="C")
    s = te.create_schedule(c.op)
    for stage, length in ((b, 64), (c, threads)):
        outer, inner = s[stage].split(s[stage].op.axis[0], factor=length)
        s[stage].bind(outer, te.thread_axis("blockIdx.x"))
        s[stage].bind(inner, te.thread_axis("threadIdx.x"))
    return te.lower(s, [a, c])


def test_programs_that_differ_in_a_kernel_share_the_others(own_cache: Path, tmp_path: Path) -> None:
    places = [tmp_path / f"{threads}" for threads in (32, 128)]
    for threads, place in zip((32, 128), places, strict=True):
        place.mkdir()
        func = two_kernels(threads)
        program = emit(func)
        assert all(unit in program.source for unit in program.units)
        assert [[k.name in unit for k in program.kernels] for unit in program.units] == [[True, False], [False, True]]
        CudaBackend().build(func, "cuda -arch=sm_90", str(place))
    assert len(list(own_cache.iterdir())) == 3
    first, second = [[(place / f"kernel{k}.cubin").read_bytes() for k in range(2)] for place in places]
    assert first[0] == second[0] and first[1] != second[1]


@pytest.mark.parametrize("keep", [0, 5, 100, 1000])
def test_a_damaged_entry_is_made_again(own_cache: Path, keep: int) -> None:
    first = compile_source(KERNEL % "9.0f", "sm_90")
    (file,) = own_cache.iterdir()
    file.write_bytes(file.read_bytes()[:keep])
    again = compile_source(KERNEL % "9.0f", "sm_90")
    assert again.seconds > 0 and again.cubin == first.cubin
    assert compile_source(KERNEL % "9.0f", "sm_90").seconds == 0


@pytest.mark.parametrize("place", [0, 3, 50, 500, -1])
def test_an_entry_with_a_changed_byte_is_not_taken(own_cache: Path, place: int) -> None:
    """Wherever it is, in what the compiler said too."""
    first = compile_source(KERNEL % "9.0f", "sm_90")
    (file,) = own_cache.iterdir()
    whole = bytearray(file.read_bytes())
    whole[place] ^= 1
    file.write_bytes(whole)
    again = compile_source(KERNEL % "9.0f", "sm_90")
    assert again.seconds > 0 and (again.cubin, again.resources) == (first.cubin, first.resources)


def test_a_cache_that_others_can_write_is_refused(own_cache: Path) -> None:
    compile_source(KERNEL % "9.0f", "sm_90")
    assert own_cache.stat().st_mode & 0o777 == 0o700
    own_cache.chmod(0o775)
    for factor in ("9.0f", "10.0f"):
        with pytest.raises(CompileError, match=r"^kernel cache: .*others may write it, try chmod go-w"):
            compile_source(KERNEL % factor, "sm_90")


def test_many_writers_leave_whole_files_only(own_cache: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(lambda k: compile_source(KERNEL % f"{k % 2}.0f", "sm_90"), range(16)))
    assert len({m.cubin for m in modules}) == 2
    assert sorted(f.suffix for f in own_cache.iterdir()) == [".kernel", ".kernel"]


def test_the_cache_can_be_off_or_unwritable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(CODEGEN_CUDA_CACHE.name, "off")
    assert compile_source(KERNEL % "1.5f").seconds > 0 and compile_source(KERNEL % "1.5f").seconds > 0
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(CODEGEN_CUDA_CACHE.name, str(tmp_path / "file" / "below"))
    with pytest.raises(CompileError, match=r"kernel cache: .* cannot be made"):
        compile_source(KERNEL % "1.5f")


def test_the_default_folder_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(CODEGEN_CUDA_CACHE.name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_folder() == tmp_path / "ansor" / "cuda"
    monkeypatch.setenv(CODEGEN_CUDA_CACHE.name, "~/kernels")
    assert cache.cache_folder() == Path.home() / "kernels"


@pytest.mark.parametrize("use_cache", [False, True])
def test_tensor_cores_that_would_wait_are_refused(use_cache: bool) -> None:
    """Registers are given back by name only where ptxas knows how many a thread has; it says so, and goes on."""
    text = """extern "C" __global__ void __launch_bounds__(%s) given(float *x) {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  x[threadIdx.x] = 1;
}
"""
    for _ in range(2):
        with pytest.raises(CompileError, match=r"ptxas would hold the program for sm_90a back: \(C7508\) .*setmaxnreg"):
            compile_source(text % "256", "sm_90a", use_cache=use_cache)
    assert compile_source(text % "256, 1", "sm_90a", use_cache=use_cache).cubin
