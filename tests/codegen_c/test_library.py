"""Kernels linked into one library: the driver's calls, scratch memory from outside, and what is refused."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import te_lite as te
from ansor.core.device.network_plan import ExecutionPlan, Step, Storage
from ansor.core.files.private_files import read_sealed
from benchmarks import workloads as benchmarks
from codegen_c import CompileError, Options, emit
from codegen_c.compile import object_code
from codegen_c.library import driver_source, hoist_scratch, library_file, link
from te_lite import topi
from te_lite.loops.stmt import Alloc, stmts_of
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead
from tests.oracle import Oracle

SCALE = """
void scale(const float *x, float *y) { for (int k = 0; k < 6; ++k) y[k] = 2 * x[k]; }
"""
SHIFT = """
void shift(const float *x, float *y) { for (int k = 0; k < 6; ++k) y[k] = x[k] + 1; }
"""


def pointers(*arrays: np.ndarray) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])


def loaded(driver: str, **kernels: str) -> ctypes.CDLL:
    objects = {name: object_code(source, name) for name, source in {**kernels, "network": driver}.items()}
    library = ctypes.CDLL(str(library_file(link(objects))))
    steps = [ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
    library.network_run.argtypes = steps
    library.network_seconds.argtypes = [ctypes.c_int64, *steps]
    library.network_seconds.restype = ctypes.c_double
    return library


def plan_of(*steps: Step) -> ExecutionPlan:
    """Of an input, an output, and the arena's bytes from 64 and from 128 on."""
    storages = Storage("input", 24), Storage("output", 24), Storage("arena", 24, 64), Storage("arena", 24, 128)
    return ExecutionPlan(storages, steps, (), (), (), 256)


def test_steps_run_in_order_on_their_pointers() -> None:
    """y = (2 x + 1) * 2, with the arena's bytes 64 and 128 in between."""
    calls = Step("scale", (0, 2), (2,)), Step("shift", (2, 3), (3,)), Step("scale", (3, 1), (1,))
    library = loaded(driver_source(plan_of(*calls)), scale=SCALE, shift=SHIFT)
    given, out, arena = np.arange(6, dtype="float32"), np.full(6, np.nan, "float32"), np.full(256, 255, np.uint8)
    data = pointers(given, out)
    library.network_run(0, 3, arena.ctypes.data, data)
    np.testing.assert_array_equal(out, (2 * given + 1) * 2)
    np.testing.assert_array_equal(arena[128:152].view("float32"), 2 * given + 1)
    out[:] = np.nan
    library.network_run(0, 2, arena.ctypes.data, data)
    assert np.isnan(out).all()
    assert library.network_seconds(5, 2, 3, arena.ctypes.data, data) > 0
    np.testing.assert_array_equal(out, (2 * given + 1) * 2)


def test_no_steps() -> None:
    loaded(driver_source(plan_of())).network_run(0, 0, None, None)


def test_steps_that_are_taken_again_while_a_bool_is_true() -> None:
    """The bool says that the last of three bytes is not 0 yet; `down` makes that so after as many turns as it says."""
    down = "void down(void *p) { unsigned char *n = p;  n[0] = --n[1] != 0; }"
    storages = [Storage("output", 24), Storage("output", 24), Storage("output", 1), Storage("arena", 1)]
    steps = (
        Step("scale", (0, 1), (1,)),
        Step("down", (2,), (2,)),
        Step("shift", (1, 0), (0,)),
        Step("", (), (), (2,), (), 3),
    )
    plan = ExecutionPlan(tuple(storages), steps, (), (), (), 64)
    library = loaded(driver_source(plan), scale=SCALE, shift=SHIFT, down=down)
    for turns in range(1, 6):
        x, y, left = np.arange(6, dtype="float32"), np.empty(6, "float32"), np.array([1, turns], np.uint8)
        library.network_run(0, 4, None, pointers(x, y, left))
        want = np.arange(6, dtype="float32")
        for _ in range(turns):
            want = want * 2 + 1
        np.testing.assert_array_equal(x, want)
        library.network_run(3, 4, None, pointers(x, y, np.array([1, 1], np.uint8)))  # alone it goes nowhere
        np.testing.assert_array_equal(x, want)


def test_what_the_compiler_refuses_is_named() -> None:
    with pytest.raises(CompileError, match=r"refuses kernel broken: program.c:1:\d+: error"):
        object_code("void broken(", "broken")
    with pytest.raises(CompileError, match=r"refuses to link the library: .*multiple definition"):
        link({"a": object_code(SCALE), "b": object_code(SCALE)})
    with pytest.raises(CompileError, match=r"refuses to link the library: .*undefined reference to `scale'"):
        link({"network": object_code(driver_source(plan_of(Step("scale", (0, 0), ()))))})


def test_equal_bytes_are_one_file() -> None:
    code = link({"a": object_code(SCALE)})
    path = library_file(code)
    assert path == library_file(bytes(code)) and read_sealed(path) == code
    assert not list(Path(path.parent).glob("build_*"))


def two_matmuls() -> tuple[te.ComputeDAG, te.State]:
    """D = relu(A B) C, with the relu kept in memory as a whole."""
    a, b, c = [te.placeholder((40, 40), name=n) for n in "ABC"]
    first = topi.nn.relu(topi.nn.matmul(a, b))
    return (dag := te.ComputeDAG([a, b, c, topi.nn.matmul(first, c)])), dag.init_state


def copied_matmul() -> tuple[te.ComputeDAG, te.State]:
    """C = A B, both copied as a whole into what is called local."""
    dag = te.ComputeDAG(benchmarks.matmul(40, 40, 40))
    return dag, apply(apply(dag.init_state, CacheRead(1, "local", (2,))), CacheRead(0, "local", (3,)))


@pytest.mark.parametrize("program", [two_matmuls, copied_matmul])
@pytest.mark.parametrize("stack_bytes, hoisted", [(1024, 2), (1 << 20, 0)])
def test_scratch_comes_from_outside(
    stack_bytes: int, hoisted: int, program: Callable[[], tuple[te.ComputeDAG, te.State]]
) -> None:
    dag, state = program()
    oracle = Oracle(dag, np.random.default_rng(0))
    func = te.lower(state, dag.tensors, "two")
    whole, scratch = hoist_scratch(func, Options(stack_bytes=stack_bytes))
    assert len(scratch) == hoisted and whole.args == (*func.args, *scratch)
    assert all(b.size == 1600 for b in scratch)
    left = {s.buffer for s in stmts_of(whole.body) if isinstance(s, Alloc)}
    assert len(left) == 2 - hoisted and not left & set(scratch)
    call = ctypes.CDLL(str(library_file(link({"two": object_code(emit(whole, "two"))})))).two

    def run(func: te.LoweredFunc, args: object) -> None:
        rubbish = [np.full(b.size, np.nan, "float32") for b in scratch]
        call(*[ctypes.c_void_p(x.ctypes.data) for x in (*args, *rubbish)])  # type: ignore[misc]

    assert oracle.mismatch(whole, run) is None
