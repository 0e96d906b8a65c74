"""What the C source looks like, what is refused, and how a module answers its caller."""

from __future__ import annotations

import ctypes
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

import codegen_c
from codegen_c import compile as driver
from codegen_c.gather import plan_gather
from codegen_c.indices import Indices
from te_lite.expr.expr import call, const
from te_lite.loops.c_text import literal
from te_lite.loops.names import Names, identifier
from te_lite.loops.stmt import Alloc, Barrier, Buffer, For, ForKind, Store, seq
from tests.whole_way.draw import draw
from tests.whole_way.outcome import Outcome
from tests.whole_way.programs import Programs

from .c_programs import P, S, U, V, check, conv2d, func, matmul, nest, random_array, v

RNG = np.random.default_rng(11)


def copy(n: int = 8, name: str = "copy", x: str = "x", y: str = "y", i: str = "i"):
    a, b = Buffer(x, "float32", (n,)), Buffer(y, "float32", (n,))
    (k,) = v(i)
    return func([a, b], nest((k, n, S), Store(b, k, a[k])), name)


def test_source_is_readable():
    source = codegen_c.emit(copy())
    assert source.startswith("/* copy: x[8] float32, y[8] float32 */\n")
    assert (
        "void copy(const float *restrict x, float *restrict y) {\n"
        "  for (int64_t i = 0; i < 8; ++i) {\n"
        "    y[i] = x[i];\n"
        "  }\n"
        "}\n"
    ) in source


def test_accumulators_are_named_registers():
    source = codegen_c.emit(matmul(16, 64, 8, (4, 32)), options=codegen_c.Options())
    assert "f32x16 C_local0, C_local1, C_local2, C_local3, C_local4, C_local5, C_local6, C_local7;" in source
    assert "C_local[" not in source and "#pragma omp parallel for\n" in source and "#pragma GCC unroll 4" in source
    assert "C_local7 += A_v_3 * B_v_1;" in source


def test_tiles_that_do_not_fit_stay_in_memory():
    source = codegen_c.emit(matmul(128, 64, 8, (64, 64)), options=codegen_c.Options())
    assert "float C_local[4096] __attribute__((aligned(64)));" in source


def test_emission_is_deterministic():
    f = conv2d(1, 64, 32, 16, 3, 1, 1)
    assert codegen_c.emit(f) == codegen_c.emit(f)


def test_number_of_threads():
    f = matmul(16, 64, 8, (4, 32))
    assert "#pragma omp parallel for num_threads(2)" in codegen_c.emit(f, options=codegen_c.Options(num_threads=2))


def test_long_turns_are_shared_out_as_threads_come_free():
    assert "schedule" not in codegen_c.emit(matmul(16, 64, 8, (4, 32)))
    assert "#pragma omp parallel for schedule(dynamic)" in codegen_c.emit(matmul(64, 1024, 512, (4, 32)))


@pytest.mark.parametrize(
    "names", [("for", "double", "i.0"), ("x", "x", "x"), ("n", "start", "stop"), ("1a", "a b", "é")]
)
def test_names_are_made_safe(names):
    f = copy(5, "time" if names[0] == "n" else names[0], *names)
    a = random_array(RNG, f.args[0])
    check(f, [a], [a.astype("float64")])


def test_unique_names():
    names = Names()
    first, second = object(), object()
    assert [names.of(first, "i.0"), names.of(second, "i.0"), names.of(first, "i.0")] == ["i_0", "i_0_1", "i_0"]
    assert identifier("2 x") == "_2_x" and names.fresh("int") == "int_1"


@pytest.mark.parametrize(
    "value, dtype, text",
    [
        (3, "int32", "3"), (-(2**31), "int32", "(-2147483647 - 1)"), (5, "int64", "INT64_C(5)"), (True, "bool", "true"),
        (0.1, "float32", "0.1f"), (1e20, "float64", "1e+20"), (float("inf"), "float32", "INFINITY"),
        (float("-inf"), "float64", "-INFINITY"), (float("nan"), "float32", "NAN"), (0.5, "float16", "(_Float16)0.5f"),
    ],
)  # fmt: skip
def test_literals(value, dtype, text):
    assert literal(value, dtype) == text


