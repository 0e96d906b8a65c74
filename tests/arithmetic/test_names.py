"""Whatever the names of tensors, axes and functions are, the text compiles and computes the same."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pytest

import codegen_c
from codegen_c.compile import compiler_command
from codegen_c.emit import entry_name
from codegen_cuda import available_compilers, compile_source, emit
from codegen_cuda.emulation.emulator import run_program
from te_lite.expr.expr import Var, binary, call, cast, const
from te_lite.loops.names import Names, identifier, is_reserved
from te_lite.loops.stmt import Buffer, For, ForKind, LoweredFunc, Stmt, Store, seq
from tests.arithmetic.backends import HAS_GXX

HEADERS = "".join(f"#include <{h}>\n" for h in ("math.h", "stdbool.h", "stdint.h", "stdio.h", "stdlib.h", "time.h"))
OURS = [
    "linux", "unix", "NULL", "expf", "min_f32", "max_i64", "floordiv_i32", "floordiv0_i8", "f32_to_i32", "f32x8",
    "i32x16", "min_f32x8", "load7_f32x8", "store3_f64x4", "f32x8_to_i32x8", "copy_async", "copy_async_wait", "VEC",
    "exp_f32", "exp2_f32", "exp_f32x16", "expm_f32", "bits_f32", "float_i32", "pick_f32", "INT32_MIN",
    "SHUFFLE", "scratch", "number", "start", "stop", "for", "class", "template", "auto", "int", "float4", "half",
    "make_float4", "threadIdx", "blockIdx", "warpSize", "asm", "__global__", "__shared__", "__syncthreads", "_Bool",
    "__int_as_float", "__FILE__", "__LINE__", "_Float16", "EMU_ASYNC", "EMU_CHECKED", "emu_barrier", "shared_memory",
    "fmaxf", "fminf", "rsqrtf", "isnan", "min", "max", "abs", "printf", "main", "omp_get_num_threads", "errno",
]  # fmt: skip
ODD = [
    "",
    "1",
    "2nd",
    "a.b",
    "a_b",
    "a b",
    "a-b",
    "é",
    "ü",
    "名前",
    "名称",
    "x",
    "x_1",
    "x_1_1",
    "A",
    "A_1",
    "x" * 300,
    "*/ x",
    "/*",
    "a\nb",
    "\\",
]


def _preprocessed(*flags: str) -> str:
    command = [*compiler_command(), "-std=gnu11", "-fopenmp", "-march=native", "-E", *flags, "-x", "c", "-"]
    return subprocess.run(command, input=HEADERS, capture_output=True, text=True, check=True).stdout


@lru_cache(maxsize=1)
def macros() -> frozenset[str]:
    """What the compiler and our headers define without arguments."""
    return frozenset(re.findall(r"#define (\w+)(?!\()\b", _preprocessed("-dM")))


@lru_cache(maxsize=1)
def known() -> tuple[str, ...]:
    """Names that mean something to a compiler or to us; those reserved for compilers thinned out."""
    words = set(re.findall(r"[A-Za-z_]\w*", _preprocessed("-P"))) | macros()
    plain = {w for w in words if not w.startswith("_")}
    return tuple(dict.fromkeys([*OURS, *ODD, *sorted(plain), *sorted(words - plain)[::10]]))


def program(names: tuple[str, ...], function: str = "program") -> LoweredFunc:
    """A buffer and an axis for every name; the first ones in arithmetic with helpers, types and library functions."""
    buffers = tuple([Buffer(name, "float32", (4,)) for name in names])

    def body() -> Iterator[Stmt]:
        for k, b in enumerate(buffers):
            i = Var(b.name)
            value = call("exp", binary("min", b[i], const(0.5))) + cast("float32", cast("int32", b[i]) // (i - 1))
            yield For(i, 4, ForKind.SERIAL, Store(b, i, value if k == 0 else b[i] + 1.0))

    return LoweredFunc(function, buffers, seq(*body()))


def given(count: int) -> list[np.ndarray]:
    return [np.array([-7.5, 0.25, 3.0, 9.9], "float32") for _ in range(count)]


def check(names: tuple[str, ...], arrays: list[np.ndarray]) -> None:
    (x,) = given(1)
    parts = [int(v) // (i - 1) if i != 1 else 0 for i, v in enumerate(x)]
    np.testing.assert_allclose(arrays[0], np.exp(np.minimum(x, 0.5)) + np.array(parts, "float32"), rtol=1e-5)
    for name, got in zip(names[1:], arrays[1:], strict=True):
        np.testing.assert_array_equal(got, x + 1, err_msg=name)


def groups() -> list[tuple[str, ...]]:
    """All of our names and the odd ones, in two groups; in the others (slowly) all that are known, however many."""
    ours = (*OURS, *ODD)
    others = tuple([name for name in known() if name not in ours])
    return [ours[:40], ours[40:], *[others[k::OTHERS] for k in range(OTHERS)]]


USUAL, OTHERS = (0, 1), 38
EVERY = [*USUAL, *[pytest.param(2 + k, marks=pytest.mark.slow) for k in range(OTHERS)]]


@pytest.mark.parametrize("k", EVERY)
def test_names_of_tensors_and_axes_in_c(k: int) -> None:
    names = groups()[k]
    arrays = given(len(names))
    codegen_c.build(program(names))(*arrays)
    check(names, arrays)


@pytest.mark.skipif(not HAS_GXX, reason="g++ is not on PATH")
@pytest.mark.parametrize("k", EVERY)
def test_names_of_tensors_and_axes_in_cuda(k: int) -> None:
    names = groups()[k]
    arrays = given(len(names))
    run_program(emit(program(names, "expf")), arrays)
    check(names, arrays)


@pytest.mark.skipif(not available_compilers(), reason="no compiler for CUDA")
@pytest.mark.parametrize("k", EVERY)
def test_names_that_nvrtc_compiles(k: int) -> None:
    compile_source(emit(program(groups()[k], "expf")).source, "sm_90")


def test_names_of_functions() -> None:
    for name in known():
        entry = entry_name(LoweredFunc(name, (), seq()))
        assert re.fullmatch(r"[A-Za-z_]\w*", entry) and entry not in macros() and not is_reserved(entry), name
    for name in ("expf", "linux", "main", "1 é", "x_seconds", "NULL", "network_run"):
        arrays = given(1)
        codegen_c.build(program(("x",), name))(*arrays)
        check(("x",), arrays)


def test_every_macro_is_reserved() -> None:
    assert [m for m in sorted(macros()) if not is_reserved(m)] == []


def test_names_that_differ_in_replaced_characters_only() -> None:
    names = Names()
    made = [names.fresh(name) for name in [*ODD, *ODD, *OURS, *OURS]]
    assert len(set(made)) == len(made) and all(identifier(m) == m for m in made)
