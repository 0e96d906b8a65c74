"""Functions of float32 in C: errors over all exponents against float64, special values, and that they are vectors.

`python -m tests.codegen_c.function_errors` takes all numbers; here are some of each exponent and sign.
"""

from __future__ import annotations

import ctypes
import math
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from codegen_c.compile import FLAGS, compiled, compiler_command, processor_flags
from codegen_c.functions import ULP
from codegen_c.processor import PROCESSORS, Options
from tests.codegen_c.function_errors import PLAIN, worst
from tests.nonempty import nonempty

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")

Array = np.ndarray[Any, np.dtype[Any]]
erf = np.vectorize(math.erf, otypes=[np.float64])
WANTED: dict[str, Callable[[Array, Array], Array]] = {
    "exp": lambda x, y: np.exp(x),
    "exp2": lambda x, y: np.exp2(x),
    "log": lambda x, y: np.log(x),
    "log2": lambda x, y: np.log2(x),
    "tanh": lambda x, y: np.tanh(x),
    "erf": lambda x, y: erf(x),
    "sigmoid": lambda x, y: np.exp(np.minimum(x, 0)) / (1 + np.exp(-np.abs(x))),
    "sqrt": lambda x, y: np.sqrt(x),
    "rsqrt": lambda x, y: 1 / np.sqrt(x),
    "root": lambda x, y: np.power(x, np.full_like(x, 0.5)),
    "square": lambda x, y: x * x,
    "cube": lambda x, y: x * x * x,
    "pow": np.power,
}
POWERS = {"root": 0.5, "square": 2.0, "cube": 3.0}
LANES = 16


def program(vectorized: bool, dtype: str = "float32") -> te.LoweredFunc:
    """All functions of x (and y), one stage each: as explicit vectors, or as plain loops."""
    x, y = [te.placeholder((len(NUMBERS),), dtype, name=name) for name in "xy"]

    def of(name: str) -> Callable[[te.Var], te.Expr]:
        if name in POWERS:
            return lambda i: te.power(x[i], te.const(POWERS[name], dtype))
        return lambda i: te.power(x[i], y[i]) if name == "pow" else te.call(name, x[i])

    outs = [te.compute(x.shape, of(name), name=f"{name}_out") for name in WANTED]
    s = te.create_schedule([out.op for out in outs])
    for out in outs:
        if vectorized:
            s[out].vectorize(s[out].split(out.op.axis[0], factor=LANES)[1])
    return te.lower(s, [x, y, *outs], name="functions")


def drawn_numbers() -> tuple[Array, Array]:
    """Bases of every exponent and sign, special ones among them, and exponents of powers: of all sizes and whole."""
    rng = np.random.default_rng(7)
    mantissas = np.concatenate([rng.integers(0, 1 << 23, (512, 22)), np.tile([0, (1 << 23) - 1], (512, 1))], 1)
    x = ((np.arange(512)[:, None] << 23) | mantissas).astype(np.uint32).view(np.float32).ravel()
    near = [1 + 2**-23, 1 - 2**-24, -1 - 2**-23, 2**24 - 1, 1 - 2**24, 2**24, 2**23 - 0.5]
    ends = [2**31, -(2**31), 1e-45, -1e-45, np.inf, -np.inf, np.nan]
    special = np.array([0, -0.0, 1, -1, 0.5, -0.5, 2, -2, 3, -3, *near, *ends], "f4")
    with np.errstate(all="ignore"):
        fits = rng.uniform(-150, 150, x.size) / np.maximum(np.abs(np.log2(np.abs(x))), 1e-6)
    kinds = [rng.permutation(x), rng.integers(-40, 40, x.size), rng.uniform(-8, 8, x.size), fits]
    y = np.choose(rng.integers(0, 4, x.size), kinds)
    n = len(special)
    return np.concatenate([x, np.repeat(special, n)]), np.concatenate([y, np.tile(special, n)]).astype("f4")


NUMBERS, EXPONENTS = drawn_numbers()  # a multiple of LANES: the last vectors are not scalars


@lru_cache(maxsize=8)
def results(vectorized: bool, flags: tuple[str, ...] = FLAGS, options: Options | None = None) -> dict[str, Array]:
    """What the compiled program computes."""
    source = codegen_c.emit(program(vectorized), options=options)
    run = ctypes.CDLL(str(compiled(source, flags, ".so", ("-lm",), "the functions")))["functions"]
    outs = {name: np.full(NUMBERS.shape, np.float32(77)) for name in WANTED}
    run(*[ctypes.c_void_p(a.ctypes.data) for a in (NUMBERS, EXPONENTS, *outs.values())])
    return outs


def errors(got: Array, want: Array) -> Array:
    """In units in the last place of the float64 that is wanted; infinite for a wrong NaN or sign."""
    wrong = (np.isnan(got) != np.isnan(want)) | (~np.isnan(want) & (np.signbit(got) != np.signbit(want)))
    size, near = [np.minimum(np.abs(a.astype("f8")), 2.0**128) for a in (want, got)]
    unit = np.ldexp(1.0, np.maximum(np.frexp(np.minimum(size, 3e38))[1], -125) - 24)
    return np.where(wrong, np.inf, np.nan_to_num(np.abs(near - size) / unit))


def assert_right(outs: dict[str, Array]) -> None:
    for name, got in nonempty(outs.items()):
        with np.errstate(all="ignore"):
            found = errors(got, WANTED[name](NUMBERS.astype("f8"), EXPONENTS.astype("f8")))
        k = int(found.argmax())
        assert found[k] <= ULP[name] + (name == "cube"), (name, found[k], NUMBERS[k], EXPONENTS[k], got[k])


