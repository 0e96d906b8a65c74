"""float16 in vectors: the bits of NumPy for every half and all that is rounded to one, on every kind of processor."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from codegen_c.errors import CompileError
from codegen_c.processor import PROCESSORS, flags_for, options_for
from te_lite import environment
from te_lite.meaning.interp import run

pytestmark = [pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler"),
              pytest.mark.filterwarnings("ignore:overflow encountered in cast")]  # fmt: skip
Array = np.ndarray[Any, np.dtype[Any]]
COMPILERS = sorted({"gcc", environment.CC.text or "gcc", *[c for c in ("clang", "clang-16") if shutil.which(c)]})
TARGETS = ("c", "c -mcpu=skylake-avx512", "c -mcpu=haswell", "c -mcpu=nehalem")
"""This processor; vectors of 64 and 32 bytes with instructions for halves; vectors of 16 bytes without."""
HALVES = np.arange(1 << 16, dtype="uint16").view("float16")


@cache
def numbers() -> Array:
    """Every half, what lies between two neighbours and beside that, the ends of float32, and a million drawn bits."""
    whole = HALVES.astype("float32")
    low = np.sort(whole[np.isfinite(whole)])
    between = np.append((low[1:] + low[:-1]) / 2, np.array([-65520, 65520], "float32")).astype("float32")
    beside = [np.nextafter(between, np.float32(way)) for way in (-np.inf, np.inf)]
    ends = np.array([0, -0.0, np.inf, -np.inf, np.nan, 2.0**-149, -(2.0**-149), 3.4e38, -3.4e38], "float32")
    drawn = np.random.default_rng(1).integers(0, 1 << 32, 1 << 20, "uint32").view("float32")
    return np.concatenate([whole, between, *beside, ends, drawn])


def in_rows(x: Array, lanes: int) -> Array:
    return np.resize(x, (-(-x.size // lanes), lanes))


def conversions(rows: int, lanes: int, vectors: bool = True) -> te.LoweredFunc:
    """A row of float32 rounded, rounded and widened again, and a row of float16 widened."""
    x, h = te.placeholder((rows, lanes), "float32", name="x"), te.placeholder((rows, lanes), "float16", name="h")
    outs = [te.compute((rows, lanes), lambda i, j: te.cast("float16", x[i, j]), name="rounded"),
            te.compute((rows, lanes), lambda i, j: te.cast("float32", te.cast("float16", x[i, j])), name="both"),
            te.compute((rows, lanes), lambda i, j: te.cast("float32", h[i, j]), name="widened")]  # fmt: skip
    return lowered([x, h, *outs], outs, vectors)


def lowered(args: list[te.Tensor], outs: list[te.Tensor], vectors: bool = True) -> te.LoweredFunc:
    s = te.create_schedule([out.op for out in outs])
    for out in outs if vectors else ():
        s[out].vectorize(s[out].op.axis[-1])
    return te.lower(s, args)


def called(
    func: te.LoweredFunc, inputs: list[Array], target: str = "c", options: codegen_c.Options | None = None
) -> list[Array]:
    outs = [np.full(b.shape, 77, b.dtype) for b in func.args[len(inputs) :]]
    try:
        module = codegen_c.build(func, options=options or options_for(target), flags=flags_for(target))
    except CompileError as error:
        assert "lacks instructions" in str(error)
        pytest.skip(str(error))
    module(*inputs, *outs)
    return outs


def assert_same_bits(got: Array, want: Array) -> None:
    """Numbers by their bits, and NaN for NaN."""
    assert got.dtype == want.dtype
    bits = f"uint{8 * got.itemsize}"
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    numbers = ~np.isnan(want)
    np.testing.assert_array_equal(got.view(bits)[numbers], want.view(bits)[numbers])


def assert_numpy(x: Array, h: Array, got: list[Array]) -> None:
    """What the programs of `conversions` give."""
    rounded, both, widened = got
    assert_same_bits(rounded, x.astype("float16"))
    assert_same_bits(both, x.astype("float16").astype("float32"))
    assert_same_bits(widened, h.astype("float32"))


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [16, 8, 4, 2, 7, 37])
def test_conversions_have_the_bits_of_numpy(
    lanes: int, target: str, compiler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", compiler)
    x = in_rows(numbers(), lanes)
    h = np.resize(HALVES, x.shape)
    assert_numpy(x, h, called(conversions(*x.shape), [x, h], target))


@pytest.mark.parametrize("lanes", [16, 8])
def test_longer_vectors_than_the_processor_has(lanes: int) -> None:
    """Which have no instruction for halves."""
    x = in_rows(numbers(), lanes)
    h, options = np.resize(HALVES, x.shape), codegen_c.Options(vector_bytes=4 * lanes)
    assert_numpy(x, h, called(conversions(*x.shape), [x, h], "c -mcpu=nehalem", options))


def test_scalars_have_them_too() -> None:
    x = in_rows(numbers(), 8)
    h = np.resize(HALVES, x.shape)
    assert_numpy(x, h, called(conversions(*x.shape, vectors=False), [x, h]))


def function_text(func: te.LoweredFunc, options: codegen_c.Options) -> str:
    return codegen_c.emit(func, options=options).partition("noinline")[2]


@pytest.mark.parametrize("family", PROCESSORS)
def test_no_lane_is_converted_alone(family: str) -> None:
    text = function_text(conversions(4, 48), PROCESSORS[family])
    lanes = PROCESSORS[family].vector_bytes // 4
    assert f"f16x{lanes}_to_f32x{lanes}(f32x{lanes}_to_f16x{lanes}(" in text
    assert "(_Float16)" not in text


def test_a_part_of_a_vector_is_rounded_under_a_mask() -> None:
    x = te.placeholder((3, 7), "float32", name="x")
    out = te.compute((3, 7), lambda i, j: te.cast("float32", te.cast("float16", x[i, j])), name="out")
    text = codegen_c.emit(lowered([x, out], [out]), options=PROCESSORS["avx512vl"])
    assert "f32x8_to_f16x8(load7_f32x8(" in text and "store7_f32x8(" in text


# ------------------------------------------------------------------------------------------------------ whole kernels


def half(e: te.Expr) -> te.Expr:
    return te.cast("float32", te.cast("float16", e))


def convolved(dtype: str, ending: Callable[[te.Expr], te.Expr], out: str, vectors: bool = True) -> te.LoweredFunc:
    """A 3x3 convolution of 8 channels, its sums in float32, scaled and shifted; every step is rounded to float16."""
    x, w = te.placeholder((7, 7, 8), dtype, name="x"), te.placeholder((3, 3, 8, 24), dtype, name="w")
    scale, shift = [te.placeholder((24,), "float32", name=n) for n in ("scale", "shift")]
    i, j, c = [te.reduce_axis((0, n), name) for n, name in ((3, "i"), (3, "j"), (8, "c"))]

    def product(y: te.Expr, z: te.Expr, k: te.Expr) -> te.Expr:
        return te.cast("float32", x[y + i, z + j, c]) * te.cast("float32", w[i, j, c, k])

    total = te.compute((5, 5, 24), lambda *at: te.sum(product(*at), axis=[i, j, c]), name="total")
    normal = te.compute((5, 5, 24), lambda y, z, k: half(half(total[y, z, k]) * scale[k] + shift[k]), name="normal")
    end = te.compute((5, 5, 24), lambda y, z, k: te.cast(out, te.cast("float16", ending(normal[y, z, k]))), name="end")
    s = te.create_schedule(end.op)
    s[normal].compute_inline()
    if vectors:
        s[total].compute_at(s[end], s[end].op.axis[1])
        y, z, k = s[total].op.axis
        s[total].reorder(y, z, *s[total].op.reduce_axis, k)
        for stage, axis in ((s[total], k), (s[end], s[end].op.axis[2])):
            stage.vectorize(axis)
    return te.lower(s, [x, w, scale, shift, end])


def drawn(func: te.LoweredFunc, seed: int = 0) -> list[Array]:
    """Eighths, of which sums and products are exact in float32, so that no order and no fused step shows."""
    rng = np.random.default_rng(seed)
    return [(rng.integers(-24, 25, b.shape) / 8).astype(b.dtype) for b in func.args[:-1]]


ENDINGS: dict[str, Callable[[te.Expr], te.Expr]] = {
    "none": lambda e: e,
    "relu": lambda e: te.max(e, te.const(0.0, "float32")),
    "hard swish": lambda e: e * half(te.max(te.min(e / 6.0 + 0.5, te.const(1.0, "float32")), te.const(0.0, "float32"))),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_fused_convolution_has_the_bits_of_the_interpreter(ending: str, dtype: str, target: str) -> None:
    func = convolved(dtype, ENDINGS[ending], dtype)
    inputs = drawn(func)
    want = np.full((5, 5, 24), 77, dtype)
    run(func, [*inputs, want])
    got = called(func, inputs, target)[0]
    assert_same_bits(got, want)
    assert len(np.unique(got)) > 50


@pytest.mark.parametrize("target", TARGETS)
def test_vectors_and_scalars_of_a_function_round_alike(target: str) -> None:
    def swish(e: te.Expr) -> te.Expr:
        return e * half(te.sigmoid(e))

    fast, slow = [convolved("float16", swish, "float16", vectors) for vectors in (True, False)]
    inputs = drawn(fast)
    assert_same_bits(called(fast, inputs, target)[0], called(slow, inputs, target)[0])


def test_a_convolution_of_halves_works_on_vectors() -> None:
    text = function_text(convolved("float16", ENDINGS["relu"], "float16"), PROCESSORS["avx512vl"])
    assert "(_Float16)" not in text and "total_r0 += " in text
    assert "f16x16_to_f32x16(VEC(f16x16, w[" in text


def programs() -> dict[str, Callable[[te.Tensor, te.Tensor], Callable[..., te.Expr]]]:
    return {
        "copy": lambda x, y: lambda i, j: x[i, j],
        "every second": lambda x, y: lambda i, j: te.cast("float32", x[i, 2 * j]) + te.cast("float32", y[i, j]),
        "sum of halves": lambda x, y: lambda i, j: x[i, j] + y[i, j],
        "difference of products": lambda x, y: lambda i, j: x[i, j] * y[i, j] - x[i, j] * x[i, j] * y[i, j],
        "quotient": lambda x, y: lambda i, j: x[i, j] / (y[i, j] + te.const(9.0, "float16")),
        "quotient rounded down": lambda x, y: lambda i, j: te.floordiv(x[i, j], y[i, j] + te.const(9.0, "float16")),
        "root": lambda x, y: lambda i, j: te.sqrt(te.abs(x[i, j])) + y[i, j],
        "largest": lambda x, y: lambda i, j: te.max(x[i, j], y[i, j]),
        "rows": lambda x, y: lambda i, j: te.if_then_else(i < 2, x[i, j], y[i, j]),
        "rows or one": lambda x, y: lambda i, j: te.if_then_else(i < 2, x[i, j], te.const(1.5, "float16")),
        "columns": lambda x, y: lambda i, j: te.if_then_else(j < 5, x[i, j], y[i, j]),
        "constant": lambda x, y: lambda i, j: te.const(1.5, "float16"),
        "one for all": lambda x, y: lambda i, j: y[i, 0],
        "turned": lambda x, y: lambda i, j: x[j % 4, i],
        "of float64": lambda x, y: lambda i, j: te.cast("float16", te.cast("float64", x[i, j])),
        "of int32": lambda x, y: lambda i, j: te.cast("float16", te.cast("int32", x[i, j])),
    }


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("lanes", [16, 24, 7, 40])
@pytest.mark.parametrize("name", programs())
def test_what_else_is_done_with_halves(name: str, lanes: int, target: str) -> None:
    x, y = [te.placeholder((4, 2 * lanes), "float16", name=n) for n in "xy"]
    out = te.compute((4, lanes), programs()[name](x, y), name="out")
    func = lowered([x, y, out], [out])
    inputs = drawn(func, lanes)
    want = np.full(out.shape, 77, out.dtype)
    run(func, [*inputs, want])
    assert_same_bits(called(func, inputs, target)[0], want)


OPERATIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    "+": (lambda a, b: a + b, np.add), "-": (lambda a, b: a - b, np.subtract), "*": (lambda a, b: a * b, np.multiply),
    "/": (lambda a, b: a / b, np.divide), "max": (te.max, np.maximum), "min": (te.min, np.minimum),
    "sqrt": (lambda a, b: te.sqrt(a), lambda a, b: np.sqrt(a)),
    "floor": (lambda a, b: te.floor(a), lambda a, b: np.floor(a)),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("vectors", [True, False])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_has_the_bits_of_numpy(name: str, vectors: bool, target: str) -> None:
    rng = np.random.default_rng(2)
    shape = (1 << 13, 16)
    a, b = [rng.permutation(np.resize(HALVES, shape[0] * shape[1])).reshape(shape) for _ in range(2)]
    x, y = [te.placeholder(shape, "float16", name=n) for n in "xy"]
    mine, numpys = OPERATIONS[name]
    out = te.compute(shape, lambda i, j: mine(x[i, j], y[i, j]), name="out")
    func = lowered([x, y, out], [out], vectors)
    got = called(func, [a, b], target)[0]
    want = numpys(a, b)
    zeros = (a == 0) & (b == 0) & (name in ("max", "min"))  # of which any is the larger one
    assert_same_bits(np.where(zeros, 0, got), np.where(zeros, 0, want))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_halves(target: str, dtype: str) -> None:
    """Sums in float32 are kept in vectors; those in float16 are rounded at each step, as they were."""
    a, b = te.placeholder((6, 20), "float16", name="a"), te.placeholder((20, 32), "float16", name="b")
    k = te.reduce_axis((0, 20))
    out = te.compute((6, 32), lambda i, j: te.sum(te.cast(dtype, a[i, k]) * te.cast(dtype, b[k, j]), axis=k), name="o")
    func = lowered([a, b, out], [out])
    inputs = drawn(func)
    want = np.full((6, 32), 77, dtype)
    run(func, [*inputs, want])
    assert_same_bits(called(func, inputs, target)[0], want)
