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
from ansor_ext.tensor_core.ring_picture import ring_events, ring_spans
from codegen_cuda import CudaProgram, EmitError, compile_source, emit
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from te_lite.expr.expr import BufferLoad, binary, compare
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
from tests.ansor_ext.tensor_core.mma_schedules import GROUPS, PAIRS, RINGS, Ring, Tiled, nearest_tf32
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
compiled = pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
HALF = RINGS["half"]
ROUNDED = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "int32": 0.0}
"""Half a unit in the last place of a result."""


def lowered(program: Ring) -> te.LoweredFunc:
    tensors = program.tensors()
    return te.lower(program.schedule(tensors), tensors)


def arrays_of(program: Ring, guard: float = 1) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """Random inputs, a poisoned output, the exact result of what is read of them, and how far the output may be off,
    whose sums are off by `guard` roundings an instruction."""
    rng = np.random.default_rng(0)
    a, b = program.inputs(rng)
    z = [rng.standard_normal(program.sizes[1]).astype("float32")] if program.bias else []
    read = nearest_tf32 if a.dtype == "float32" else np.asarray
    x, y = [read(v).astype("float64") for v in (a.T if program.across else a, b.T if program.turned else b)]
    exact, size = x @ y + (z[0] if z else 0), np.abs(x) @ np.abs(y) + 8
    unit = guard * ROUNDED[program.op.sum.dtype]
    error = program.sizes[2] // program.op.k * unit * size * 1.01 + ROUNDED[program.out] * np.abs(exact)
    return [a, b, *z, np.full(exact.shape, 77, program.out)], exact, error


def assert_right(program: Ring, execute: Callable[[list[np.ndarray]], object]) -> None:
    arrays, exact, error = arrays_of(program)
    execute(arrays)
    assert (np.abs(arrays[-1].astype("float64") - exact) <= error).all()


@emulated
@pytest.mark.parametrize("name", RINGS)
@pytest.mark.one_in(5)
def test_programs(name: str) -> None:
    """The emulator, against float64."""
    program = RINGS[name]
    made = emit(lowered(program))
    assert "ring_open" in made.source and "box_fetch_2d" in made.source
    assert_right(program, lambda arrays: run_program(made, arrays))


@emulated
@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.one_in(4)
def test_pairs_of_blocks(name: str) -> None:
    """Two blocks fetch half of what both need each, whether both have results to store or not."""
    program = PAIRS[name]
    made = emit(lowered(program))
    (kernel,) = made.kernels
    assert "__cluster_dims__(1, 2, 1)" in made.source and kernel.grid[1] == 2
    a, b = ("fetch", "share") if program.cluster == "rows" else ("share", "fetch")
    calls = {"fetch": r"box_fetch_2d\(map\d, ", "share": r"box_share_2d<2>\(map\d, "}
    found = [re.search(calls[x] + tile, made.source) for x, tile in ((a, "A_shared"), (b, "B_shared"))]
    assert all(found)
    assert_right(program, lambda arrays: run_program(made, arrays))


@emulated
def test_a_block_without_results_takes_part_in_its_pair() -> None:
    """Of blocks (x, y) only those store that a condition lets: of a pair both, one, or none."""
    program = PAIRS["half, one part a block"]
    func = lowered(program)
    x, y = [next(s.var for s in stmts_of(func.body) if isinstance(s, For) and s.tag == tag)
            for tag in ("blockIdx.x", "blockIdx.y")]  # fmt: skip
    few = compare("<", binary("+", binary("*", x, 2), y), 3)
    body = changed(func.body, lambda s: If(few, s) if isinstance(s, Store) and s.buffer.storage == "global" else None)
    made = emit(replace(func, body=body))
    assert "box_share_2d" in made.source and "(int)blockIdx.x * 2 + (int)blockIdx.y < 3" in made.source
    arrays, exact, error = arrays_of(program)
    run_program(made, arrays)
    stored = np.zeros(exact.shape, bool)
    stored[:128, :64] = stored[:64, 64:128] = True
    assert (np.abs(arrays[-1] - exact) <= error)[stored].all() and (arrays[-1][~stored] == 77).all()


@pytest.mark.parametrize("name", ["half, with bias", "half, two groups, many columns", "tf32"])
@pytest.mark.one_in(2)
def test_the_interpreter_knows_no_ring(name: str) -> None:
    """What the program means before it is written as roles."""
    program = replace(RINGS[name], sizes=(66, 72, 72))
    func = lowered(program)
    assert not [s for s in stmts_of(func.body) if isinstance(s, RingCall)]
    assert_right(program, lambda arrays: run(func, arrays))


