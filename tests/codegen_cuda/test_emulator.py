"""The emulator's CUDA: half arithmetic, shuffles, vector types, launches, and what it says when it cannot run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from ansor.core.files.private_files import read_sealed
from codegen_cuda.emulation import emulator_build
from codegen_cuda.emulation.emulator import run
from codegen_cuda.emulation.emulator_report import EmulatorError
from tests.nonempty import nonempty

from .cuda_kernels import TREE

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")


def kernel(parameters: str, body: str) -> str:
    return f'extern "C" __global__ void k({parameters}) {{\n  const int t = threadIdx.x;\n  {body}\n}}\n'


def test_half_rounds_as_numpy_does() -> None:
    rng = np.random.default_rng(0)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = halves[np.isfinite(halves)]
    ties = (finite[:-1].astype("float64") + finite[1:]) / 2
    near = np.concatenate([ties, np.nextafter(ties, 1e9), np.nextafter(ties, -1e9)]).astype(np.float32)
    odd = rng.standard_normal(3000) * 2.0 ** rng.integers(-30, 20, 3000)
    special = [np.inf, -np.inf, 65519.99, 65520, -65536, 1e30, 0.0, -0.0, 2.0**-24, 2.0**-25, 2.0**-25 * 1.0001]
    x = np.concatenate([finite, near, odd.astype(np.float32), np.array(special, np.float32)])
    out = np.zeros(x.size, np.float16)
    source = kernel("float* x, half* out, int n", "const int i = blockIdx.x * 256 + t; if (i < n) out[i] = (half)x[i];")
    run(source, "k", -(-x.size // 256), 256, [x, out, np.int32(x.size)])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out.view(np.uint16), x.astype(np.float16).view(np.uint16))


def test_half_arithmetic_rounds_once() -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.standard_normal(512).astype(np.float16) for _ in range(3))
    out = np.zeros((6, 512), np.float16)
    body = """const half x = a[t], y = b[t], z = c[t];
  out[t] = x + y; out[512 + t] = x - y; out[1024 + t] = x * y; out[1536 + t] = x / y;
  out[2048 + t] = __hfma(x, y, z); out[2560 + t] = hsqrt(__habs(x));"""
    run(kernel("half* a, half* b, half* c, half* out", body), "k", 1, 512, [a, b, c, out])
    fused = (a.astype("float64") * b + c).astype(np.float16)
    want = np.stack([a + b, a - b, a * b, a / b, fused, np.sqrt(np.abs(a))])
    np.testing.assert_array_equal(out, want)


def test_half_keeps_nan_and_widens_every_value() -> None:
    x = np.arange(65536, dtype=np.uint16).view(np.float16)
    out = np.zeros(65536, np.float32)
    source = kernel("half* x, float* out", "out[blockIdx.x * 1024 + t] = __half2float(x[blockIdx.x * 1024 + t]);")
    run(source, "k", 64, 1024, [x, out])
    np.testing.assert_array_equal(out, x.astype(np.float32))


LANES = np.arange(32)
SHUFFLES = {
    "__shfl_sync(0xffffffff, v, 5)": np.full(32, 5),
    "__shfl_sync(0xffffffff, v, t + 1)": (LANES + 1) % 32,
    "__shfl_sync(0xffffffff, v, 3, 8)": LANES // 8 * 8 + 3,
    "__shfl_up_sync(0xffffffff, v, 2)": np.where(LANES < 2, LANES, LANES - 2),
    "__shfl_up_sync(0xffffffff, v, 3, 4)": np.where(LANES % 4 < 3, LANES, LANES - 3),
    "__shfl_down_sync(0xffffffff, v, 16)": np.where(LANES + 16 > 31, LANES, LANES + 16),
    "__shfl_down_sync(0xffffffff, v, 1, 8)": np.where(LANES % 8 == 7, LANES, LANES + 1),
    "__shfl_xor_sync(0xffffffff, v, 13)": LANES ^ 13,
    "(int)__shfl_xor_sync(0xffffffff, (double)v, 1)": LANES ^ 1,
    "(int)__half2float(__shfl_xor_sync(0xffffffff, (half)(float)v, 31))": LANES ^ 31,
    "(int)__ballot_sync(0xffffffff, v % 3 == 0)": np.full(32, sum(1 << i for i in range(0, 32, 3))),
    "__any_sync(0xffffffff, v == 31)": np.ones(32),
    "__all_sync(0xffffffff, v < 31)": np.zeros(32),
}


def test_shuffles() -> None:
    out = np.zeros((len(SHUFFLES), 64), np.int32)
    body = "const int v = t & 31;\n" + "\n".join(f"out[{i * 64} + t] = {text};" for i, text in enumerate(SHUFFLES))
    run(kernel("int* out", body), "k", 1, 64, [out])
    for (text, want), got in nonempty(zip(SHUFFLES.items(), out, strict=True)):
        np.testing.assert_array_equal(got.reshape(2, 32), np.broadcast_to(want.astype(np.int32), (2, 32)), text)


def test_a_lane_that_does_not_exist_gives_no_value() -> None:
    out = np.zeros(40, np.float32)
    run(kernel("float* out", "out[t] = __shfl_down_sync(0xffffffff, (float)t, 4);"), "k", 1, 40, [out])
    np.testing.assert_array_equal(out[:36], [*range(4, 32), 28, 29, 30, 31, *range(36, 40)])
    assert np.isnan(out[36:]).all()


def test_vectors_and_bits() -> None:
    x = np.arange(-8, 8, dtype=np.int8)
    out, total = np.zeros(16, np.int8), np.zeros(4, np.int32)
    body = """const char4 v = ((char4*)x)[t]; *(char4*)(out + 4 * t) = make_char4(v.w, v.z, v.y, v.x);
  total[t] = __dp4a(*(int*)(x + 4 * t), 0x01010101, max((int)threadIdx.x, 2)) + (min(3, t) << 8);"""
    run(kernel("signed char* x, signed char* out, int* total", body), "k", 1, 4, [x, out, total])
    np.testing.assert_array_equal(out, x.reshape(4, 4)[:, ::-1].ravel())
    np.testing.assert_array_equal(total, x.reshape(4, 4).sum(1) + np.maximum(np.arange(4), 2) + (np.arange(4) << 8))


FUNCTIONS = {
    "expf(x)": np.exp, "__expf(-x)": lambda x: np.exp(-x), "logf(x)": np.log, "sqrtf(x)": np.sqrt, "tanhf(x)": np.tanh,
    "rsqrtf(x)": lambda x: 1 / np.sqrt(x), "powf(x, 1.5f)": lambda x: x**1.5, "fmaf(x, x, 1.0f)": lambda x: x * x + 1,
    "floorf(3 * x)": lambda x: np.floor(3 * x), "exp(x)": np.exp, "fabsf(-x)": np.abs,
    "max(x, 1.0f)": lambda x: np.maximum(x, 1),
    "fminf(x, 1.0f)": lambda x: np.minimum(x, 1), "__saturatef(x)": lambda x: np.clip(x, 0, 1),
    "__int_as_float(__float_as_int(x))": lambda x: x, "x / INFINITY": lambda x: 0 * x,
}  # fmt: skip


def test_functions() -> None:
    x = np.random.default_rng(2).uniform(0.1, 3, 8).astype(np.float32)
    out = np.zeros((len(FUNCTIONS), 8), np.float32)
    body = "const float x = in[t];" + "".join(f"out[{i * 8} + t] = {text};" for i, text in enumerate(FUNCTIONS))
    run(kernel("float* in, float* out", body), "k", 1, 8, [x, out])
    for (text, function), got in nonempty(zip(FUNCTIONS.items(), out, strict=True)):
        np.testing.assert_allclose(got, function(x.astype("float64")), rtol=1e-6, err_msg=text)


def test_launch_shape_and_values() -> None:
    out = np.full((2, 3, 4, 5), -1, np.int32)
    body = """const int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  const int all = blockDim.x * blockDim.y * blockDim.z;
  out[block * all + thread] = scale * (block * all + thread) + (int)offset;"""
    source = kernel("int scale, int* out, double offset", body)
    run(source, "k", (3, 1, 2), (5, 2, 2), [np.int32(7), out, np.float64(-3)])
    np.testing.assert_array_equal(out.ravel(), np.arange(120) * 7 - 3)


def test_two_dynamic_arrays_are_one_memory() -> None:
    out = np.zeros(8, np.int32)
    body = """extern __shared__ int a[]; extern __shared__ int b[];
  a[t] = t * t; __syncthreads(); out[t] = b[7 - t];"""
    run(kernel("int* out", body), "k", 1, 8, [out], 32)
    np.testing.assert_array_equal(out, np.arange(7, -1, -1) ** 2)
    for word in ("float", "half", "float4"):
        run(kernel("int* out", f"extern __shared__ {word} a[]; out[t] = 1;"), "k", 1, 8, [out], 32)


def test_neighbours_smaller_than_a_word_do_not_race() -> None:
    for word, dtype in [("signed char", np.int8), ("half", np.float16)]:
        out = np.zeros(33, dtype)
        body = f"__shared__ {word} s[33]; s[t] = ({word})(float)t; __syncthreads(); out[t] = s[32 - t];"
        run(kernel(f"{word}* out", body), "k", 1, 33, [out])
        np.testing.assert_array_equal(out, np.arange(32, -1, -1))


def test_shared_memory_is_poisoned_in_every_block() -> None:
    out = np.zeros(3, np.float32)
    body = "__shared__ float s[1]; out[blockIdx.x] = s[0]; __syncthreads(); s[0] = 1.0f;"
    run(kernel("float* out", body), "k", 3, 1, [out], check=False)
    assert np.isnan(out).all()


def test_findings_say_where() -> None:
    source = TREE.source.replace("s[t] = x", "s[t + 1] = x")
    x, out = np.zeros((5, 64), np.float32), np.zeros(5, np.float32)
    with pytest.raises(EmulatorError) as caught:
        run(source, "k", 5, 64, [x, out])
    finding = caught.value.findings[-1]
    assert (finding.kind, finding.kernel, finding.block, finding.thread) == (
        "out of bounds",
        "k",
        (0, 0, 0),
        (63, 0, 0),
    )
    assert finding.line == 1 + source[: source.index("s[t + 1]")].count("\n")
    assert str(caught.value) == (
        "emulator: k line 5: out of bounds: thread (63, 0, 0) of block (0, 0, 0) indexes an array of type 'float [64]' "
        "with 64"
    )


REFUSALS = {
    "there is no kernel": ("float* x", "", "missing", [np.zeros(4, np.float32)]),
    "takes 2 arguments, got 1": ("float* x, float* y", "", "k", [np.zeros(4, np.float32)]),
    "argument 0 of kernel k is a pointer, got a number": ("float* x", "", "k", [np.float32(1)]),
    "argument 0 of kernel k is a value, got an array": ("int n", "", "k", [np.zeros(4, np.float32)]),
    "elements of 4 bytes, got an array of elements of 8": ("float* x", "", "k", [np.zeros(4)]),
    "g++ refuses the kernel: kernel.cu:3:3: error: 'nonsense'": (
        "float* x",
        "nonsense;",
        "k",
        [np.zeros(4, np.float32)],
    ),
    "took longer than 0.5 s": ("float* x", "while (true) *(volatile float*)x;", "k", [np.zeros(4, np.float32)]),
}


@pytest.mark.parametrize("message", REFUSALS)
def test_what_cannot_run_is_refused(message: str) -> None:
    parameters, body, name, args = REFUSALS[message]
    with pytest.raises(EmulatorError) as caught:
        run(kernel(parameters, body), name, 1, 4, args, timeout=0.5)
    assert message in str(caught.value) and not caught.value.findings


def test_too_many_threads_are_refused() -> None:
    with pytest.raises(EmulatorError, match="1 to 1024 threads a block, got block=\\(32, 33, 1\\)"):
        run(kernel("float* x", ""), "k", 1, (32, 33), [np.zeros(4, np.float32)])


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(EmulatorError, match=r"g\+\+ is not on PATH; install g\+\+"):
        run(kernel("float* x", "x[t] = 41.5f;"), "k", 1, 1, [np.zeros(4, np.float32)])


def test_the_host_is_made_once_for_all_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file that is whole is taken; one that was changed is made again, and another one with other flags."""
    made: list[Path] = []

    def compiles(arguments: Sequence[str], name: str) -> None:
        made.append(Path(arguments[arguments.index("-o") + 1]))
        made[-1].write_bytes(b"a program")

    monkeypatch.setattr(emulator_build, "_compile", compiles)
    monkeypatch.setenv("CODEGEN_CUDA_CACHE", str(tmp_path / "kept"))
    path = emulator_build.host()
    assert emulator_build.host() == path and path.parent == tmp_path / "kept" and len(made) == 1
    assert read_sealed(path) == b"a program" and os.access(path, os.X_OK)
    path.write_bytes(path.read_bytes().replace(b"program", b"pr0gram"))
    assert emulator_build.host() == path and read_sealed(path) == b"a program" and len(made) == 2
    monkeypatch.setattr(emulator_build, "HOST_FLAGS", ("-O0",))
    emulator_build._host_key.cache_clear()
    assert emulator_build.host() != path and len(made) == 3
    emulator_build._host_key.cache_clear()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CODEGEN_CUDA_CACHE", str(tmp_path / "file" / "below"))
    with pytest.raises(EmulatorError, match=r"emulator: .*below cannot be written, .*; set CODEGEN_CUDA_CACHE"):
        emulator_build.host()


