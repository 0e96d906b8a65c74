"""Groups of warps that multiply by a tile in shared memory: results, what is refused, and what the source says."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor_ext.tensor_core.instructions import Cut, WarpLoad, WarpMultiply
from ansor_ext.tensor_core.mma import MMA
from ansor_ext.tensor_core.warpgroup import multiplies_in_groups
from ansor_ext.tensor_core.wgmma_text import FENCE
from codegen_cuda import CompileError, CudaProgram, EmitError, compile_source, emit, usage
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from te_lite.errors import UnsafeError
from te_lite.expr.expr import BufferLoad, Var, as_expr, compare
from te_lite.loops.perfect_nest import SEQUENTIAL
from te_lite.loops.stmt import Alloc, Barrier, For, ForKind, If, Stmt, Store, bodies, seq, stmts_of, with_bodies
from te_lite.meaning.interp import run
from tests.ansor_ext.tensor_core.mma_schedules import GROUPS, PAIRS, RINGS, Tiled
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER

emulated = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
compiled = pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)

HALF = GROUPS["half"]
REFUSED = {
    "a block of two warps": (replace(HALF, block=(32, 64, 64)), "warps in y in groups of 4, got block=(32, 2, 1)"),
    "warps with columns of their own": (replace(HALF, block=(64, 64, 64), warp=(32, 32)), "from a multiple of 1024 on"),
    "a tile that is not swizzled": (replace(HALF, swizzled=False), "swizzled rows of 128 bytes"),
    "rows of 64 bytes": (replace(HALF, block=(64, 64, 32)), "must fill rows of 128 bytes"),
    "lines of more than 128 bytes": (
        replace(HALF, turned=False, sizes=(128, 128, 160), block=(64, 128, 64), warp=(16, 128)),
        "from a multiple of",
    ),
    "fragments value by value": (replace(HALF, matrices="a"), "one tile or two at a time"),
}


def lowered(program: Tiled) -> te.LoweredFunc:
    tensors = program.tensors()
    return te.lower(program.schedule(tensors), tensors)


@emulated
@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.one_in(3)
def test_programs(name: str) -> None:
    """The emulator and the interpreter, against float64."""
    program = GROUPS[name]
    a, b = program.inputs(np.random.default_rng(0))
    func = lowered(program)
    for execute in (lambda arrays: run_program(emit(func), arrays), lambda arrays: run(func, arrays)):
        out = np.full(program.sizes[:2], 77, program.op.sum.dtype)
        execute([a, b, out])
        assert program.wrong(a, b, out) is None


@pytest.mark.parametrize("name", REFUSED)
def test_a_layout_that_tensor_cores_cannot_read_is_refused(name: str) -> None:
    program, why = REFUSED[name]
    with pytest.raises(EmitError, match=re.escape(why)):
        emit(lowered(program))


def around_steps(s: Stmt, change: Callable[[For], Stmt]) -> Stmt:
    """A body whose loop over steps is changed."""
    if isinstance(s, For) and s.kind in SEQUENTIAL and isinstance(s.body, Alloc) and multiplies_in_groups(s):
        return change(s)
    return with_bodies(s, tuple([around_steps(b, change) for b in bodies(s)]))


def test_every_warp_of_a_group_must_come() -> None:
    func = lowered(HALF)
    warp = next(s.var for s in stmts_of(func.body) if isinstance(s, For) and s.tag == "threadIdx.y")
    some = around_steps(func.body, lambda steps: If(compare("<", warp, 3), steps))
    with pytest.raises(EmitError, match="all warps of a group must come to the instruction"):
        emit(replace(func, body=some))


def test_nothing_else_in_a_step_is_lost() -> None:
    func = lowered(HALF)
    more = around_steps(func.body, lambda steps: replace(steps, body=with_bodies(steps.body, (behind(steps.body),))))
    with pytest.raises(EmitError, match="multiply, and nothing else"):
        emit(replace(func, body=more))


def behind(s: Stmt) -> Stmt:
    """The body of an allocation behind a statement of its own."""
    (body,) = bodies(s)
    return seq(Barrier(), body)


def assert_caught(program: CudaProgram, of: Tiled) -> None:
    """The emulator refuses a spoilt program, or its result is wrong."""
    a, b = of.inputs(np.random.default_rng(0))
    out = np.zeros(of.sizes[:2], np.float32)
    try:
        run_program(program, [a, b, out])
    except EmulatorError:
        return
    assert of.wrong(a, b, out) is not None


@emulated
@pytest.mark.parametrize(
    "old, new",
    [("1ull << 62", "2ull << 62"), ("64ull << 32", "32ull << 32"), ("tile + 2)", "tile + 4)"),
     ("rows + 128", "rows + 64"), (", 1, 1, 1, 1, 0;", ", 1, 1, 1, 0, 0;")],
)  # fmt: skip
@pytest.mark.one_in(2)
def test_a_wrong_descriptor_is_caught(old: str, new: str) -> None:
    """By the result, or since the emulator knows one layout only."""
    of = GROUPS["half, terms in rows"]
    source = emit(lowered(of)).source
    assert old in source
    program = replace(emit(lowered(of)), source=source.replace(old, new))
    assert_caught(program, of)


@emulated
@pytest.mark.parametrize("name", ["half, terms in rows", "tf32"])
def test_a_missing_proxy_fence_is_reported(name: str) -> None:
    """What threads copied to shared memory is not there for tensor cores without it, whatever barriers there are."""
    of = GROUPS[name]
    source = emit(lowered(of)).source
    assert FENCE in source
    a, b = of.inputs(np.random.default_rng(0))
    with pytest.raises(EmulatorError, match=r"tensor cores .* read byte .* without fence"):
        run_program(replace(emit(lowered(of)), source=source.replace(FENCE, "")), [a, b, np.zeros(of.sizes[:2], "f")])


PARTS = replace(GROUPS["tf32x3"], sizes=(64, 64, 96))


@emulated
@pytest.mark.parametrize(
    "old, new",
    [("    cut_tile_2048", "    // "), ("C_local[k] += ", "C_local[k] = "), ("rest + place", "tile + place"),
     ("    fence_async_proxy();\n    __syncthreads();\n    wgmma_m16", "    wgmma_m16")],
)  # fmt: skip
@pytest.mark.one_in(2)
def test_a_tile_that_is_not_well_cut_is_caught(old: str, new: str) -> None:
    """By the result, or since the emulator sees that threads do not wait for each other."""
    source = emit(lowered(PARTS)).source
    assert old in source
    program = replace(emit(lowered(PARTS)), source=source.replace(old, new))
    assert_caught(program, PARTS)


def tile_of(func: te.LoweredFunc) -> BufferLoad:
    """Where a warp reads the tile of B."""
    return next(s.row for s in stmts_of(func.body) if isinstance(s, WarpLoad) and s.row.buffer.name == "B.shared")


def test_a_tile_that_others_read_or_that_stays_is_not_cut() -> None:
    func = lowered(PARTS)
    sums = next(s.d.buffer for s in stmts_of(func.body) if isinstance(s, WarpMultiply))
    more = Store(sums, as_expr(0), tile_of(func).buffer[0])
    with pytest.raises(EmitError, match="must be read once, by the product of its parts"):
        emit(replace(func, body=around_steps(func.body, lambda steps: seq(steps, Barrier(), more))))
    again = around_steps(func.body, lambda steps: For(Var("again"), 2, ForKind.SERIAL, seq(steps, Barrier())))
    with pytest.raises(EmitError, match="must be fetched anew before it is cut again"):
        emit(replace(func, body=again))


def test_only_emitters_cut_tiles() -> None:
    func = lowered(PARTS)
    tile = tile_of(func)
    with pytest.raises(UnsafeError, match="is for emitters alone"):
        emit(replace(func, body=around_steps(func.body, lambda steps: seq(Cut(PARTS.op, tile, tile, 2048), steps))))


@pytest.mark.parametrize(
    "name, where",
    [("half", "_tiles(C_local + 0, A_shared"), ("half, two groups", "_tiles(C_local + 0, A_shared"),
     ("half, terms in rows", "_turned(C_local + 0, A_shared"), ("int8", "_tiles(C_local + 0, A_shared"),
     ("half, two tiles of rows a warp", "(C_local + 0, A_shared_local_steps"),
     ("half, rows that ldmatrix does not load", "(C_local + 0, A_shared_local_steps"),
     ("tf32", "(C_local + 0, A_shared_local_steps"), ("tf32x3", "(C_local_turn + 0, A_shared_local_steps")],
)  # fmt: skip
def test_where_the_rows_are_read(name: str, where: str) -> None:
    """From shared memory where they lie as descriptors can say, else from registers."""
    source = emit(lowered(GROUPS[name])).source
    body = source[source.index('extern "C"') :]
    assert where in body and "(B_shared_local" not in body
    assert ("ldmatrix_x4((unsigned *)(A_" in body) == ("_steps" in where and "does not load" not in name)


def test_tiles_of_later_turns_are_fetched_while_products_of_many_columns_go_on() -> None:
    """Not with two tiles, of which the next one would come too late."""
    many = GROUPS["half, many columns"]

    def order(program: Tiled) -> list[str]:
        source = emit(lowered(program)).source
        iteration = source[source.index("for (int k_0 = 0") :]
        return re.findall(r"(__syncthreads|copy_async<|wgmma_m16|wgmma_wait)", iteration)[:5]

    behind, first = "__syncthreads wgmma_m16 copy_async<", "__syncthreads copy_async<"
    assert " ".join(order(many)).startswith(behind)
    assert " ".join(order(replace(many, tiles=2))).startswith(first)
    assert " ".join(order(HALF)).startswith(first)


@emulated
@pytest.mark.parametrize(
    "old, new, found",
    [("wgmma_wait_for_last();", "", "race"), ("if (k_0 > 0)", "if (true)", "race"),
     ("  wgmma_wait_32_f32(C_local + 0);", "", "wrong"), ("wait_all_but<1>", "wait_all_but<2>", "race")],
)  # fmt: skip
@pytest.mark.one_in(2)
def test_a_product_that_goes_on_is_waited_for_in_time(old: str, new: str, found: str) -> None:
    """With four tiles it goes on over the barrier of the next iteration; the tile that it reads is kept so long."""
    of = GROUPS["half, four tiles"]
    program = emit(lowered(of))
    start = program.source.index('extern "C"')
    assert program.source[start:].count(old) == 1
    a, b = of.inputs(np.random.default_rng(0))
    out = np.full(of.sizes[:2], 77, np.float32)
    spoilt = replace(program, source=program.source[:start] + program.source[start:].replace(old, new))
    try:
        run_program(spoilt, [a, b, out])
    except EmulatorError as error:
        assert found in str(error)
        return
    assert of.wrong(a, b, out) is not None


def test_what_was_copied_is_made_visible_to_the_tensor_cores_before_each_barrier() -> None:
    source = emit(lowered(HALF)).source
    body = source[source.index('extern "C"') :]
    assert body.count("__syncthreads();") == body.count("fence_async_proxy();\n") > 0


def test_tiles_are_aligned_and_fragments_of_b_take_no_registers() -> None:
    """Tiles that tensor cores read come first in shared memory, at a multiple of 1024."""
    func = lowered(replace(HALF, sizes=(64, 64, 80), block=(64, 64, 64), matrices="b"))
    source = emit(func).source
    assert "__align__(1024)" in source
    names = re.findall(r"half (?:\*const )?(\w+_shared)\b", source[source.index('extern "C"') :])
    assert names == ["B_shared", "A_shared"]
    (used,) = usage(func)
    singles = usage(lowered(replace(HALF, name="m16n8k16_f16_f32", sizes=(64, 64, 80), block=(64, 64, 64))))
    assert used.registers < singles[0].registers + 64 and used.shared_bytes == singles[0].shared_bytes


@compiled
@pytest.mark.parametrize("name", [op.name for op in MMA.values() if op.warps > 1 and not op.element.apart])
def test_they_compile_for_hopper_without_waits_that_the_compiler_adds(name: str) -> None:
    """Warnings C75.. of ptxas: instructions that it serializes."""
    program = next(p for p in (*GROUPS.values(), *RINGS.values(), *PAIRS.values()) if p.name == name)
    made = compile_source(emit(lowered(program)).source, "sm_90")
    assert "(C75" not in made.log and all(k.spill_stores == 0 for k in made.resources)
    with pytest.raises(CompileError, match="needs sm_90a"):
        compile_source(emit(lowered(program)).source, "sm_80")