def test_the_bounds_are_within_those_of_the_checker() -> None:
    assert max(ULP.values()) <= 4 and set(ULP) == set(WANTED)


def test_every_exponent() -> None:
    assert_right(results(True))


def test_every_exponent_without_fused_multiply_add() -> None:
    assert_right(results(True, PLAIN, PROCESSORS["sse"]))


def test_scalars_and_vectors_are_the_same_to_the_bit() -> None:
    scalars = results(False, (*FLAGS, "-fno-tree-vectorize"))
    for other in (results(True), results(False)):
        for name, got in nonempty(other.items()):
            np.testing.assert_array_equal(got, scalars[name], name)
            numbers = ~np.isnan(got)
            np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(scalars[name])[numbers], name)


def test_float16_is_computed_in_float32() -> None:
    x = np.linspace(-3, 3, len(NUMBERS), dtype=np.float16)
    outs = {name: np.full(x.shape, np.float16(77)) for name in WANTED}
    codegen_c.build(program(False, "float16"))(x, x, *outs.values())
    with np.errstate(all="ignore"):
        for name, got in outs.items():
            want = WANTED[name](x.astype("f8"), x.astype("f8"))
            np.testing.assert_allclose(got.astype("f8"), want.astype(np.float16), 2e-3, 1e-3, err_msg=name)


def assembly(source: str, processor: str = "native") -> str:
    flags = [f"-march={processor}" if f == "-march=native" else f for f in FLAGS if f != "-shared"]
    command = [*compiler_command(), *flags, *processor_flags(compiler_command()), "-x", "c", "-S", "-", "-o", "-"]
    text = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout
    return text[text.index("\nfunctions:") : text.index("\nfunctions_seconds:")]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 assembly")
@pytest.mark.parametrize("vectorized", [True, False])
def test_the_loops_are_vectors(vectorized: bool) -> None:
    """No call, and no arithmetic on one number at a time: what is compiled has vector instructions only."""
    source = codegen_c.emit(program(vectorized))
    assert [f" {name}_f32x" in source for name in WANTED] == [vectorized] * len(WANTED)
    text = assembly(source)
    assert re.findall(r"\bcall\b.*|\bv?(?:mul|add|sub|div|sqrt|fn?m(?:add|sub)\d*)s[sd]\b.*", text) == []


@pytest.mark.skipif(platform.machine() != "x86_64", reason="reads x86 assembly")
def test_vectors_of_avx512_are_computed_whole() -> None:
    """Of the single loop over the lanes of a vector no halves are left; `pow` has two vectors of float64."""
    text = assembly(codegen_c.emit(program(True), options=PROCESSORS["avx512vl"]), "skylake-avx512")
    fused = re.findall(r"\bvfn?m(?:add|sub)\d*ps\b.*%(.)mm", text)
    assert set(fused) == {"z"} and len(fused) > 50


def test_functions_are_written_where_they_are_used() -> None:
    x = te.placeholder((8,), name="x")
    plain = te.compute((8,), lambda i: x[i] + 1.0, name="o")
    assert "_f32(" not in codegen_c.emit(te.lower(te.create_schedule(plain.op), [x, plain]))
    wide = te.placeholder((8,), "float64", name="x")
    double = te.compute((8,), lambda i: te.exp(wide[i]), name="o")
    text = codegen_c.emit(te.lower(te.create_schedule(double.op), [wide, double]))
    assert "_f32(" not in text and "= exp(" in text


@pytest.mark.slow
@pytest.mark.parametrize("flags", [FLAGS, PLAIN], ids=["host", "plain"])
@pytest.mark.parametrize("name", ["exp", "exp2", "log", "log2", "tanh", "erf", "sigmoid", "pow"])
def test_all_numbers(name: str, flags: Sequence[str]) -> None:
    assert worst(name, flags)[0] <= ULP[name]


@pytest.mark.parametrize(("rows", "calls"), [(8, "inline"), (9, "__attribute__((noinline))")])
def test_a_long_function_is_written_out_a_few_times(rows: int, calls: str) -> None:
    """Compilers take time for each copy."""
    a, b = te.placeholder((3, rows, 5), "float32", name="a"), te.placeholder((5, LANES), "float32", name="b")
    k = te.reduce_axis((0, 5), name="k")
    c = te.compute((3, rows, LANES), lambda n, i, j: te.sum(a[n, i, k] * b[k, j], axis=k), name="c")
    d = te.compute(c.shape, lambda n, i, j: te.erf(c[n, i, j]), name="d")
    s = te.create_schedule(d.op)
    s[c].compute_at(s[d], d.op.axis[0])
    s[c].reorder(c.op.axis[0], k, *c.op.axis[1:])
    for stage, axes in ((s[c], c.op.axis), (s[d], d.op.axis)):
        stage.unroll(axes[1])
        stage.vectorize(axes[2])
    func = te.lower(s, [a, b, d])
    source = codegen_c.emit(func, options=PROCESSORS["avx512vl"])
    assert re.findall(r"static (\S+) __attribute__\(\(flatten\)\)", source) == [calls]
    rng = np.random.default_rng(rows)
    x, y = [rng.standard_normal(t.shape, np.float32) for t in (a, b)]
    out, whole = [np.full(d.shape, np.nan, np.float32) for _ in range(2)]
    codegen_c.build(func)(x, y, out)
    codegen_c.build(te.lower(te.create_schedule(d.op), [a, b, d]))(x, y, whole)
    want = erf(x.astype("f8") @ y.astype("f8"))
    assert np.abs(out - want).max() <= 1e-6 and np.abs(whole - want).max() <= 1e-6