def test_literals_keep_their_value():
    values = [0.1, -3.4028234663852886e38, 1e-42, 16777217.0, float("inf"), float("-inf"), 2.0**-149]
    y = Buffer("y", "float32", (len(values),))
    body = seq(*[Store(y, const(k), const(x, "float32")) for k, x in enumerate(values)])
    out = np.full(len(values), np.nan, "float32")
    codegen_c.build(func([y], body))(out)
    np.testing.assert_array_equal(out, np.array(values, "float32"))


@pytest.mark.parametrize(
    "body, what",
    [
        (lambda s: For(v("t")[0], 4, ForKind.THREAD, s, "threadIdx.x"), "threadIdx.x"),
        (lambda s: For(v("t")[0], 4, ForKind.BLOCK, s, "blockIdx.x"), "blockIdx.x"),
        (lambda s: Alloc(Buffer("s", "float32", (4,), "shared"), s), "shared buffer s"),
        (lambda s: seq(Barrier(), s), "barrier"),
    ],
)  # fmt: skip
def test_thread_blocks_are_refused(body, what):
    y = Buffer("y", "float32", (4,))
    with pytest.raises(codegen_c.EmitError, match=f"the C target has no thread blocks.*{what}"):
        codegen_c.emit(func([y], body(Store(y, const(0), const(0.0, "float32")))))


# ------------------------------------------------------------------------------------------------ the pieces


@pytest.mark.parametrize(
    "offsets",
    [
        [0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14, 15, 18, 19], [2 * k for k in range(16)], [3 * k for k in range(8)],
        [7 - k for k in range(8)], [0, 1, 2, 3, 9, 10, 11, 12], [5, 6, 7, 8, 0, 1, 2, 3],
    ],
)  # fmt: skip
def test_gather_plans(offsets):
    found = plan_gather(offsets)
    assert found is not None
    lanes, memory = len(offsets), np.arange(min(offsets), max(offsets) + 1)
    windows = [memory[s - min(offsets) : s - min(offsets) + lanes] for s in found.starts]
    assert all(w.size == lanes for w in windows)
    result = windows[0]
    for k, pick in enumerate(found.picks):
        result = np.concatenate([result, windows[min(k + 1, len(windows) - 1)]])[list(pick)]
    assert result.tolist() == offsets


def test_gather_plan_declines():
    assert plan_gather([0, 0, 1, 1]) is None and plan_gather([100 * k for k in range(8)]) is None


