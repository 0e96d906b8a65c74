"""Rings of tiles that the copy engine fetches: results, what is refused, and what spoilt kernels are caught by."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor_ext.pipeline.steps import Pipeline
from ansor_ext.tensor_core.instructions import RingCall
from codegen_cuda import CudaProgram, EmitError, compile_source, emit
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from te_lite.expr.expr import BufferLoad, binary
from te_lite.expr.visit import transform
from te_lite.loops.stmt import (
    Alloc,
    Barrier,
    For,
    ForKind,
    If,
    Stmt,
    Store,
    allocated,
    bodies,
    seq,
    stmts_of,
    with_bodies,
)
from te_lite.meaning.interp import run
from te_lite.schedule.step import from_json, to_json
from tests.ansor_ext.tensor_core.mma_schedules import GROUPS, RINGS, Ring, nearest_tf32
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
compiled = pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
HALF = RINGS["half"]
ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "int32": 0.0}
"""Half a unit in the last place of a result."""


def lowered(program: Ring) -> te.LoweredFunc:
    tensors = program.tensors()
    return te.lower(program.schedule(tensors), tensors)


def arrays_of(program: Ring) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Random inputs, a poisoned output, the exact result of what is read of them, and how far the output may be off."""
    rng = np.random.default_rng(0)
    a, b = program.inputs(rng)
    z = [rng.standard_normal(program.sizes[1]).astype("float32")] if program.bias else []
    read = nearest_tf32 if a.dtype == "float32" else np.asarray
    x, y = [read(v).astype("float64") for v in (a.T if program.across else a, b.T if program.turned else b)]
    exact, size = x @ y + (z[0] if z else 0), np.abs(x) @ np.abs(y) + 8
    unit = ROUNDED[program.op.sum.dtype]
    error = program.sizes[2] // program.op.k * unit * size * 1.01 + ROUNDED[program.out] * np.abs(exact)
    return [a, b, *z, np.full(exact.shape, 77, program.out)], exact, error


def assert_right(program: Ring, execute: Callable[[list[np.ndarray]], object]) -> None:
    arrays, exact, error = arrays_of(program)
    execute(arrays)
    assert (np.abs(arrays[-1].astype("float64") - exact) <= error).all()


@emulated
@pytest.mark.parametrize("name", RINGS)
@pytest.mark.one_in(3)
def test_programs(name: str) -> None:
    """The emulator, against float64."""
    program = RINGS[name]
    made = emit(lowered(program))
    assert "ring_open" in made.source and "box_fetch_2d" in made.source
    assert_right(program, lambda arrays: run_program(made, arrays))


@pytest.mark.parametrize("name", ["half, with bias", "half, two groups, many columns", "tf32"])
@pytest.mark.one_in(2)
def test_the_interpreter_knows_no_ring(name: str) -> None:
    """What the program means before it is written as roles."""
    program = replace(RINGS[name], sizes=(70, 136, 104))
    func = lowered(program)
    assert not [s for s in stmts_of(func.body) if isinstance(s, RingCall)]
    assert_right(program, lambda arrays: run(func, arrays))


@compiled
@pytest.mark.parametrize("name", RINGS)
@pytest.mark.one_in(4)
def test_nvrtc_keeps_sums_in_registers(name: str) -> None:
    """And shares registers out between roles: what it cannot is an error (`compile.py`)."""
    (found,) = compile_source(emit(lowered(RINGS[name])).source, "sm_90").resources
    assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0)


def test_results_are_stored_in_boxes_where_lines_are_long() -> None:
    narrow = replace(HALF, turned=True, block=(64, 16, 64), warp=(16, 16), out="float16")
    for program, boxes in ((HALF, True), (replace(HALF, out="float16"), True), (narrow, False)):
        source = emit(lowered(program)).source
        assert ("box_store_2d" in source) == boxes
        (kernel,) = emit(lowered(program)).kernels
        assert len(kernel.maps) == 2 + boxes


@emulated
def test_maps_say_what_is_rounded() -> None:
    """Both factors, as they are fetched; without it the result would be another one."""
    program = replace(RINGS["tf32"], sizes=(70, 72, 136))
    made = emit(lowered(program))
    (kernel,) = made.kernels
    assert [m.dtype for m in kernel.maps] == ["tfloat32", "tfloat32", "float32"]
    arrays, exact, error = arrays_of(program)
    for of in (0, 1):
        maps = [replace(m, dtype="float32") if m.argument == of else m for m in kernel.maps]
        run_program(replace(made, kernels=(replace(kernel, maps=tuple(maps)),)), arrays)
        assert (np.abs(arrays[-1] - exact) > error).any()


