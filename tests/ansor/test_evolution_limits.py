"""What a machine can run: against logs of TVM, single programs, lowered programs, and brute force."""

from __future__ import annotations

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.space.decisions.draw import Matrix
from ansor.space.decisions.thread_plans import thread_splits
from ansor.space.limits import MAX_ACCUMULATORS, accumulators, fits, rows_fit, threads_per_block, vector_bytes
from ansor.space.programs import Programs, programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import Space, home, space_of
from benchmarks import workloads as benchmarks
from codegen_cuda.emission.limits import usage
from te_lite import topi
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.replay import replay
from tests.ansor.evolution_cases import random_rows, space_named, spaces_of
from tests.ansor.sketch_cases import HARDWARE, dag_of
from tests.codegen_cuda.golden_states import COUNT, golden_state
from tests.conv_layer import as_lanes, as_single, conv2d_layer, cuda_steps, random_factors, tutorial_layer

CUDA = HARDWARE["cuda"]


def limited(name: str, value: int) -> HardwareParams:
    limits = HardwareParams(target="cuda")
    object.__setattr__(limits, name, value)
    return limits


def test_nothing_that_tvm_measured_is_masked() -> None:
    largest = 0
    for k in range(COUNT):
        bounds = infer_bounds(golden_state(k))
        assert fits(Programs(bounds), CUDA).tolist() == [True]
        largest = max(largest, *[elements for elements, _ in accumulators(bounds).values()])
    assert largest == MAX_ACCUMULATORS


def test_lanes_equal_single_programs() -> None:
    dag = tutorial_layer()
    factors = random_factors(np.random.default_rng(0), 120)
    lanes = fits(Programs(infer_bounds(replay(dag, cuda_steps(as_lanes(factors)))), 120), CUDA)
    single = [
        bool(fits(Programs(infer_bounds(replay(dag, cuda_steps(as_single(factors, i))))), CUDA)[0]) for i in range(120)
    ]
    assert lanes.dtype == np.bool_ and lanes.tolist() == single
    assert 0 < sum(single) < 120


def test_numbers_are_those_of_the_lowered_program() -> None:
    dag = tutorial_layer()
    factors = random_factors(np.random.default_rng(3), 12)
    for i in range(12):
        state = replay(dag, cuda_steps(as_single(factors, i)))
        bounds = infer_bounds(state)
        (kernel,) = usage(te.lower(state))
        ((_, threads),) = threads_per_block(bounds).items()
        ((_, (_, local_bytes)),) = accumulators(bounds).items()
        assert (threads, local_bytes) == (kernel.threads, kernel.local_bytes)
        assert max(vector_bytes(Programs(bounds))) == max(kernel.vector_loop_bytes, 4)


def test_each_limit_masks() -> None:
    state = golden_state(0)
    bounds = infer_bounds(state)
    (kernel,) = usage(te.lower(state))
    vthreads = max(it.extent for s in bounds.state.stages for it in s.iters if it.annotation == "vthread")  # type: ignore[type-var]
    assert isinstance(vthreads, int) and vthreads > 1
    for name, exact in [
        ("max_threads_per_block", kernel.threads), ("max_shared_memory_per_block", kernel.shared_bytes),
        ("max_local_memory_per_block", kernel.local_bytes), ("max_vthread_extent", vthreads),
    ]:  # fmt: skip
        assert fits(Programs(bounds), limited(name, exact))[0]
        assert not fits(Programs(bounds), limited(name, exact - 1))[0]


def test_vector_loops_are_counted_by_lanes() -> None:
    a = te.placeholder((6, 5, 40), name="a")
    dag = te.ComputeDAG([a, topi.nn.relu(a)])
    bounds = infer_bounds(dag.init_state)
    last = len(bounds.state.stages) - 1
    programs = Programs(bounds, 4, {"vectorize": {last: np.array([0, 1, 2, 3])}})
    assert np.array(list(vector_bytes(programs))[-1]).tolist() == [4, 160, 800, 4800]
    assert fits(programs, HARDWARE["c"]).tolist() == [True, True, False, False]
    assert fits(Programs(bounds, 1, {"vectorize": {last: 2}}), HARDWARE["c"]).tolist() == [False]


