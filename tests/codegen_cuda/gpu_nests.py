"""Hand-written GPU nests, and the one way to check them: interpreter and emulated CUDA must agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import te_lite as te
from codegen_cuda import CudaProgram, available_compilers, emit
from codegen_cuda.emulation.emulator import run_program
from te_lite.expr.expr import Combiner, Reduce, Var
from te_lite.loops.stmt import For, ForKind, LoweredFunc, Stmt
from te_lite.meaning import interp
from tests.codegen_c.c_programs import assert_close, func, nest, poisoned, random_array, v
from tests.nonempty import nonempty

__all__ = ["argmax_of", "check", "func", "kernel", "nest", "sum_of", "v"]
NO_COMPILER = "NVRTC is not installed (pip install nvidia-cuda-nvrtc)"
HAVE_COMPILER = bool(available_compilers())

Axes = Sequence[tuple[str, Var, int]]


def kernel(axes: Axes, body: Stmt) -> Stmt:
    """`body` in block and thread loops: `("blockIdx.x", variable, extent)`, outside in."""
    for tag, var, extent in reversed(axes):
        body = For(var, extent, ForKind.BLOCK if tag.startswith("block") else ForKind.THREAD, body, tag)
    return body


def sum_of(dtype: str, combine: Any = te.sum) -> Combiner:
    k = te.reduce_axis((0, 8), "k")
    e = combine(te.placeholder((8,), name="A", dtype=dtype)[k], axis=k)
    assert isinstance(e, Reduce)
    return e.combiner


def argmax_of(index: str = "int32", value: str = "float32") -> Combiner:
    k = te.reduce_axis((0, 8), "k")
    a = te.placeholder((8,), name="A", dtype=value)
    e = te.argmax((te.cast(index, k), a[k]), axis=k)[0]
    assert isinstance(e, Reduce)
    return e.combiner


def check(f: LoweredFunc, seed: int = 0, inputs: Sequence[np.ndarray[Any, Any]] | None = None) -> CudaProgram:
    """Run `f` in the interpreter and, as CUDA, in the emulator; outputs start poisoned."""
    rng = np.random.default_rng(seed)
    program = emit(f)
    stored = interp.stored_in(f.body)
    given = iter(inputs or ())
    want = [poisoned(b) if b in stored else next(given, None) for b in f.args]
    want = [random_array(rng, b) if a is None else a for a, b in zip(want, f.args, strict=True)]
    got = [a.copy() for a in want]
    interp.run(f, want)
    run_program(program, got)
    for b, x, y in nonempty(zip(f.args, got, want, strict=True)):
        assert_close(x, y, b.dtype)
    return program
