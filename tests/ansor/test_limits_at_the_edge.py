"""A limit is the most that is allowed: that much is kept, reached and counted, one more is not.

Each number that is compared with a limit is tested at the limit, below it and above it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.analytical import CPU, GPUS, Machine, seconds
from ansor.autotvm.annotate import AnnotateEntity
from ansor.autotvm.errors import InstantiationError
from ansor.autotvm.split import greedy_split
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.core.values.options import SketchOptions
from ansor.evolve.mutation import CPU_MUTATIONS
from ansor.evolve.neighbours import neighbours
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.records.journal import MAX_LINE, append_lines
from ansor.sketch import generate_sketches
from ansor.sketch.shared_memory import shared_bytes
from ansor.space.decisions.decision import Setting, Tile
from ansor.space.decisions.factor_tables import factor_table
from ansor.space.decisions.lengths import Lengths
from ansor.space.decisions.thread_plans import ThreadLimits, thread_plan
from ansor.space.decisions.threads import Threads
from ansor.space.decisions.vectorize import most_lanes
from ansor.space.limits import MAX_ACCUMULATORS, VECTORS_PER_LOOP, fits, rows_fit, threads_per_block
from ansor.space.programs import Programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import random_variant, space_of
from ansor.space.states import concrete
from te_lite.bounds.bounds import infer_bounds
from te_lite.loops.stmt import For, ForKind, stmts_of
from te_lite.schedule.loop_steps import Annotate, Pragma, Reorder, Split
from te_lite.schedule.place_steps import ComputeAt
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import CacheWrite
from te_lite.schedule.state import State
from te_lite.schedule.step import Step
from tests.ansor.evolution_cases import random_rows, space_named
from tests.ansor.feature_values import rows_of
from tests.ansor.sketch_cases import HARDWARE, matmul, min_rows
from tests.drawn_programs import drawn_program

CUDA = HARDWARE["cuda"]
MOVE_FACTOR = next(m for m in CPU_MUTATIONS if m.name == Lengths.name)
SERVER = CPU("server", 4, 3e9, 64, 64)


# ------------------------------------------------------------------------------------------------ unrolling


def unrolled_state(limit: int, target: str, n: int = 4, m: int = 128) -> State:
    a = te.placeholder((n, m), name="A")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="B")
    steps: list[Step] = [Annotate(1, 0, "threadIdx.x")] if target == "cuda" else []
    return replay(te.ComputeDAG([a, b]), [*steps, Pragma(1, 0, f"auto_unroll_max_step${limit}")])


@pytest.mark.parametrize("limit", [4, 5, 6, 19, 20, 21, 59, 60, 61])
def test_features_count_the_copies_that_lowering_makes(limit: int) -> None:
    """Loops of 3, 4 and 5 become 5, 20 and 60 statements."""
    a = te.placeholder((3, 4, 5), name="A")
    b = te.compute(a.shape, lambda i, j, k: a[i, j, k] + 1.0, name="B")
    state = replay(te.ComputeDAG([a, b]), [Pragma(1, 0, f"auto_unroll_max_step${limit}")])
    loops = [s for s in stmts_of(te.lower(state).body) if isinstance(s, For) and s.kind is ForKind.UNROLLED]
    assert rows_of(state, "c")[1]["pragma_unrolled"] == pytest.approx(prod(s.extent for s in loops))


@pytest.mark.parametrize(("target", "machine"), [("c", SERVER), ("cuda", GPUS["H200"])])
def test_estimates_unroll_up_to_the_limit(target: str, machine: Machine) -> None:
    below, at, above = [
        float(seconds(Programs(infer_bounds(unrolled_state(limit, target))), machine)[0]) for limit in (127, 128, 129)
    ]
    assert below > at == above


@pytest.mark.parametrize(("order", "inside"), [((0, 1, 4, 2, 3), True), ((0, 1, 2, 4, 3), False)])
@pytest.mark.parametrize("vectors", [4, 8, 12])
def test_estimates_keep_as_many_sums_as_there_are_registers(vectors: int, order: tuple[int, ...], inside: bool) -> None:
    """A row of sums inside the reduction stays in registers if it takes all but the spare ones or less.

    Of one outside, where sums are set to zero one vector at a time, a single vector is held.  Caches cost nothing here:
    of sums in parts, less has to stay in them.
    """
    steps: list[Step] = [Split(2, 1, 768, (vectors, 16)), Reorder(2, order), Annotate(2, 4, "vectorize")]
    bounds = infer_bounds(replay(te.ComputeDAG(matmul(64, 768, 1024)), steps))

    def cost(registers: int) -> float:
        machine = replace(SERVER, registers=registers, l2_per_clock=1e9, l3_per_clock=1e9)
        return float(seconds(Programs(bounds), machine)[0])

    enough = (vectors if inside else 1) + SERVER.unit.spare
    assert cost(enough - 1) > cost(enough) == cost(enough + 1)


# ---------------------------------------------------------------------------------------------- what is masked


def test_vectors_are_as_long_as_the_most_bytes() -> None:
    """On a processor only those that the search chooses: a loop that is in vectors already may copy a whole row."""
    for target, chosen in (("c", True), ("c", False), ("cuda", False)):
        most = HARDWARE[target].vector_unit_bytes * VECTORS_PER_LOOP // 4
        for lanes in (most - 1, most, most + 1):
            a = te.placeholder((3, lanes), name="A")
            dag = te.ComputeDAG([a, te.compute(a.shape, lambda i, j: a[i, j] + 1.0, name="B")])  # noqa: B023
            bounds = infer_bounds(replay(dag, [] if chosen else [Annotate(1, 1, "vectorize")]))
            made = Programs(bounds, 1, {"vectorize": {1: 1}} if chosen else {})
            limited = chosen or target == "cuda"
            assert fits(made, HARDWARE[target]).tolist() == [lanes <= most or not limited]


def accumulating(elements: int) -> State:
    """One thread with so many sums in local memory."""
    steps: list[Step] = [CacheWrite(2, "local"), Annotate(3, 0, "threadIdx.x"), ComputeAt(2, 3, 0)]
    return replay(te.ComputeDAG(matmul(2, elements, 3)), steps)


def test_sums_of_a_thread_are_as_many_as_allowed() -> None:
    for elements in (MAX_ACCUMULATORS - 1, MAX_ACCUMULATORS, MAX_ACCUMULATORS + 1):
        bounds = infer_bounds(accumulating(elements))
        assert fits(Programs(bounds), CUDA).tolist() == [elements <= MAX_ACCUMULATORS]


def test_rows_fit_exactly_up_to_the_threads_and_virtual_threads_of_the_machine() -> None:
    space = space_named("matmul", "cuda")
    (row,) = random_rows(space, 1, np.random.default_rng(5))
    for t in space.tiles:
        row[t.columns] = (4, 8, 1, 1) if t.parts == 4 else 1
    assert prod(row[t.first] for t in space.tiles if t.parts == 4) == 16
    for vthreads, threads, kept in ((16, 64, True), (15, 64, False), (16, 63, False), (17, 65, True)):
        limits = replace(CUDA, max_vthread_extent=vthreads, max_threads_per_block=threads)
        assert rows_fit(space, row[None, :], limits).tolist() == [kept]


# ------------------------------------------------------------------------------------------- what is reached


@pytest.mark.parametrize("limits", [ThreadLimits(4, 1, 16), ThreadLimits(2, 8, 32), ThreadLimits(1, 1, 1)])
def test_drawn_threads_reach_all_that_the_limits_allow(limits: ThreadLimits) -> None:
    """Against all pairs of factorisations."""
    extents = (16, 12)
    tables = [factor_table(e, 4, 8).tolist() for e in extents]
    pairs = {(a[0] * b[0], a[1] * b[1]) for a in tables[0] for b in tables[1]}
    allowed = {p for p in pairs if p[0] <= limits.max_vthread and limits.min_threads <= p[1] <= limits.max_threads}
    plan = thread_plan(tuple([(e,) for e in extents]), 4, limits, 8)
    assert set(plan.ways[-1]) == allowed
    assert (limits.max_vthread, limits.max_threads) in allowed


def test_innermost_lengths_are_as_long_as_allowed() -> None:
    for most in (3, 4, 11, 12, 13):
        assert factor_table(12, 2, most)[:, -1].max() == max(d for d in (1, 2, 3, 4, 6, 12) if d <= most)


def test_neighbours_reach_the_longest_innermost_length() -> None:
    space = replace(
        space_named("prime_matmul", "c"), choices=(), tiles=(Tile(0, 0, (16,), 0, 1, 8, False, ("serial",)),)
    )  # fmt: skip
    assert neighbours(space, np.array([4])).tolist() == [[8], [2]]
    assert neighbours(space, np.array([8])).tolist() == [[4]]


def test_a_tile_that_its_innermost_length_may_take_whole_can_be_moved() -> None:
    one = replace(space_named("prime_matmul", "c"), choices=(), tiles=(Tile(0, 0, (7,), 0, 1, 7, False, ("serial",)),))
    rows, rng = np.ones((20, 1), np.int64), np.random.default_rng(0)
    assert (MOVE_FACTOR.apply(rows, one, rng)[0] == 7).all()
    less = replace(one, tiles=(replace(one.tiles[0], max_innermost=6),))
    assert not MOVE_FACTOR.apply(rows, less, rng)[1].any()


@pytest.mark.parametrize(("most", "counts"), [(128, (32, 64, 128)), (127, (32, 64)), (64, (32, 64)), (32, (32,))])
def test_plain_kernels_may_have_all_threads_of_a_block(most: int, counts: tuple[int, ...]) -> None:
    a = te.placeholder((4096,), name="A")
    state = te.ComputeDAG([a, te.compute(a.shape, lambda i: a[i] + 1.0, name="B")]).init_state
    setting = Setting(Target("cuda"), replace(CUDA, max_threads_per_block=most), SketchOptions())
    assert Threads().values(state, setting) == {1: counts}


@pytest.mark.parametrize(("size", "lanes"), [(15, 0), (16, 1), (63, 1), (64, 2), (65, 2)])
def test_loops_are_vectorized_up_to_the_most_lanes(size: int, lanes: int) -> None:
    a = te.placeholder((3, 4, 16), name="A")
    dag = te.ComputeDAG([a, te.compute(a.shape, lambda i, j, k: a[i, j, k] + 1.0, name="B")])
    assert int(most_lanes(infer_bounds(dag.init_state).state, 1, 0, size)) == lanes


@pytest.mark.parametrize(("rows", "crossed"), [(1024, True), (1025, False)])
def test_outputs_as_many_as_the_threads_of_a_block_are_reduced_across_threads(rows: int, crossed: bool) -> None:
    sketches = generate_sketches(te.ComputeDAG(matmul(rows, 1, 2048)), "cuda", CUDA)
    threads = [it.annotation == "threadIdx.x" for s in sketches for stage in s.stages for it in stage.iters]
    assert any(threads) == crossed


@pytest.mark.parametrize(("reduced", "crossed"), [(33, True), (32, False)])
def test_reductions_longer_than_a_warp_are_done_across_threads(reduced: int, crossed: bool) -> None:
    sketches = generate_sketches(te.ComputeDAG(min_rows(4, reduced)), "cuda", CUDA)
    assert any(it.annotation == "threadIdx.x" for s in sketches for t in s.stages for it in t.iters) == crossed


def sampled(how: str, hardware: HardwareParams) -> Iterator[State]:
    """Random programs of a small matrix product, one by one or as rows."""
    (sketch,) = generate_sketches(te.ComputeDAG(matmul(16, 16, 16)), "cuda", hardware)
    rng, target = np.random.default_rng(0), Target("cuda")
    if how == "one by one":
        yield from (s for _ in range(150) if (s := drawn_program(sketch, target, hardware, rng)) is not None)
        return
    variant = random_variant(space_of(sketch, target, hardware), rng)
    for row in sample_rows(variant, 150, rng, target, hardware):
        yield concrete(variant, row, target, hardware)


@pytest.mark.parametrize("how", ["one by one", "rows"])
def test_samples_reach_the_threads_and_the_shared_memory_of_a_block(how: str) -> None:
    """Nothing exceeds a limit, and some programs use all of it: the sizes are those that tiles can have."""
    hardware = replace(CUDA, max_threads_per_block=64, max_shared_memory_per_block=512)
    bounds = [infer_bounds(s) for s in sampled(how, hardware)]
    assert max(n for b in bounds for n in threads_per_block(b).values()) == 64
    assert max(n for b in bounds for n in shared_bytes(b).values()) == 512


# ------------------------------------------------------------------------------------- runners and backends


def test_the_analytical_runner_starts_what_just_fits() -> None:
    task = ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(64, 64, 64)), target="cuda", hardware_params=CUDA)
    (state,) = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0).ask(1)
    bounds = infer_bounds(state)
    threads, shared = max(threads_per_block(bounds).values()), max(shared_bytes(bounds).values())
    for more_threads, more_bytes, error in ((0, 0, 0), (-1, 0, 4), (0, -1, 4)):
        hardware = replace(
            CUDA, max_threads_per_block=threads + more_threads, max_shared_memory_per_block=shared + more_bytes
        )
        tight = ansor.SearchTask(compute_dag=task.compute_dag, target="cuda", hardware_params=hardware)
        inp = ansor.MeasureInput(tight, state)
        assert AnalyticalRunner().run(inp, NoBuilder().submit(inp).result()).error_no == error


def test_knobs_of_templates() -> None:
    assert greedy_split("x", 49, [-1, 7]).size == (-1, 7) and greedy_split("x", 49, [-1, 6]).size == (-1, 1)
    schedule = te.create_schedule(te.compute((8,), lambda i: i * 2, name="A").op)
    axes = schedule.state.dag.ops[0]
    (i,) = schedule[axes].op.axis
    AnnotateEntity(("unroll",)).apply(schedule, axes, [i], axis_lens=[8], max_unroll=8)
    with pytest.raises(InstantiationError, match="more than 7 iterations"):
        AnnotateEntity(("unroll",)).apply(schedule, axes, [i], axis_lens=[8], max_unroll=7)


def test_records_hold_as_much_as_allowed(tmp_path: Any, record: Any) -> None:
    inp, res = record()
    line = json.loads(ansor.dump_record_to_string(inp, res))
    for number, ok in ((10_000, True), (10_001, False)):
        text = json.dumps({**line, "r": [[1e-3] * number, *line["r"][1:]]})
        path = tmp_path / str(number)
        append_lines(path, [text])
        assert len(list(ansor.load_records(path))) == ok
    for size in (MAX_LINE, MAX_LINE + 1):
        path = tmp_path / f"size{size}"
        text = json.dumps(line)
        path.write_text(text + " " * (size - len(text)))
        assert len(list(ansor.load_records(path))) == (size == MAX_LINE)
        append_lines(path, [text])
        assert len(list(ansor.load_records(path))) == 1 + (size == MAX_LINE)