@compiled
@pytest.mark.parametrize("program", [*RINGS.values(), *PAIRS.values()], ids=str)
@pytest.mark.one_in(4)
def test_nvrtc_keeps_sums_in_registers(program: Ring) -> None:
    """And shares registers out between roles: what it cannot is an error (`compile.py`)."""
    (found,) = compile_source(emit(lowered(program)).source, "sm_90").resources
    assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0)


def test_results_are_stored_in_boxes_where_lines_are_long() -> None:
    narrow = replace(HALF, turned=True, block=(64, 16, 64), warp=(16, 16), out="float16")
    for program, boxes in ((HALF, True), (replace(HALF, out="float16"), True), (narrow, False)):
        source = emit(lowered(program)).source
        assert ("box_store_2d" in source) == boxes
        (kernel,) = emit(lowered(program)).kernels
        assert len({m.argument for m in kernel.maps}) == 2 + boxes


@emulated
def test_maps_say_what_is_rounded() -> None:
    """Both factors, as they are fetched; without it the result would be another one."""
    program = replace(RINGS["tf32"], sizes=(70, 72, 136))
    made = emit(lowered(program))
    (kernel,) = made.kernels
    assert {(m.argument, m.dtype) for m in kernel.maps} == {(0, "tfloat32"), (1, "tfloat32"), (2, "float32")}
    arrays, exact, error = arrays_of(program)
    for of in (0, 1):
        maps = [replace(m, dtype="float32") if m.argument == of else m for m in kernel.maps]
        run_program(replace(made, kernels=(replace(kernel, maps=tuple(maps)),)), arrays)
        assert (np.abs(arrays[-1] - exact) > error).any()


class Onto(Ring):
    """A product that is added to an array of its size."""

    def tensors(self) -> list[te.Tensor]:
        a, b, c = Tiled.tensors(self)
        z = te.placeholder(c.shape, name="Z", dtype=self.out)
        return [a, b, z, te.compute(c.shape, lambda i, j: te.cast(self.out, c[i, j] + te.cast("float32", z[i, j])))]


def test_columns_are_stored_once_where_the_result_may_replace_what_is_read() -> None:
    """Lines divide them then, or registers are stored; a bias is none that is replaced."""
    for columns, boxes in ((80, False), (96, True)):
        wide = replace(
            HALF, sizes=(128, 480, 200), block=(64, columns, 64), warp=(16, columns), turned=True, out="float16"
        )
        source = emit(lowered(Onto(**vars(wide)))).source
        assert ("box_store_2d" in source) == boxes and "min(box" not in source
        assert "min(box" in emit(lowered(replace(wide, bias=True))).source


def test_registers_are_shared_out_between_two_groups_only() -> None:
    """What three groups of many sums asked for would never be free; one that has several parts takes turns."""
    for groups, blocks, shared in ((1, 8, False), (1, 2, True), (2, 8, True), (3, 8, False)):
        program = replace(
            HALF, sizes=(192, 160, 136), block=(64 * groups, 160, 64), warp=(16, 160), tiles=2, turned=True,
            blocks_at_once=blocks,
        )  # fmt: skip
        source = emit(lowered(program)).source
        assert ("registers_more" in source) == shared and ("turn_open" in source) == (blocks == 2)