def test_index_forms():
    i, j = v("i", "j")
    y = Buffer("y", "float32", (64,))
    indices = Indices(nest((i, 4, S), (j, 16, S), Store(y, i * 16 + j, const(0.0, "float32"))))
    form = indices.linear((i * 16 + j) // 8 + 3, {j: const(9)})
    assert form.const == 4 and form.terms == {i: 2}
    assert indices.lane_offsets(j // 4 * 8 + j % 4, j, 8) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert indices.lane_offsets(y[j].astype("int32"), j, 2) is None
    assert indices.nonnegative(i - j + 15) and not indices.nonnegative(i - j + 14)


# ------------------------------------------------------------------------------------------------ the module


def test_arrays_that_do_not_fit():
    m = codegen_c.build(copy())
    x, y = np.zeros(8, "float32"), np.zeros(8, "float32")
    cases = [
        ((x,), r"2 arrays are needed \(x\[[\d, ]+\], y\[[\d, ]+\]\), got 1"),
        ((x, y.astype("float64")), r"argument 1 \(y\): must be float32 of shape \(8,\), got float64"),
        ((x[:4], y), r"argument 0 \(x\): must be float32 of shape \(8,\), got float32 of shape \(4,\)"),
        ((np.zeros(16, "float32")[::2], y), "must be C-contiguous"),
        (([0.0] * 8, y), "must be a NumPy array, got type='list'"),
        ((x, x), "y is written, it must not share memory with x"),
    ]
    for arrays, message in cases:
        with pytest.raises(codegen_c.CallError, match=message):
            m(*arrays)
    y.flags.writeable = False
    with pytest.raises(codegen_c.CallError, match="must not be read-only"):
        m(x, y)


def test_timing():
    m = codegen_c.build(copy(512))
    x, y = np.ones(512, "float32"), np.zeros(512, "float32")
    timing = m.time(x, y, number=3, repeat=4)
    assert len(timing.results) == 4 and all(0 < t < 0.1 for t in timing.results)
    assert timing.min <= timing.median <= timing.max
    start = time.perf_counter()
    got = m.time_evaluator(m.entry_name, "cpu", number=1, min_repeat_ms=20)(x, y)
    assert time.perf_counter() - start > 0.019 and 0 < got.mean < 1e-4 and len(got.results) == 1
    with pytest.raises(codegen_c.CallError, match="the only entry is 'copy'"):
        m.time_evaluator("other", None)
    with pytest.raises(codegen_c.CallError, match="must be positive"):
        m.time(x, y, number=0)


def test_name_of_the_entry():
    m = codegen_c.build(copy(), name="my kernel")
    assert m.entry_name == "my_kernel" and "void my_kernel(" in m.source


def test_a_missing_compiler(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(codegen_c.CompileError, match="no-such-compiler is not on PATH"):
        codegen_c.build(copy())
    monkeypatch.setenv("CC", "")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(codegen_c.CompileError, match="gcc or clang is not on PATH"):
        codegen_c.build(copy())


def test_a_source_that_does_not_compile():
    with pytest.raises(codegen_c.CompileError, match=r"refuses the program: program\.c:1:.*error"):
        driver.load("int f( {")


def test_a_compiler_that_takes_too_long():
    with pytest.raises(codegen_c.CompileError, match=r"took longer than 0\.0001 s"):
        driver.load("int never_compiled_before(void) { return 1; }", timeout=0.0001)


def test_the_store_is_content_addressed(monkeypatch, tmp_path):
    monkeypatch.setenv("CODEGEN_C_CACHE", str(tmp_path / "deep" / "store"))
    source = "int answer(void) { return 42; }"
    first = driver.library_path(source)
    monkeypatch.setattr(subprocess, "run", None)
    assert driver.library_path(source) == first and ctypes.CDLL(str(first)).answer() == 42
    assert [p.suffix for p in first.parent.iterdir()] == [".so"]


def test_a_store_that_cannot_be_made(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CODEGEN_C_CACHE", str(tmp_path / "file" / "store"))
    with pytest.raises(codegen_c.CompileError, match="cannot be made"):
        driver.load("int f(void) { return 0; }")


def test_vectorized_calls_fall_back_to_a_simd_loop():
    x, y = Buffer("x", "float32", (32,)), Buffer("y", "float32", (32,))
    (i,) = v("i")
    f = func([x, y], nest((i, 32, V), Store(y, i, call("sin", x[i]))))
    assert "#pragma omp simd" in codegen_c.emit(f)


def test_unroll_pragmas_are_bounded():
    y = Buffer("y", "float32", (4096,))
    (i,) = v("i")
    f = func([y], nest((i, 4096, U), Store(y, i, const(0.0, "float32"))))
    assert "#pragma GCC unroll 512\n" in codegen_c.emit(f, options=codegen_c.Options())


def test_unroll_pragmas_of_a_nest_are_bounded_together():
    y = Buffer("y", "float32", (4096,))
    i, j = v("i", "j")
    value = sum((y[i * 64 + j] for _ in range(20)), const(0.0, "float32"))
    f = func([y], nest((i, 64, U), (j, 64, U), Store(y, i * 64 + j, value)))
    source = codegen_c.emit(f, options=codegen_c.Options())
    assert source.count("#pragma GCC unroll") == 1


def test_nested_parallel_loops_run_in_the_outer_one():
    y = Buffer("y", "int32", (4, 6))
    i, j = v("i", "j")
    f = func([y], nest((i, 4, P), (j, 6, P), Store(y, i * 6 + j, i * 6 + j)))
    assert check(f, [], [np.arange(24, dtype="int32").reshape(4, 6)]).source.count("#pragma omp") == 1


def test_half_floats_do_without_instructions_that_are_written_wrong(tmp_path: Path) -> None:
    """Masked moves of AVX512-FP16, of which gcc makes text that its assembler refuses; for a machine that has them."""
    command, given = driver.compiler_command(), tmp_path / "program.c"
    march = "-march=sapphirerapids"
    if subprocess.run([*command, march, "-E", "-x", "c", "/dev/null"], capture_output=True, check=False).returncode:
        pytest.skip("the compiler knows no such machine")
    seed = 1041
    made = Programs(draw(seed), Outcome(seed), seed, lambda text: None).all(("c",))
    given.write_text("\n".join(codegen_c.emit(c.func) for c in made[:1]))
    flags = [march if f.startswith("-march") else f for f in driver.FLAGS]
    whole = [*command, *flags, str(given), "-o", str(tmp_path / "made"), "-lm", *driver.processor_flags(command)]
    done = subprocess.run(whole, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
