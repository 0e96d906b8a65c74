"""Features of small programs, worked out by hand or by listing every address."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor.features.lanes import Lanes
from te_lite.bounds.bounds import infer_bounds
from te_lite.bounds.footprint import Cover, Footprint
from te_lite.bounds.nest import nests_of
from te_lite.expr.expr import Const, const
from te_lite.expr.simplify import Simplifier
from te_lite.schedule.loop_steps import Annotate, Fuse, Reorder, Split
from te_lite.schedule.loop_value import all_values, split_guards
from te_lite.schedule.place_steps import ComputeAt
from te_lite.schedule.region import DivAtom, Linear
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import CacheRead, CacheWrite
from te_lite.schedule.state import Stage, State
from te_lite.schedule.step import Step
from tests.ansor.feature_values import Row, rows_of
from tests.nonempty import nonempty
from tests.workloads import matmul, matmul_relu

NAMES = ("unique_bytes", "stride", "reuse_ct", "reuse_dis_iter", "reuse_dis_bytes", "lines", "unique_lines")


def test_buffers_of_a_plain_matmul() -> None:
    n, m, k = 6, 32, 5
    row = rows_of(te.ComputeDAG(matmul(n, m, k)).init_state, "c")[2]
    points = n * m * k
    stored, b, a = ({name: row[f"B{i}.{name}"] for name in NAMES} for i in range(3))
    assert stored == pytest.approx(dict(zip(NAMES, [4 * n * m, 0, k, 1, 12, points / k / 16, n * m / 16], strict=True)))
    total = 4 * (m + k + k * m)
    assert b == pytest.approx(dict(zip(NAMES, [4 * k * m, m, n, k * m, total, points, k * m / 16], strict=True)))
    inner = 4 * (1 + k + k)
    run = n * k / 16
    assert a == pytest.approx(dict(zip(NAMES, [4 * n * k, 1, m, k, inner, points / 16, run], strict=True)))
    assert row["float_mad"] == pytest.approx(points) and row["float_mul"] == row["float_addsub"] == 0
    assert row["arith_intensity_0"] == row["arith_intensity_1"] == pytest.approx(2 * k / inner)
    assert row["arith_intensity_6"] == pytest.approx(2 * m * k / total)
    assert row["arith_intensity_9"] == pytest.approx(2 * points / (4 * (n * k + k * m + n * m)))
    assert row["outer_prod"] == pytest.approx(points) and row["num_loops"] == pytest.approx(3)


def test_loops_of_extent_one_are_no_loops() -> None:
    dag = te.ComputeDAG(matmul(6, 32, 5))
    plain = rows_of(dag.init_state, "c")[2]
    steps = [Split(2, 0, 6, (1, 1)), Split(2, 3, 32, (1,)), Split(2, 5, 5, (1, 1))]
    assert np.array_equal(plain.values, rows_of(replay(dag, steps), "c")[2].values)


def kernel(n: int, m: int, k: int, ti: int, tj: int, tk: int) -> State:
    """A matmul with one thread per element of ti * tj tiles, its first input through shared memory."""
    steps: list[Step] = [
        Split(2, 0, n, (ti,)),
        Split(2, 2, m, (tj,)),
        Split(2, 4, k, (tk,)),
        Reorder(2, (0, 2, 1, 3, 4, 5)),
    ]
    steps += [Fuse(2, (0, 1)), Annotate(2, 0, "blockIdx.x"), Fuse(2, (1, 2)), Annotate(2, 1, "threadIdx.x")]
    steps += [CacheRead(0, "shared", (2,)), ComputeAt(1, 3, 2), Fuse(1, (0, 1)), Split(1, 0, ti * tk, (ti * tj,))]
    return replay(te.ComputeDAG(matmul(n, m, k)), [*steps, Annotate(1, 1, "threadIdx.x")])


@pytest.mark.parametrize(("ti", "tj", "tk"), [(8, 8, 4), (4, 16, 8), (32, 2, 4), (16, 4, 16), (2, 32, 2), (64, 1, 8)])
def test_warps(ti: int, tj: int, tk: int) -> None:
    n, m, k = 64, 96, 32
    rows = rows_of(kernel(n, m, k, ti, tj, tk), "cuda")
    threads = np.arange(32)
    address = {"out": (threads // tj) * m + threads % tj, "b": threads % tj, "shared": (threads // tj) * tk}
    flat = np.unique(threads)
    address["a"] = (flat // tk) * k + flat % tk
    product: Row = rows[3]
    column = {"out": product["B0.coalescing"], "b": product["B1.coalescing"], "a": rows[1]["B1.coalescing"]}
    for name, value in column.items():
        elements = np.unique(address[name])
        assert value == pytest.approx(4 * len(elements) / (32 * len(np.unique(elements // 8)))), name
    words = np.unique(address["shared"])
    assert product["B2.bank_conflict"] == pytest.approx(max(Counter((words % 32).tolist()).values()))


@pytest.mark.parametrize(("ti", "tj", "tk"), [(8, 8, 4), (64, 1, 32)])
def test_occupancy_and_waves(ti: int, tj: int, tk: int) -> None:
    row = rows_of(kernel(64, 96, 32, ti, tj, tk), "cuda")[3]
    blocks, threads, shared = 64 * 96 // 64, 64, 4 * ti * tk
    held = min(2048 // threads, 32, 228 * 1024 // (shared + 1024), 65536 // (24 * threads))
    assert [row[x] for x in ("blocks", "threads", "shared_bytes", "is_gpu")] == pytest.approx([96, 64, shared, 1])
    assert row["occupancy"] == pytest.approx(held * threads / 2048)
    assert row["waves"] == pytest.approx(blocks / (held * 132))
    assert row["tail_efficiency"] == pytest.approx(blocks / (held * 132))
    assert row["kernel_bytes_per_block"] == pytest.approx(4 * (ti * 32 + 32 * tj))
    assert row["kernel_flops"] == pytest.approx(2 * 64 * 96 * 32)


def test_unrolling_and_vectors() -> None:
    dag = te.ComputeDAG(matmul(8, 32, 6))
    state = replay(dag, [Reorder(2, (2, 0, 1)), Split(2, 2, 32, (4,)), Annotate(2, 3, "vectorize")])
    stage = replace(state.stages[2], auto_unroll_max_step=64)
    row = rows_of(state.with_stage(2, stage), "c")[2]
    assert [row["vec_num"], row["vec_prod"], row["vec_len"]] == pytest.approx([1, 4, 4])
    assert row["vec_at_inner_spatial"] == 1 and row["parallel_at_none"] == 1
    assert row["pragma_unrolled"] == pytest.approx(64) and row["auto_unroll"] == pytest.approx(64)


def one_row(shape: tuple[int, ...], body: object, steps: list[Step]) -> Row:
    """The row of `y = body(x)` with x of 16 x 64 elements, after `steps`; no GPU."""
    x = te.placeholder((16, 64), name="x")
    y = te.compute(shape, lambda *i: body(x, *i), name="y")  # type: ignore[operator]
    return rows_of(replay(te.ComputeDAG([x, y]), steps), "cuda")[1]


def test_runs_of_a_slice() -> None:
    row = one_row((8, 4), lambda x, i, j: x[i, j + 3], [])
    assert row["B1.unique_bytes"] == pytest.approx(4 * 8 * 4)
    assert row["B1.unique_lines"] == pytest.approx(8)


def test_several_reads_of_one_buffer() -> None:
    row = one_row((20,), lambda x, i: x[0, i] + x[0, i + 30] * x[0, i + 7], [])
    assert row["B1.bytes"] == pytest.approx(4 * 3 * 20)
    assert row["B1.unique_bytes"] == pytest.approx(4 * 50)
    row = one_row((6, 5), lambda x, i, j: x[0, i] + x[0, j + 10], [])
    assert row["B1.unique_bytes"] == pytest.approx(4 * 11)
    assert row["B1.reuse_none"] == 1 and row["B1.stride"] == pytest.approx(1)
    assert row["arith_intensity_3"] == pytest.approx(5 / (4 * (5 + 1 + 5)))


def test_strided_warps_use_half_a_sector() -> None:
    row = one_row((32,), lambda x, i: x[0, i * 2], [Annotate(1, 0, "threadIdx.x")])
    assert row["B1.coalescing"] == 0.5 and row["B0.coalescing"] == 1


def test_producers_in_a_common_loop() -> None:
    """C and D are computed in the rows of E: what D reads was stored in the same turn of the loop."""
    dag = te.ComputeDAG(matmul_relu(6, 32, 5))
    assert [op.name for op in dag.ops] == ["A", "B", "C", "bias", "D", "E"]
    consumer = rows_of(replay(dag, [ComputeAt(4, 5, 0), ComputeAt(2, 5, 0)]), "c")[4]
    assert [consumer[f"B1.{x}"] for x in ("reuse_serial", "reuse_loop", "reuse_ct")] == pytest.approx([1, 0, 1])
    assert consumer["B1.reuse_dis_iter"] == pytest.approx(32)
    assert consumer["B1.unique_bytes"] == pytest.approx(4 * 32)


def test_digits_of_a_flat_kernel() -> None:
    """Threads run through rows and columns at once; a stage computed in each thread reads side by side."""
    x = te.placeholder((12, 32), name="x")
    y = te.compute((12, 32), lambda i, j: x[i, j] * 2.0, name="y")
    z = te.compute((384,), lambda i: y[i // 32, i % 32] + 1.0, name="z")
    flat: list[Step] = [Split(2, 0, 384, (64,)), Annotate(2, 0, "blockIdx.x"), Annotate(2, 1, "threadIdx.x")]
    rows = rows_of(replay(te.ComputeDAG([x, z]), [*flat, ComputeAt(1, 2, 1)]), "cuda")
    assert rows[1]["B1.coalescing"] == 1 and rows[1]["B1.stride"] == pytest.approx(1)
    z = te.compute((12, 32), lambda i, j: y[i, j] + 1.0, name="z")
    both: list[Step] = [Fuse(2, (0, 1)), *flat, ComputeAt(1, 2, 1)]
    rows = rows_of(replay(te.ComputeDAG([x, z]), both), "cuda")
    assert rows[1]["B1.coalescing"] == 1 and rows[2]["B0.coalescing"] == 1


def test_the_largest_binding_launches() -> None:
    steps: list[Step] = [Split(2, 0, 16, (4,)), Annotate(2, 0, "blockIdx.x"), Annotate(2, 1, "threadIdx.x")]
    steps += [CacheRead(0, "shared", (2,)), ComputeAt(1, 3, 0), Annotate(1, 1, "threadIdx.x")]
    state = replay(te.ComputeDAG(matmul(16, 12, 32)), steps)
    assert [row["threads"] for row in rows_of(state, "cuda").values()] == pytest.approx([32, 32])


def test_virtual_threads_have_registers_side_by_side() -> None:
    steps: list[Step] = [CacheWrite(2, "local"), Split(3, 0, 8, (4,)), Annotate(3, 0, "threadIdx.x")]
    steps += [Annotate(3, 1, "vthread"), ComputeAt(2, 3, 2)]
    row = rows_of(replay(te.ComputeDAG(matmul(8, 1, 1)), steps), "cuda")[2]
    assert row["B0.unique_bytes"] == pytest.approx(4 * 4) and row["accumulators"] == pytest.approx(4)
    assert row["B0.stride"] == pytest.approx(1)


CASES: dict[str, list[Step]] = {
    "plain": [],
    "split": [Split(2, 0, 12, (3, 2)), Split(2, 4, 10, (5,)), Reorder(2, (0, 3, 1, 4, 2, 5))],
    "uneven": [Split(2, 0, 12, (5,)), Split(2, 2, 10, (4,)), Reorder(2, (0, 2, 1, 3, 4))],
    "fused": [Fuse(2, (0, 1)), Annotate(2, 0, "parallel")],
    "inside out": [Split(2, 0, 12, (3,)), Split(2, 2, 10, (5,)), Reorder(2, (1, 3, 0, 2, 4))],
    "flat": [Fuse(2, (0, 1)), Split(2, 0, 120, (20, 5))],
    "strided digits": [Split(2, 0, 12, (4,)), Reorder(2, (1, 0, 2, 3)), Fuse(2, (1, 2)), Split(2, 1, 30, (20,))],
    "flat and split": [Split(2, 0, 12, (4,)), Fuse(2, (1, 2)), Split(2, 1, 40, (2,))],
}


@pytest.mark.parametrize("case", CASES)
def test_values_that_loops_run_through(case: str) -> None:
    """Cover and steps of the axes against a list of all values."""
    bounds = infer_bounds(replay(te.ComputeDAG(matmul(12, 10, 3)), CASES[case]))
    stage = bounds.state.stages[2]
    cover = Cover(nests_of(bounds)[2], Lanes(bounds, 1))
    loops = [(loop.uid, int(stage.vars[loop.uid].extent or 0)) for loop in cover.nest.loops]
    for level in range(len(loops) + 1):
        seen = values_of(stage, loops, level)
        assert [len(s) for s in seen] == [float(v[level]) for v in cover.values], level
    for j, (uid, extent) in enumerate(loops):
        turn = values_at(stage, {u: int(u == uid and extent > 1) for u, _ in loops})
        assert turn is None or extent == 1 or [float(cover.steps[j].get(a, 0.0)) for a in range(3)] == turn, j


@pytest.mark.parametrize(
    "steps",
    [
        [Split(2, 0, 12, (3, 2)), Split(2, 3, 10, (5,)), Reorder(2, (0, 3, 1, 4, 2)), ComputeAt(1, 2, 2)],
        [Split(2, 0, 12, (5,)), Split(2, 2, 10, (4,)), Reorder(2, (0, 2, 1, 3)), ComputeAt(1, 2, 1)],
        [Fuse(2, (0, 1)), Split(2, 0, 120, (4, 5)), ComputeAt(1, 2, 1)],
    ],
    ids=["tiles", "uneven", "digits"],
)
@pytest.mark.parametrize("rows", [12, 30])
@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
def test_values_that_loops_around_run_through(steps: list[Step], rows: int, backward: bool) -> None:
    """Against a list of all regions; quotients may count one value more."""
    x = te.placeholder((rows, 10), name="x")
    y = te.compute((rows, 10), lambda i, j: x[i, j] * 2.0, name="y")
    z = te.compute((12, 10), lambda i, j: (y[rows - 1 - i, 9 - j] if backward else y[i, j]) + 1.0, name="z")
    bounds = infer_bounds(replay(te.ComputeDAG([x, z]), steps))
    nest = nests_of(bounds)[1]
    cover = Cover(nest, Lanes(bounds, 1))
    loops = [(loop.stage, loop.uid) for loop in nest.loops[: nest.around]]
    extents = [int(bounds.state.stages[s].vars[u].extent or 0) for s, u in loops]
    for axis, region in nonempty(enumerate(bounds.regions[1])):
        for level in range(nest.around + 1):
            seen = set()
            for point in np.ndindex(*[e if j >= level else 1 for j, e in enumerate(extents)]):
                low = value_at(region.min, dict(zip(loops, point, strict=True)))
                seen |= set(range(max(low, 0), min(low + region.extent, (rows, 10)[axis])))
            assert len(seen) <= cover.values[axis][level] <= len(seen) + (level < nest.around and len(steps) == 3)


def test_a_region_that_goes_back_in_one_dimension_and_forth_in_another() -> None:
    x = te.placeholder((9, 9), name="x")
    y = te.compute((9, 9), lambda i, j: x[i, j] * 2.0, name="y")
    z = te.compute((9,), lambda i: y[8 - i, i], name="z")
    bounds = infer_bounds(replay(te.ComputeDAG([x, z]), [ComputeAt(1, 2, 0)]))
    assert rows_of(bounds.state, "c")[1]["B1.stride"] == pytest.approx(9 - 1)
    assert Footprint(bounds, 1, {}).steps((2, 0)) == (-1, 1)


def value_at(low: Linear, at: dict[tuple[int, int], int]) -> int:
    total = int(low.const)
    for atom, c in low.terms.items():
        if isinstance(atom, DivAtom):
            base = value_at(atom.base, at)
            total += c * (base % atom.divisor if atom.mod else base // atom.divisor)
        else:
            total += c * at[atom.stage, atom.uid]
    return total


def values_of(stage: Stage, loops: list[tuple[int, int]], level: int) -> list[set[int]]:
    """The values of the axes while the loops from `level` on run."""
    seen: list[set[int]] = [set(), set(), set()]
    for point in np.ndindex(*[extent if j >= level else 1 for j, (_, extent) in enumerate(loops)]):
        values = values_at(stage, {uid: int(x) for (uid, _), x in zip(loops, point, strict=True)})
        for axis, value in enumerate(values or []):
            seen[axis].add(value)
    return seen


def values_at(stage: Stage, at: dict[int, int]) -> list[int] | None:
    """The values of the three axes at a point of the loops; None outside of the guards."""
    variables = {uid: const(x) for uid, x in at.items()}
    simplify = Simplifier({}).simplify
    if any(not simplify(guard).value for guard in split_guards(stage, variables)):  # type: ignore[attr-defined]
        return None
    values = all_values(stage, variables)
    found = [simplify(values[axis]) for axis in range(3)]
    assert all(isinstance(x, Const) for x in found)
    return [int(x.value) for x in found]  # type: ignore[attr-defined]


def test_registers_of_a_tile() -> None:
    """Six rows of two vectors of 16, for 64 steps: two vectors of B wait for the next row, an element of A for both."""
    steps: list[Step] = [Split(2, 0, 96, (6,)), Split(2, 2, 1024, (2, 16))]
    steps += [Reorder(2, (0, 2, 5, 1, 3, 4)), Annotate(2, 5, "vectorize")]
    row = rows_of(replay(te.ComputeDAG(matmul(96, 1024, 64)), steps), "c")[2]
    wanted = {
        "sums_held": 12, "sums_steps": 64, "sums_parts": 1, "tile_vectors": 12, "vector_lanes": 16, "vector_fill": 1,
        "vector_masked": 0, "step_vectors": 2, "step_broadcasts": 6, "step_elements": 0, "step_reads": 8 / 12,
        "operands_live": 3, "tile_spilled": 0,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == pytest.approx(wanted)


def test_kernels_have_no_register_columns() -> None:
    for row in nonempty(rows_of(kernel(8, 8, 8, 4, 4, 4), "cuda").values()):
        assert row["sums_held"] == row["tile_vectors"] == row["vector_lanes"] == 0
