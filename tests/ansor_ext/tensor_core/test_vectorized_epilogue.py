"""Stores of 16 bytes by lanes that exchange parts: which stores become some, and where elements go."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor_ext.tensor_core.instructions import QuadStore
from codegen_cuda import CudaProgram, emit
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from te_lite import ComputeDAG, topi
from te_lite.errors import InterpError, UnsafeError
from te_lite.expr.expr import BufferLoad, as_expr, binary, compare, const
from te_lite.loops.stmt import If, Stmt, Store, bodies, with_bodies
from te_lite.meaning.interp import run
from tests.amount import some
from tests.ansor_ext.tensor_core.mma_schedules import Tiled
from tests.ansor_ext.tensor_core.test_tensor_core_rule import Checker, drawn

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
HALVES = Tiled("m16n8k16_f16_f16", (53, 64, 32), (32, 64, 32), (16, 32), turned=True, matrices="ab")
FLOATS = replace(HALVES, name="m16n8k16_f16_f32")


def lowered(of: Tiled) -> te.LoweredFunc:
    tensors = of.tensors()
    return te.lower(of.schedule(tensors), tensors)


def wrong(program: CudaProgram, of: Tiled) -> str | None:
    a, b = of.inputs(np.random.default_rng(0))
    out = np.full(of.sizes[:2], 77, of.op.sum.dtype)
    run_program(program, [a, b, out])
    return of.wrong(a, b, out)


@pytest.mark.parametrize(
    "of, call, lanes",
    [(HALVES, "store_quad(", "15u << (threadIdx.x & 28)"), (replace(HALVES, sizes=(64, 64, 32)), "store_quad(", "~"),
     (FLOATS, "store_pair(", "15u << (threadIdx.x & 28)"), (replace(FLOATS, warp=(16, 16)), "store_pair(", "15u <<"),
     (replace(FLOATS, sizes=(64, 36, 32)), "", ""), (replace(FLOATS, sizes=(64, 24, 32), warp=(16, 24)), "", ""),
     (replace(HALVES, sizes=(64, 60, 32)), "", ""), (replace(HALVES, sizes=(64, 44, 32)), "", ""),
     (replace(HALVES, warp=(16, 16)), "", "")],
)  # fmt: skip
def test_tiles_of_columns_are_stored_together(of: Tiled, call: str, lanes: str) -> None:
    """Of halves four, of floats two; not beyond the last column, nor of rows that begin elsewhere than at 16 bytes."""
    body = emit(lowered(of)).source.split('extern "C"')[1]
    found = [line for line in body.splitlines() if "store_" in line]
    assert len(found) == (call != "")
    assert not call or (call in found[0] and lanes.replace("~", "0xffffffffu") in found[0])


@emulated
@pytest.mark.parametrize("sizes", [(53, 64, 32), (64, 128, 32)])
@pytest.mark.parametrize("of", [HALVES, FLOATS], ids=["halves", "floats"])
def test_elements_are_stored_where_they_were(of: Tiled, sizes: tuple[int, int, int]) -> None:
    of = replace(of, sizes=sizes)
    assert wrong(emit(lowered(of)), of) is None


@emulated
@pytest.mark.parametrize(
    "of, old, new",
    [(HALVES, "odd ? x[k] : x[k + 1]", "x[k]"), (HALVES, "if (high) x[k] = other;", "if (odd) x[k] = other;"),
     (HALVES, ", 2);", ", 1);"), (HALVES, "15u << (threadIdx.x & 28)", "0xffffffffu"),
     (HALVES, "15u << (threadIdx.x & 28)", "3u << (threadIdx.x & 30)"),
     (FLOATS, "if (odd) x[k] = other;", "if (!odd) x[k] = other;"), (FLOATS, "x[k + 2], 1);", "x[k + 2], 2);")],
)  # fmt: skip
@pytest.mark.one_in(2)
def test_a_wrong_exchange_is_caught(of: Tiled, old: str, new: str) -> None:
    made = emit(lowered(of))
    assert old in made.source
    try:
        assert wrong(replace(made, source=made.source.replace(old, new)), of) is not None
    except EmulatorError:
        return


@emulated
def test_what_follows_a_product_is_computed_before_the_exchange() -> None:
    """Bias and another addend, which are read in guarded rows only."""
    a, b = te.placeholder((53, 64), name="A", dtype="float16"), te.placeholder((64, 64), name="B", dtype="float16")
    bias, other = te.placeholder((64,), name="bias"), te.placeholder((53, 64), name="other", dtype="float16")
    sums = topi.nn.bias_add(topi.nn.matmul(a, b, out_dtype="float32", transpose_b=True), bias)
    result = topi.cast(topi.nn.relu(topi.add(sums, topi.cast(other, "float32"))), "float16")
    checker = Checker(ComputeDAG([a, b, bias, other, result]))
    funcs = [te.lower(state, checker.dag.tensors) for state in drawn(checker.dag, 2, 0)]
    found = [func for func in funcs if "store_quad" in emit(func).source]
    assert found and [wrong for func in found[: some(3, 1)] if (wrong := checker.emulated(func))] == []


def changed(func: te.LoweredFunc, change: Callable[[Store], Stmt]) -> te.LoweredFunc:
    """The program with other stores to its result."""

    def made(s: Stmt) -> Stmt:
        if isinstance(s, Store) and s.buffer is func.args[-1]:
            return change(s)
        return with_bodies(s, tuple([made(b) for b in bodies(s)]))

    return replace(func, body=made(func.body))


def test_what_a_kernel_reads_is_stored_as_it_was() -> None:
    """Lanes may read what they stored themselves."""
    func = lowered(HALVES)
    out = func.args[-1]
    assert "store_quad" in emit(func).source
    added = changed(func, lambda s: Store(out, s.index, binary("+", s.value, BufferLoad(out, s.index))))
    assert "store_quad" not in emit(added).source


def test_what_a_condition_reads_may_differ_between_lanes() -> None:
    """A sum in registers, which has the same index in all of them."""
    of = replace(HALVES, sizes=(64, 64, 32))
    positive = changed(lowered(of), lambda s: If(compare(">", s.value, const(0.0, s.value.dtype)), s))
    assert "store_quad" not in emit(positive).source


def test_only_emitters_write_them() -> None:
    func = lowered(HALVES)
    first = BufferLoad(func.args[-1], as_expr(0))
    strange = replace(func, body=QuadStore(first, first, 4, True))
    with pytest.raises(UnsafeError, match="is for emitters alone"):
        emit(strange)
    with pytest.raises(InterpError, match="only kernels which an emitter writes"):
        run(strange, [np.zeros(b.shape, b.dtype) for b in func.args])