def test_columns_are_stored_once_where_the_result_may_replace_what_is_read() -> None:
    """Lines divide them then, or registers are stored."""
    for columns, boxes in ((80, False), (96, True)):
        wide = replace(HALF, sizes=(128, 480, 200), block=(64, columns, 64), warp=(16, columns), turned=True)
        source = emit(lowered(replace(wide, out="float16", bias=True))).source
        assert ("box_store_2d" in source) == boxes and "min(box" not in source


def test_registers_are_shared_out_between_two_groups_only() -> None:
    """What three groups of many sums asked for would never be free."""
    for groups, shared in ((1, False), (2, True), (3, False)):
        program = replace(
            HALF, sizes=(192, 160, 136), block=(64 * groups, 160, 64), warp=(16, 160), tiles=2, turned=True
        )
        assert ("registers_more" in emit(lowered(program)).source) == shared


def test_blocks_without_work_are_not_launched() -> None:
    """Of three rows of blocks and three columns, with a fourth row that fills pairs; blocks of several parts stay."""
    (kernel,) = emit(lowered(RINGS["half, one part a block"])).kernels
    assert kernel.grid == (12, 1, 1) and kernel.block == (32, 8, 1)
    (kernel,) = emit(lowered(HALF)).kernels
    assert kernel.grid == (2, 1, 1)


def test_records_say_who_fetches() -> None:
    for step, text in ((Pipeline(3, 4), ["PIP", 3, 4]), (Pipeline(3, 4, "copy engine"), ["PIP", 3, 4, "copy engine"])):
        assert to_json(step) == text and from_json(text) == step
    tensors = HALF.tensors()
    s = te.create_schedule(tensors[2].op)
    tile = s.cache_read(tensors[0], "shared", [tensors[2]])
    with pytest.raises(te.ScheduleError, match="tiles come by the 'copy engine' or by threads, got by='magic'"):
        s[tile].pipeline(4, by="magic")


# ------------------------------------------------------------------------------------------------------- refused


class Shared(Ring):
    """With a tile that all threads fetch."""

    def fetch(self, s: te.Schedule, tile: te.Tensor) -> None:
        loop = s[tile].fuse(*s[tile].op.axis)
        _, lane = s[tile].split(loop, 32)
        s[tile].bind(lane, te.thread_axis("threadIdx.x"))
        s[tile].pipeline(self.tiles, by="copy engine")


def test_what_is_no_ring_is_refused() -> None:
    odd = replace(HALF, sizes=(150, 136, 201))
    for program, why in (
        (odd, "rows of an array must begin at multiples of 16 bytes, boxes have 256 rows at most"),
        (Shared(**vars(HALF)), "one thread must copy a tile, all of it"),
    ):
        with pytest.raises(EmitError, match=re.escape(why)):
            emit(lowered(program))
    with pytest.raises(EmitError, match="tiles by the copy engine are for groups of warps that multiply"):
        emit(lowered(replace(HALF, name="m16n8k16_f16_f32", block=(64, 64, 32), matrices="", pairs=False)))


def test_only_rings_round_floats_to_the_nearest() -> None:
    """Threads that fetch do not; and a ring has no floats that are centred in registers."""
    for tiles in (3, 4):
        program = replace(GROUPS["tf32"], name="wgmma_k8_tf32_f32_nearest", tiles=tiles)
        tensors = program.tensors()
        with pytest.raises(EmitError, match="only the copy engine rounds floats to the nearest on their way"):
            emit(te.lower(program.schedule(tensors), tensors))
    with pytest.raises(EmitError, match="a kernel must have one loop over pipelined tiles"):
        emit(lowered(replace(RINGS["tf32"], name="wgmma_k8_tf32_f32")))


def changed(s: Stmt, change: Callable[[Stmt], Stmt | None]) -> Stmt:
    """A body with the statements replaced for which there is another one."""
    found = change(s)
    return with_bodies(s, tuple([changed(b, change) for b in bodies(s)])) if found is None else found