# ------------------------------------------------------------------------------------------------ decisions


def by_definition(space: Space, rows: Matrix, least: int, hardware: HardwareParams) -> np.ndarray:
    out = np.ones(len(rows), bool)
    for positions in thread_splits(space.sketch).values():
        tiles = [t for t in space.tiles if t.step in positions]
        vthreads, threads = [np.prod([rows[:, t.first + level] for t in tiles], axis=0) for level in (0, 1)]
        out &= (vthreads <= hardware.max_vthread_extent) & (threads <= hardware.max_threads_per_block)
        out &= threads >= least
    return out


@pytest.mark.parametrize(("name", "least"), [("matmul", 32), ("strided_conv", 32), ("winograd", 32), ("residual", 32)])
def test_rows_fit_what_sampling_draws(name: str, least: int) -> None:
    space = space_named(name, "cuda")
    rng = np.random.default_rng(0)
    rows = random_rows(space, 300, rng)
    expected = by_definition(space, rows, least, CUDA)
    assert rows_fit(space, rows, CUDA).tolist() == expected.tolist()
    assert not expected.all()
    drawn = sample_rows(home(space_of(space.sketch, "cuda", CUDA)), 40, rng, "cuda", CUDA)
    rows = random_rows(space, len(drawn), rng)
    for t in space.tiles:
        rows[:, t.columns] = drawn[:, t.columns]
    assert len(rows) == 40 and rows_fit(space, rows, CUDA).all()


def test_small_outputs_may_use_less_than_a_warp_and_tiles_of_prime_ones_run_over() -> None:
    for dag, least in ((te.ComputeDAG(outer(3, 5)), 1), (te.ComputeDAG(outer(2053, 1)), 32), (dag_of("matmul"), 32)):
        space = spaces_of(dag, "cuda")[0]
        rows = random_rows(space, 200, np.random.default_rng(1))
        assert rows_fit(space, rows, CUDA).tolist() == by_definition(space, rows, least, CUDA).tolist()
        assert rows_fit(space, rows, CUDA).any() or least == 32


def outer(n: int, m: int) -> list[te.Tensor]:
    a, b = te.placeholder((n, 1024), name="A"), te.placeholder((1024, m), name="B")
    k = te.reduce_axis((0, 1024), "k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "C")]


def test_cpu_rows_all_fit() -> None:
    space = space_named("matmul", "c")
    assert rows_fit(space, random_rows(space, 50, np.random.default_rng(0)), HARDWARE["c"]).all()


KEPT = [
    benchmarks.matmul(64, 64, 64), benchmarks.conv2d(1, 7, 7, 32, 16, 3, 1, 1),
    benchmarks.matmul(320, 320, 320), benchmarks.dense(320, 300, 310), conv2d_layer(1, 7, 7, 64, 64, 3, 1, 1),
]  # fmt: skip


@pytest.mark.parametrize("workload", KEPT)
def test_every_sketch_of_a_cpu_has_programs_that_are_kept(workload: list[te.Tensor]) -> None:
    """Those with cached, packed and accumulated stages too, which are arrays in local memory, copied row by row."""
    task = ansor.SearchTask(compute_dag=workload, target="c")
    policy = ansor.SketchPolicy(task, seed=0, verbose=0)
    drawer = policy.proposals
    drawer.most_variants = len(drawer.sketches)
    groups = drawer.population(16 * len(drawer.sketches))
    assert len(groups) == len(drawer.sketches) > len(policy.generate_sketches()) > 1
    made = [programs(g.variant, g.rows, task.target, task.hardware_params) for g in groups]
    assert all(fits(x, task.hardware_params).all() for x in made)
    assert sum(bool(accumulators(x.bounds)) for x in made) > 1