def test_the_header_is_read_once_for_many_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the fourth library of a process on, with the same results."""
    commands: list[Sequence[str]] = []
    compile_ = emulator_build._compile

    def compiles(arguments: Sequence[str], name: str) -> None:
        commands.append(arguments)
        compile_(arguments, name)

    emulator_build.forget()
    monkeypatch.setattr(emulator_build, "_compile", compiles)
    for k in range(emulator_build.FEW + 2):
        out = np.zeros(4, np.int32)
        run(kernel("int* out", f"out[t] = t + {k};"), "k", 1, 4, [out])
        assert out.tolist() == [k, k + 1, k + 2, k + 3]
    headers = [Path(c[c.index("-include") + 1]) for c in commands if "-include" in c]
    assert [h.parent == emulator_build.HERE for h in headers] == [True] * emulator_build.FEW + [False] * 2
    assert len(commands) == len(headers) + 1 and headers[-1].with_suffix(".h.gch").exists()


def test_what_is_read_under_a_condition_is_not_read_elsewhere() -> None:
    """A compiler may load before the loop what cannot trap; the text says that block 0 reads nothing."""
    out = np.zeros((2, 64), np.int8)
    body = """__shared__ signed char s[1];
  if (blockIdx.x == 1 && t == 0) s[0] = 5;
  __syncthreads();
  for (int j = 0; j < 8; ++j) out[blockIdx.x * 64 + t * 8 + j] = (int)blockIdx.x >= 1 ? s[0] : -1;"""
    run(kernel("signed char* __restrict__ out", body), "k", 2, 8, [out])
    np.testing.assert_array_equal(out, np.repeat(np.array([[-1], [5]], np.int8), 64, axis=1))