def test_a_ring_of_other_copies_is_refused() -> None:
    """What is copied before the loop elsewhere in memory than iterations copy it, and a loop with another barrier."""
    func = lowered(replace(HALF, turned=True))
    loop = next(s for s in stmts_of(func.body) if isinstance(s, For) and is_pipeline(s))

    def before(s: Stmt) -> Stmt | None:
        stores = isinstance(s, Store) and s.buffer.name == "A.shared"
        return s if s is loop else further(s) if stores else None

    def barrier(s: Stmt) -> Stmt | None:
        return seq(Barrier(), s) if s is loop.body else None

    for change, why in ((before, "what is fetched before the loop must be"), (barrier, "a kernel must have one loop")):
        with pytest.raises(EmitError, match=why):
            emit(replace(func, body=changed(func.body, change)))


def test_a_ring_whose_tiles_threads_read_is_refused() -> None:
    """There floats are rounded that a program does not say are, and a tile may be that of another part."""
    func = lowered(RINGS["tf32"])
    (held,) = [s for s in stmts_of(func.body) if isinstance(s, Alloc) and s.buffer.name == "A.shared"]
    part = next(s for s in stmts_of(func.body) if isinstance(s, For) and s.kind is ForKind.SERIAL)

    def plus(s: Stmt) -> Stmt | None:
        stores = isinstance(s, Store) and s.buffer.storage == "global"
        first = BufferLoad(held.buffer, te.const(0, "int32"))
        return changed(s.body, plus) if s is held else replace(s, value=s.value + first) if stores else None

    def around(s: Stmt) -> Stmt | None:
        return replace(s, body=allocated([held.buffer], changed(s.body, plus))) if s is part else None

    with pytest.raises(EmitError, match="nothing else may go through shared memory"):
        emit(replace(func, body=changed(func.body, around)))


def is_pipeline(s: For) -> bool:
    return any(isinstance(b, Barrier) for b in bodies(s.body)) and any(isinstance(b, If) for b in bodies(s.body))


def further(s: Stmt) -> Stmt:
    """A store of what stands 8 elements further, under the condition of before."""

    def moved(e: te.Expr) -> te.Expr | None:
        return BufferLoad(e.buffer, binary("+", e.index, 8)) if isinstance(e, BufferLoad) else None

    assert isinstance(s, Store)
    return replace(s, value=transform(s.value, moved))


# ------------------------------------------------------------------------------------------------------- spoilt

SPOILT = {
    "a tile that is not waited for": ("ring_await(barriers + (k_0 & 3), ", "//"),
    "the parity of the phase before": ("((k_0 >> 2) & 1)", "(((k_0 >> 2) & 1) ^ 1)"),
    "bytes of one tile": (", 16384);", ", 8192);"),
    "a tile that nobody releases": ("ring_release(barriers + ((k_0 + 3) & 3) + 4);", ";"),
    "a tile that one warp releases for all of its group": (
        "ring_release(barriers + ((k_0 + 3) & 3) + 4);",
        "for (int w = 0; w < 4 && threadIdx.y % 4 == 0; ++w) ring_release(barriers + ((k_0 + 3) & 3) + 4);",
    ),
    "a tile that is released too early": ("wgmma_wait_for_last();\n", "\n"),
    "boxes that are not met for": ("group_meets((int)threadIdx.y >> 2);", ";"),
    "boxes that are filled again too early": ("boxes_read<1>();", ";"),
    "boxes that are still read at the end": ("boxes_read<0>();", ";"),
}


def assert_caught(program: CudaProgram, of: Ring) -> None:
    """The emulator refuses a spoilt program, or its result is wrong."""
    arrays, exact, error = arrays_of(of)
    try:
        run_program(program, arrays)
    except EmulatorError:
        return
    assert not (np.abs(arrays[-1] - exact) <= error).all()


@emulated
@pytest.mark.parametrize("name", SPOILT)
@pytest.mark.one_in(3)
def test_a_spoilt_ring_is_caught(name: str) -> None:
    old, new = SPOILT[name]
    of = replace(HALF, sizes=(70, 136, 520), turned=True, blocks_at_once=2 if "again" in name else 8)
    made = emit(lowered(of))
    assert old in made.source
    assert_caught(replace(made, source=made.source.replace(old, new)), of)