@emulated
@pytest.mark.parametrize("parts", [2, 3])
def test_groups_in_turns_multiply_one_after_the_other(parts: int) -> None:
    """Of the parts of a block each group has every other one, and reads no tile before all of the part before are."""
    of = replace(HALF, sizes=(64, 64 * parts, 520), blocks_at_once=1, beside=1, turned=True, tiles=3)
    made = emit(lowered(of))
    assert made.kernels[0].block == (32, 12, 1)
    arrays, exact, error = arrays_of(of)
    read = [s for s in ring_spans(ring_events(made, arrays)) if s.kind == "read"]
    assert (np.abs(arrays[-1] - exact) <= error).all()
    turns = -(-520 // 64)
    assert sorted((s.iteration, s.group) for s in read) == [(k, k // turns % 2) for k in range(turns * parts)]
    begun = [s.first for s in sorted(read, key=lambda s: s.iteration)]
    assert begun == sorted(begun)


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
    of = replace(HALF, sizes=(70, 136, 520), turned=True, blocks_at_once=8)
    of = replace(of, block=(128, 64, 64), blocks_at_once=2) if "again" in name else of
    made = emit(lowered(of))
    assert old in made.source
    assert_caught(replace(made, source=made.source.replace(old, new)), of)


SPOILT_TURNS = {
    "a turn that is not waited for": ("ring_await(barriers + 8, ", "//"),
    "a turn that is never over": ("ring_release(barriers + 8);", ";"),
    "parts of the other group": ("round_1 * 2 + ((int)threadIdx.y >> 2)", "round_1 * 2 + 1 - ((int)threadIdx.y >> 2)"),
    "one box for both groups": ("boxes + ((int)threadIdx.y >> 2) * 2048", "boxes + 0"),
    "boxes that are filled again too early": ("boxes_read<0>();", ";"),
}


@emulated
@pytest.mark.parametrize("name", SPOILT_TURNS)
@pytest.mark.one_in(2)
def test_a_spoilt_turn_is_caught(name: str) -> None:
    old, new = SPOILT_TURNS[name]
    of = replace(HALF, sizes=(70, 136, 520), turned=True)
    made = emit(lowered(of))
    assert old in made.source
    assert_caught(replace(made, source=made.source.replace(old, new)), of)


SPOILT_EDGES = {
    "places that are not cleared": ("ring_clear(A_shared", "//"),
    "what arrives is cleared": ("ring_clear(B_shared + 0 * 4608 + 1024, ", "ring_clear(B_shared + 0 * 4608 + 512, "),
    "groups that do not meet behind it": ("    groups_meet(1);", "    ;"),
    "bytes of whole boxes": (" - ((int)blockIdx.x", " - 0 * ((int)blockIdx.x"),
    "a tile that there is not": ("tile = tile == 5 ? 0", "tile = tile == 6 ? 0"),
    "a phase that never ends": ("phase = tile == 0", "phase = tile == 9"),
    "the tile of this turn released": ("(tile == 0 ? 5 : (int)((unsigned)tile - (unsigned)1))", "tile"),
}


@emulated
@pytest.mark.parametrize("name", SPOILT_EDGES)
@pytest.mark.one_in(2)
def test_a_spoilt_edge_or_count_is_caught(name: str) -> None:
    old, new = SPOILT_EDGES[name]
    of = replace(RINGS["half, six tiles, less at the edges"], blocks_at_once=8)
    made = emit(lowered(of))
    assert old in made.source
    assert_caught(replace(made, source=made.source.replace(old, new)), of)


def test_what_lies_beyond_the_edge_is_not_fetched_where_results_are_not_stored() -> None:
    """A map more for each factor, of the rows that are left; none where they divide, or lie across, or are shared."""
    program = RINGS["half, six tiles, less at the edges"]
    for of, boxes in (
        (program, {0: {64, 6}, 1: {72, 16}}),
        (replace(program, sizes=(128, 144, 200)), {0: {64}, 1: {72}}),
        (RINGS["half"], {0: {64, 150 % 64}, 1: {64}}),
        (PAIRS["half, less at the edge"], {0: {32}, 1: {80, 8}}),
        (replace(RINGS["half"], block=(64, 16, 64), warp=(16, 16), turned=True, out="float16"), {0: {64}, 1: {16}}),
    ):
        (kernel,) = emit(lowered(of)).kernels
        found = {k: {m.box[0] for m in kernel.maps if m.argument == k} for k in (0, 1)}
        assert found == boxes, of


SPOILT_PAIRS = {
    "tiles that one block releases for itself alone": ("block < blocks; ++block", "block < 1; ++block"),
    "half a tile of the other block's": (", 16384);", ", 12288);"),
    "halves for one block": ("(1 << blocks) - 1", "1"),
    "the same half twice": ("+ (int)blockIdx.y * 2048", "+ 0"),
    "the same half of the array": ("k_0 * 64 + (int)blockIdx.y * 32", "k_0 * 64"),
    "blocks that end before the other one": ("  cluster_close();", "  ;"),
    "barriers that the other block does not know": ("barrier.cluster.arrive.release", "bar.sync 0"),
    "groups of one block": ("cluster_open(barriers + 0, 4, 8)", "cluster_open(barriers + 0, 4, 4)"),
}


@emulated
@pytest.mark.parametrize("name", SPOILT_PAIRS)
@pytest.mark.one_in(2)
def test_a_spoilt_pair_is_caught(name: str) -> None:
    old, new = SPOILT_PAIRS[name]
    of = replace(PAIRS["half"], sizes=(70, 136, 520))
    made = emit(lowered(of))
    assert old in made.source
    source = made.source.replace(old, new)
    if "does not know" in name:
        source = source.replace('  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");', "")
    assert_caught(replace(made, source=source), of)
