"""Operands read a step ahead, copies through registers, digits of fused lanes, vector writes: what programs become."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.generate import extra_sketches
from ansor_ext.pipeline.iterations_ahead import reads_by_tile
from ansor_ext.pipeline.register_double_buffer import most_words, with_register_double_buffers
from ansor_ext.pipeline.staged_copies import staged
from ansor_ext.pipeline.steps import DoubleBuffer, Pipeline
from benchmarks import workloads as benchmarks
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.passes.lane_digits import with_lane_digits
from codegen_cuda.passes.vector_writes import with_vector_writes
from codegen_cuda.program.cuda_program import KernelNest, kernel_nests
from te_lite.expr.expr import Var, as_expr, compare
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, If, LoweredFunc, Stmt, Store, stmts_of
from te_lite.meaning.interp import run
from te_lite.schedule.loop_steps import Annotate, FollowFusedSplit, FollowSplit, Fuse, Pragma, Reorder, Split
from te_lite.schedule.place_steps import ComputeAt
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import CacheRead, CacheWrite
from te_lite.schedule.state import State
from te_lite.schedule.step import Step
from te_lite.schedule.storage_steps import StorageAlign, StorageOrder
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import Oracle

needs_emulator = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
CUDA = Target.of("cuda")
HARDWARE = HardwareParams(target=CUDA).completed(CUDA)


def product(m: int, n: int, k: int, rows: Sequence[int], columns: Sequence[int], steps: Sequence[int], lanes: int,
            transposed: bool = True, ahead: Sequence[Step] = (DoubleBuffer(1), DoubleBuffer(3))) -> State:  # fmt: skip
    """A product whose tiles (lengths of vthreads, threads, two of a thread) are fetched ahead, A in `lanes`."""
    order: list[Step] = [StorageOrder(1, (1, 0)), StorageAlign(1, 1, 32, 4)] if transposed else []
    work = [
        CacheWrite(2, "local"), Split(2, 0, m, tuple(rows)), Split(2, 5, n, tuple(columns)),
        Split(2, 10, k, tuple(steps)), Reorder(2, (0, 5, 1, 6, 2, 7, 10, 11, 3, 8, 12, 4, 9)),
        FollowSplit(3, 0, 1, 3), FollowSplit(3, 4, 2, 3), Reorder(3, (0, 4, 1, 5, 2, 6, 3, 7)), ComputeAt(2, 3, 5),
        CacheRead(1, "shared", (2,)), ComputeAt(2, 3, 6), CacheRead(0, "shared", (3,)), ComputeAt(1, 4, 6),
        *order, *ahead,
        Fuse(5, (0, 1)), Annotate(5, 0, "blockIdx.x"), Fuse(5, (1, 2)), Annotate(5, 1, "vthread"), Fuse(5, (2, 3)),
        Annotate(5, 2, "threadIdx.x"),
    ]  # fmt: skip
    inner = int(np.prod(steps))
    for stage, size, width in ((3, inner * int(np.prod(columns)), 4), (1, inner * int(np.prod(rows)), lanes)):
        work += [Fuse(stage, (0, 1)), Split(stage, 0, size, (width,)), Annotate(stage, 1, "vectorize"),
                 FollowFusedSplit(stage, 0, (2, 1), 1, True), Annotate(stage, 1, "threadIdx.x")]  # fmt: skip
    return replay(te.ComputeDAG(benchmarks.matmul(m, n, k)), work)


def changed(func: LoweredFunc) -> tuple[LoweredFunc, bool]:
    """The program with the passes of a kernel, and whether operands are read ahead."""

    def visit(s: Stmt, loops: dict[str, For]) -> Stmt:
        if isinstance(s, For) and s.kind in (ForKind.BLOCK, ForKind.THREAD):
            return replace(s, body=visit(s.body, {**loops, s.tag: s}))
        nest = KernelNest(loops, s)
        ranges = nest.ranges()
        ahead = with_register_double_buffers(with_lane_digits(s, ranges), ranges, int(np.prod(nest.block)))
        return with_vector_writes(ahead)

    out = replace(func, body=visit(func.body, {}))
    return out, "_operands" in str(out)


def emulate(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    run_program(emit(func), args)


def result(func: LoweredFunc) -> bytes:
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal(b.shape).astype(np.float32) for b in func.args]
    run(func, arrays)
    return arrays[-1].tobytes()


TILES = {
    "quadrants": product(32, 32, 20, (2, 4, 1, 2), (2, 4, 1, 2), (1, 4), 4),
    "two loops of steps": product(32, 16, 24, (1, 4, 2, 2), (1, 4, 2, 1), (3, 2), 1),
    "steps in groups": product(16, 8, 160, (1, 4, 2, 2), (1, 4, 2, 1), (2, 40), 4),
    "tiles that run over": product(29, 31, 24, (1, 4, 2, 2), (2, 4, 1, 2), (2, 2), 1),
    "guarded vectors": product(29, 32, 24, (1, 4, 2, 4), (2, 4, 1, 2), (1, 4), 4),
    "threads that are left over": product(24, 16, 30, (1, 4, 3, 1), (1, 4, 2, 2), (1, 6), 2),
    "as it is read": product(32, 16, 24, (1, 4, 2, 2), (1, 4, 2, 1), (1, 4), 4, transposed=False),
    "three tiles": product(32, 32, 24, (2, 4, 1, 2), (2, 4, 1, 2), (1, 4), 4, ahead=(Pipeline(1, 3), Pipeline(3, 3))),
    "many turns": product(32, 32, 64, (2, 4, 1, 2), (2, 4, 1, 2), (1, 4), 4),
    "many turns of warps": product(32, 32, 64, (2, 4, 1, 4), (2, 8, 1, 2), (1, 4), 4),
    "many turns, guarded vectors": product(29, 32, 61, (1, 4, 2, 4), (2, 8, 1, 2), (1, 4), 4),
    "many turns in groups": product(16, 16, 480, (1, 4, 2, 2), (1, 8, 2, 1), (2, 20), 4),
    "four tiles": product(32, 32, 48, (2, 4, 1, 2), (2, 4, 1, 2), (1, 4), 1, ahead=(Pipeline(1, 4), Pipeline(3, 4))),
}


@pytest.mark.parametrize("name", TILES)
def test_sums_stay_the_same_to_the_last_bit(name: str) -> None:
    func = te.lower(TILES[name])
    other, ahead = changed(func)
    assert ahead
    assert result(other) == result(func)


@needs_emulator
@pytest.mark.parametrize("name", TILES)
@pytest.mark.one_in(2)
def test_threads_meet_where_they_must(name: str) -> None:
    """The block emulator finds races, and reads of what nobody wrote."""
    func = te.lower(TILES[name])
    assert Oracle(TILES[name].dag, np.random.default_rng(5)).mismatch(func, emulate) is None


WORKLOADS = {
    "matmul": lambda: benchmarks.matmul(32, 48, 24),
    "odd": lambda: benchmarks.matmul(29, 31, 37),
    "batch_matmul": lambda: benchmarks.batch_matmul(2, 24, 16, 32),
    "conv2d": lambda: benchmarks.conv2d(1, 8, 8, 16, 32, 3, 1, 1),
    "conv2d_bn_relu": lambda: benchmarks.conv2d_bn_relu(1, 8, 8, 16, 32, 3, 1, 1),
}


def drawn(name: str, count: int) -> Iterator[tuple[State, LoweredFunc]]:
    dag = te.ComputeDAG(WORKLOADS[name]())
    sketches = extra_sketches(dag, CUDA, HARDWARE, rules=["double_buffer", "transposed_shared_ahead"])
    for seed in range(count):
        state = drawn_program(sketches[seed % len(sketches)], CUDA, HARDWARE, np.random.default_rng([8, seed]))
        if state is not None:
            yield state, te.lower(state)


@pytest.mark.long
@pytest.mark.parametrize("count", [16, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.one_in(3)
def test_programs_of_the_search_keep_their_sums(name: str, count: int) -> None:
    applied = 0
    for _, func in drawn(name, count):
        other, ahead = changed(func)
        applied += ahead
        assert result(other) == result(func)
    assert applied


@needs_emulator
@pytest.mark.slow
@pytest.mark.parametrize("name", WORKLOADS)
def test_programs_of_the_search_have_no_races(name: str) -> None:
    for state, func in nonempty(drawn(name, 40)):
        assert Oracle(state.dag, np.random.default_rng(5)).mismatch(func, emulate) is None


# ------------------------------------------------------------------------------------------------- what is left alone


@pytest.mark.parametrize(
    ("why", "rows", "columns", "steps"),
    [("an odd number of steps", (1, 4, 2, 2), (1, 4, 2, 1), (1, 3)),
     ("few sums", (1, 8, 1, 2), (1, 4, 2, 1), (1, 4)),
     ("too many registers", (2, 1, 2, 4), (2, 1, 1, 8), (1, 4))],
)  # fmt: skip
def test_other_kernels_stay(why: str, rows: Sequence[int], columns: Sequence[int], steps: Sequence[int]) -> None:
    func = te.lower(product(16, 16, 24, rows, columns, steps, 1))
    assert not changed(func)[1], why


def test_operands_leave_room_for_addresses() -> None:
    """The more threads a block has, the fewer registers a thread."""
    assert (most_words(128), most_words(256), most_words(512), most_words(1024)) == (208, 208, 81, 17)
    (nest,), _ = kernel_nests(te.lower(TILES["quadrants"]))
    for threads, ahead in ((512, True), (1024, False)):
        ranges = nest.ranges()
        found = with_register_double_buffers(with_lane_digits(nest.body, ranges), ranges, threads)
        assert any(isinstance(s, Alloc) and s.buffer.name.endswith("_operands") for s in stmts_of(found)) == ahead


# --------------------------------------------------------------------------------------------- how it is written


def test_the_barrier_comes_before_the_last_step() -> None:
    source = emit(te.lower(TILES["quadrants"])).source
    iterations = source[source.index("for (int k_0") :]
    steps, last = iterations.index("v_step"), iterations.index("__syncthreads();")
    assert steps < last < iterations.rindex("+=") and iterations.count("__syncthreads();") == 1


@pytest.mark.parametrize(("limit", "loops"), [(0, ["7"]), (16, ["3", "2"]), (32, ["4", "3"])])
def test_steps_are_written_out_as_far_as_their_stage_says(limit: int, loops: list[str]) -> None:
    """8 sums a thread, 8 steps an iteration, the last one behind the barrier: groups of steps, and steps of a group."""
    tile = product(32, 16, 24, (1, 4, 2, 2), (1, 4, 2, 1), (2, 4), 4)
    state = replay(tile.dag, [*tile.steps, Pragma(4, 0, f"auto_unroll_max_step${limit}")])
    func = te.lower(state)
    assert re.findall(r"int (?:group|v_step\w*) = 0; \w+ < (\d+)", emit(func).source) == loops
    assert result(changed(func)[0]) == result(func)


def test_many_turns_have_no_conditions() -> None:
    """The last one fetches, too; what goes through registers is stored between steps, and whole warps keep reads."""
    few, many, warps = [emit(te.lower(TILES[n])).source for n in ("quadrants", "many turns", "many turns of warps")]
    assert "if (k_0 + 1 < 5)" in few and "k_0 + 1 <" not in many and "k_0 + 1 <" not in warps
    assert "(k_0 < 14 ? k_0 : 14)" in many and "? k_0" not in few
    assert [s.count("__syncwarp();") for s in (few, many, warps)] == [0, 0, 1]
    iterations = warps[warps.index("for (int k_0") :]
    read, meet, steps = (
        iterations.index("= *(const float4 *)(A + "),
        iterations.index("__syncwarp"),
        iterations.index("+="),
    )
    stored, last = iterations.index("= A_shared_fetched["), iterations.index("__syncthreads();")
    assert read < meet < steps < stored < last


def test_turns_that_run_again_keep_their_conditions() -> None:
    """What the last iteration would fetch could meet the first tile of the next round."""
    (nest,), _ = kernel_nests(te.lower(TILES["many turns of warps"]))
    again = For(Var("again"), 2, ForKind.SERIAL, nest.body)
    for body, conditions in ((nest.body, 0), (again, 3)):
        ranges = nest.ranges()
        found = with_register_double_buffers(with_lane_digits(body, ranges), ranges, 32)
        iteration = [
            s for s in stmts_of(found) if isinstance(s, If) and "k_0" in str(s.cond) and "+ 1) <" in str(s.cond)
        ]
        assert len(iteration) == conditions


def test_copies_that_turn_go_through_registers() -> None:
    """In vectors, read before the steps and stored after them; those that do not iteration are asynchronous."""
    source = emit(te.lower(TILES["quadrants"])).source
    iterations = source[source.index("for (int k_0") :]
    read, stored = iterations.index("= *(const float4 *)(A + "), iterations.index("= A_shared_fetched[")
    assert read < iterations.index("v_step") < stored < iterations.index("__syncthreads();")
    assert "copy_async<16>(B_shared" in iterations and "copy_async<4>" not in iterations
    assert "_fetched" not in emit(te.lower(TILES["as it is read"])).source


@pytest.mark.parametrize(("name", "read"), [
    ("guarded vectors", "? *(const float4 *)(A + "), ("threads that are left over", "= *(const float2 *)(A + "),
])  # fmt: skip
def test_copies_under_conditions_that_lanes_share_go_through_registers_as_well(name: str, read: str) -> None:
    """Padding chooses between vectors, and threads that are left over read and store under their condition."""
    source = emit(te.lower(TILES[name])).source
    iterations = source[source.index("for (int k_0") :]
    assert read in iterations and "copy_async<4>" not in iterations
    assert iterations.count("(int)threadIdx.x < 36) {") == 2 * (name == "threads that are left over")


def test_squares_are_stored_in_vectors() -> None:
    """Four vectors read along the lanes, four stored along the rows, each from all that were read."""
    row, lane = Var("row"), Var("lane")
    tile, a = Buffer("tile", "float32", (4, 64), "shared", pipelined=True), Buffer("A", "float32", (256,))
    square = For(
        row, 4, ForKind.UNROLLED, For(lane, 4, ForKind.VECTORIZED, Store(tile, lane * 64 + row, a[row * 64 + lane]))
    )
    made = staged(square)
    inner = [
        next(x.var for x in stmts_of(s) if isinstance(x, For) and x.kind is ForKind.VECTORIZED)
        for s in (made.reads, *made.stores)
    ]
    assert inner == [lane, row]


def test_a_square_whose_rows_have_a_condition_is_stored_row_by_row() -> None:
    """The condition must stay inside the loop over rows."""
    row, lane = Var("row"), Var("lane")
    tile, a = Buffer("tile", "float32", (4, 64), "shared", pipelined=True), Buffer("A", "float32", (256,))
    vector = For(lane, 4, ForKind.VECTORIZED, Store(tile, lane * 64 + row, a[row * 64 + lane]))
    made = staged(For(row, 4, ForKind.UNROLLED, If(compare("<", row, 3), vector)))
    (stores,) = made.stores
    assert isinstance(stores, For) and stores.var is row and isinstance(stores.body, If)


def test_a_condition_that_differs_between_lanes_keeps_copies_whole() -> None:
    lane, cond = Var("lane"), Var("t")
    tile, a = Buffer("tile", "float32", (4, 64), "shared", pipelined=True), Buffer("A", "float32", (256,))
    for left, count in ((cond, 1), (cond + lane, 0)):
        store = If(compare("<", left, 3), Store(tile, lane * 64, a[lane]))
        assert len(staged(For(lane, 4, ForKind.VECTORIZED, store)).registers) == count


def test_copies_without_lanes_are_left_alone() -> None:
    source = emit(te.lower(TILES["two loops of steps"])).source
    assert "_fetched" not in source and "copy_async<4>(&A_shared" in source


def test_what_a_thread_fetches_is_bounded() -> None:
    i, lane = Var("i"), Var("lane")
    tile, a = Buffer("tile", "float32", (4, 64), "shared", pipelined=True), Buffer("A", "float32", (256,))
    for iterations, count in ((8, 1), (16, 0)):
        store = Store(tile, lane * 64 + i, a[i * 4 + lane])
        copy = For(i, iterations, ForKind.SERIAL, For(lane, 4, ForKind.VECTORIZED, store))
        assert len(staged(copy).registers) == count


def test_results_are_written_in_vectors() -> None:
    """Quadrants of 2 in pairs, whatever order the loops have; bias and relu go with them."""
    source = emit(te.lower(TILES["quadrants"])).source
    assert re.search(r"\*\(float2 \*\)\(C \+ .*make_float2\(apart\(C_local\[", source)
    assert not re.search(r"^ *C\[", source, re.M)


def test_operands_of_the_iteration_behind_the_last_lie_in_a_tile() -> None:
    """They are read without a condition where the number of the tile alone depends on the iteration."""
    t, q = Var("t"), Var("q")
    assert reads_by_tile(t % 2 * 40 + q, t) and reads_by_tile(as_expr(3), t) and reads_by_tile((t + 1) % 2 * 40 + q, t)
    assert not reads_by_tile(t % 2 * 40 + t * 4 + q, t) and not reads_by_tile(t % 2 * 40 + (t + 1) // 7, t)
