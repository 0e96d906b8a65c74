"""The analytical models: bounds that no program can beat, orders that measurements confirm, ints equal to lanes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import ansor.analytical.machine as machines
import te_lite as te
from ansor.analytical import CPU, GPU, GPUS, Machine, machine_of, seconds
from ansor.analytical.gpu import _fetched_bytes, has_wide_tile
from ansor.analytical.loop_nests import loop_nests
from ansor.core.host.process import VECTOR_BYTES, host_family, second_cache_bytes
from ansor.core.target.hardware import GPUS as MODELS
from ansor.cost_model.prior import AnalyticalModel
from ansor.sketch import generate_sketches
from ansor.space.programs import Programs, programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import random_space, random_variant
from ansor.space.states import concrete
from te_lite import topi
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.loop_steps import Annotate, Fuse, Pragma, Reorder, Split
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.state import State
from tests.amount import some
from tests.ansor.sketch_cases import CASES, HARDWARE, dag_of
from tests.ansor.test_population_programs import any_rows
from tests.ansor_ext.pipeline.test_register_double_buffer import product
from tests.conformance.cost_model import CostModelSuite, measured
from tests.conv_layer import as_lanes, as_single, conv2d_layer, cuda_steps, random_factors, tutorial_layer
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.workloads import matmul

__all__ = ["measured"]
SERVER = CPU("server", 4, 2.5e9, 64, 64)
MACHINES: dict[str, Machine] = {"c": SERVER, "cuda": GPUS["H200"]}


def one(state: State, machine: Machine) -> float:
    return float(seconds(Programs(infer_bounds(state)), machine)[0])


@cache
def sampled(dag: te.ComputeDAG, target: str, n: int, seed: int) -> list[State]:
    rng = np.random.default_rng(seed)
    sketches = generate_sketches(dag, ansor.Target(target), HARDWARE[target])
    found = [drawn_program(sketches[k % len(sketches)], target, HARDWARE[target], rng) for k in range(n)]
    return [s for s in found if s is not None]


# ----------------------------------------------------------------------------------------------- ints and lanes


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("case", sorted(CASES)[::3])
@pytest.mark.one_in(3)
def test_lanes_are_their_single_programs(case: str, target: str) -> None:
    rng = np.random.default_rng(7)
    hardware, machine = HARDWARE[target], MACHINES[target]
    for sketch in nonempty(generate_sketches(dag_of(case), ansor.Target(target), hardware)[:3]):
        variant = random_variant(random_space(sketch, rng, target, hardware), rng)
        rows = any_rows(variant.space, 5, rng, sample_rows(variant, 5, rng, target, hardware))
        many = seconds(programs(variant, rows, target, hardware), machine)
        single = [one(concrete(variant, row, target, hardware), machine) for row in rows]
        np.testing.assert_array_equal(many, single)
        assert np.isfinite(many).all() and (many > 0).all()


class Untrue(np.ndarray):
    """Lanes that refuse to be asked for their truth, even when there is only one."""

    def __bool__(self) -> bool:
        raise AssertionError("a lane was asked for its truth")


def test_no_lane_is_asked_for_its_truth() -> None:
    factors = random_factors(np.random.default_rng(1), 1)
    wrapped = [tuple([np.asarray(x).view(Untrue) for x in f]) for f in as_lanes(factors)]
    many = Programs(infer_bounds(replay(tutorial_layer(), cuda_steps(wrapped, 0))), 1, {"unroll": {5: np.array([64])}})
    single = one(replay(tutorial_layer(), cuda_steps(as_single(factors, 0), 64)), GPUS["H200"])
    assert seconds(many, GPUS["H200"]).tolist() == [single]
    ones = np.array([1]).view(Untrue)
    bounds = infer_bounds(te.ComputeDAG(matmul(12, 20, 5)).init_state)
    numbers = {"parallel": {2: ones}, "vectorize": {2: 0 * ones}, "unroll": {2: 16 * ones}}
    assert np.isfinite(seconds(Programs(bounds, 1, numbers), SERVER)).all()


# ------------------------------------------------------------------------------------------------------- bounds


def least_bytes(dag: te.ComputeDAG) -> int:
    return sum([4 * int(np.prod(t.shape)) for t in (*dag.inputs, *dag.outputs)])


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("build", [lambda: matmul(96, 130, 77), lambda: conv2d_layer(2, 9, 9, 32, 24, 3, 2, 1)])
def test_nothing_beats_the_roofline(build: Any, target: str) -> None:
    dag = te.ComputeDAG(build())
    machine = MACHINES[target]
    least = dag.flop_ct / machine.flops
    if isinstance(machine, GPU):
        least = max(least, least_bytes(dag) / machine.dram)
    found = [one(s, machine) for s in sampled(dag, target, some(40, 26), 3)]
    assert len(set(found)) > 20
    assert min(found) >= least


@pytest.mark.parametrize("name", ["multiprocessors", "dram", "l2_per_clock", "clock"])
def test_more_of_a_gpu_is_not_slower(name: str) -> None:
    small = GPUS["A100"]
    large = replace(small, **{name: 2 * getattr(small, name)})
    for state in nonempty(sampled(tutorial_layer(), "cuda", some(30, 10), 5)):
        assert one(state, large) <= one(state, small) * (1 + 1e-9)


def test_more_cores_are_not_slower() -> None:
    for state in nonempty(sampled(tutorial_layer(), "c", some(30, 10), 5)):
        times = [one(state, replace(SERVER, cores=n)) for n in (1, 2, 8)]
        assert times == sorted(times, reverse=True)


# ------------------------------------------------------------------------------------- single effects, by hand


def elementwise(n: int, m: int) -> State:
    a = te.placeholder((n, m), name="A")
    return te.ComputeDAG([a, te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="B")]).init_state


def bound(state: State, threads: int, transposed: bool = False) -> State:
    """One thread an element, along rows or down columns."""
    steps: list[Any] = [Reorder(1, (1, 0))] if transposed else []
    steps += [Fuse(1, (0, 1)), Split(1, 0, 0, (threads,)), Annotate(1, 0, "blockIdx.x"), Annotate(1, 1, "threadIdx.x")]
    for step in steps:
        state = apply(state, step)
    return state


def test_threads_and_coalescing() -> None:
    state = elementwise(4096, 4096)
    gpu = GPUS["H200"]
    rows, columns, thin = [one(bound(state, *how), gpu) for how in ((256,), (256, True), (2,))]
    assert 1.5 * rows < columns
    assert 4 * rows < thin
    assert rows < 1.5 * 2 * 4 * 4096**2 / gpu.dram + 2e-6


def test_lines_of_a_warp_cost_time_even_in_l1() -> None:
    """Every block reads the same 32 KiB, which L1 holds, with neighbouring threads in one line or in 32."""

    def build(transposed: bool) -> State:
        a = te.placeholder((256, 32) if transposed else (32, 256), name="A")
        r = te.reduce_axis((0, 32), "r")
        read = (lambda t: a[t, r]) if transposed else (lambda t: a[r, t])
        state = te.ComputeDAG([a, te.compute((8192, 256), lambda b, t: te.sum(read(t), axis=r), "B")]).init_state
        for step in (Annotate(1, 0, "blockIdx.x"), Annotate(1, 1, "threadIdx.x")):
            state = apply(state, step)
        return state

    fast, slow = one(build(False), GPUS["H200"]), one(build(True), GPUS["H200"])
    assert slow > 2 * fast


def test_waves() -> None:
    """One block more than a wave holds costs as much as a whole wave more."""
    gpu = replace(GPUS["H200"], blocks=1, dram=1e15, l2_per_clock=1 << 20)
    times = [one(bound(elementwise(n, 1024), 1024), gpu) for n in (132, 133, 264)]
    assert times[0] < times[1] == pytest.approx(times[2], rel=0.05)


def test_vectors_and_parallel_loops() -> None:
    plain = te.ComputeDAG(matmul(64, 64, 64)).init_state
    split = apply(apply(plain, Split(2, 1, 0, (16,))), Reorder(2, (0, 1, 3, 2)))
    vector = apply(split, Annotate(2, 3, "vectorize"))
    shared = apply(vector, Annotate(2, 0, "parallel"))
    times = [one(s, SERVER) for s in (split, vector)]
    assert times[0] > 4 * times[1]
    large = replay(te.ComputeDAG(matmul(1024, 1024, 1024)), shared.steps)
    assert one(large, SERVER) < one(large, replace(SERVER, cores=1)) / 3


def test_guarded_sums_stay_in_memory() -> None:
    """Tiles that run over an output keep a guard in the inner loop; where they do not, or in local storage, none."""

    def estimate(rows: int, tile: int, local: bool) -> float:
        a, b = te.placeholder((rows, 256), name="A"), te.placeholder((256, 64), name="B")
        k = te.reduce_axis((0, 256), name="k")
        c = te.compute((rows, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
        s = te.create_schedule([c])
        target = s.cache_write(c, "local") if local else c
        if local:
            outer, _ = s[c].split(s[c].op.axis[0], factor=tile)
            s[target].compute_at(s[c], outer)
        i, j = s[target].op.axis
        i0, i1 = s[target].split(i, factor=tile)
        s[target].reorder(i0, s[target].op.reduce_axis[0], i1, j)
        s[target].vectorize(j)
        s[target].unroll(i1)
        return one(s.state, SERVER)

    cases = [(rows, 6, local) for rows in (47, 48) for local in (False, True)]
    per_row = {case: estimate(*case) / case[0] for case in cases}
    assert per_row[47, 6, False] > 2 * per_row[48, 6, False]
    assert per_row[47, 6, True] < 1.2 * per_row[48, 6, True]


def test_copies_that_turn_are_done_in_vectors() -> None:
    a = te.placeholder((128, 128), name="A")
    far = te.compute((128, 128), lambda i, j: a[j, i * 3 % 128], name="B")
    turned = one(te.ComputeDAG([a, te.compute((128, 128), lambda i, j: a[j, i], name="B")]).init_state, SERVER)
    scattered = one(te.ComputeDAG([a, far]).init_state, SERVER)
    assert turned < scattered / 2


def test_unrolling_keeps_sums_in_registers() -> None:
    state = te.ComputeDAG(matmul(256, 256, 256)).init_state
    for step in (Split(2, 0, 0, (4,)), Split(2, 2, 0, (16,)), Reorder(2, (0, 2, 4, 1, 3)), Annotate(2, 4, "vectorize")):
        state = apply(state, step)
    unrolled = apply(state, Pragma(2, 0, "auto_unroll_max_step$64"))
    assert one(unrolled, SERVER) <= one(state, SERVER)


def test_sums_beyond_the_registers_of_a_block_are_spilled() -> None:
    """128 sums for each of 1024 threads are twice what a multiprocessor has registers for."""
    few, many = [
        one(product(4096, 4096, 4096, (2, threads, 1, 4), (4, 16, 1, 4), (16, 1), 4), GPUS["H200"])
        for threads in (16, 64)
    ]
    assert many > 1.5 * few


@pytest.mark.parametrize(("rows", "wide"), [((2, 8, 1, 4), False), ((4, 8, 1, 4), True), ((2, 8, 2, 4), True)])
def test_tiles_of_8_by_16_sums_are_wide(rows: tuple[int, ...], wide: bool) -> None:
    """Whichever loops have the sums: those of virtual threads are a thread's, too."""
    state = product(4096, 4096, 4096, rows, (2, 16, 1, 4), (16, 1), 4)
    assert [bool(has_wide_tile(nest)) for nest in loop_nests(Programs(infer_bounds(state)))].count(True) == wide


def test_few_rows_want_wide_tiles() -> None:
    """128 x 32768 x 32768, measured on an H200: 5.83 ms with 8 x 16 sums a thread, 6.80 with 8 x 8."""
    wide, narrow = [
        one(product(128, 32768, 32768, rows, (2, 16, 1, 4), (16, 1), 4), GPUS["H200"])
        for rows in ((4, 8, 1, 4), (2, 8, 1, 4))
    ]
    assert wide < narrow


# ------------------------------------------------------------------------------------------------- measurements


def spearman(a: Any, b: Any) -> float:
    """The rank correlation of two sequences without ties."""
    ranks = [np.argsort(np.argsort(x)) for x in (a, b)]
    return float(np.corrcoef(*ranks)[0, 1])


@pytest.mark.parametrize(
    ("name", "machine", "least"),
    [("cuda_h200", GPUS["H200"], 0.9), ("cpu", CPU("measured", 2, 2.5e9, 64, 64, vectorizes=True), 0.4)],
)
def test_order_of_measured_programs(name: str, machine: Machine, least: float, golden_log: Any) -> None:
    """TVM measured 64 random programs of a matrix product on an H200, and on two cores, compiled by LLVM."""
    inputs, results = ansor.RecordReader(golden_log(name)[0]).read_lines()
    measured_ones = [(i.state, r.cost) for i, r in zip(inputs, results, strict=True) if r.ok and r.cost < 1e9]
    assert len(measured_ones) > 50
    estimates = [one(state, machine) for state, _ in measured_ones]
    costs = [cost for _, cost in measured_ones]
    assert spearman(estimates, costs) > least
    if name == "cuda_h200":
        assert 0.3 < np.median(np.array(estimates) / costs) < 3


# ---------------------------------------------------------------------------------------- machines and the model


def test_machine_of_a_target() -> None:
    assert (
        machine_of("cuda -model=T4", HARDWARE["cuda"]) is machine_of("cuda -model=t4", HARDWARE["cuda"]) is GPUS["T4"]
    )
    assert machine_of("cuda -model=unknown", HARDWARE["cuda"]) is GPUS["H200"]
    assert set(MODELS) == set(GPUS)
    assert machine_of("cuda -arch=sm_90", HARDWARE["cuda"]) is GPUS["H200"]
    assert machine_of("cuda", HARDWARE["cuda"]) is GPUS["H200"]
    cpu = machine_of("llvm", replace_cores(6))
    assert isinstance(cpu, CPU) and (cpu.cores, cpu.vector) == (6, VECTOR_BYTES[host_family()])
    assert machine_of("vta", ansor.HardwareParams(target="vta")).name == "sim_1x16_i8w8a32_15_15_18_17"
    with pytest.raises(ansor.TaskError, match="known models"):
        machine_of("cuda -model=K80", HARDWARE["cuda"])


def test_the_second_cache_is_this_machines_where_a_target_may_mean_it(monkeypatch: pytest.MonkeyPatch) -> None:
    here, longest = VECTOR_BYTES[host_family()], max(VECTOR_BYTES.values())
    monkeypatch.setattr(machines, "second_cache_bytes", lambda: 3 << 19)
    assert cache_of("c", here) == 3 << 19
    assert cache_of("c", 16 if here != 16 else 32) == cache_of("c -mcpu=zen3", 16 if here != 16 else 32) != 3 << 19
    assert cache_of("c -march=native", longest) == 1 << 20
    monkeypatch.setattr(machines, "second_cache_bytes", lambda: None)
    assert cache_of("c", longest) == 1 << 20


def cache_of(target: str, vector_bytes: int) -> int:
    """The bytes of the second-level cache of a CPU whose vectors have so many."""
    cpu = machine_of(target, ansor.HardwareParams(num_cores=2, vector_unit_bytes=vector_bytes, target=target))
    assert isinstance(cpu, CPU)
    return cpu.l2.size


@pytest.mark.parametrize(
    ("levels", "size", "found"),
    [("1123", "2048K", 2 << 20), ("112", "512K", 1 << 19), ("11", "1K", None), ("2", "?", None)],
)
def test_the_system_says_how_large_the_second_cache_is(
    levels: str, size: str, found: int | None, tmp_path: Path
) -> None:
    assert second_cache_bytes(tmp_path / "nothing") is None
    for k, level in enumerate(levels):
        (folder := tmp_path / f"index{k}").mkdir()
        (folder / "level").write_text(f"{level}\n")
        (folder / "size").write_text(f"{size if level == '2' else '32K'}\n")
    assert second_cache_bytes(tmp_path) == found


def replace_cores(n: int) -> ansor.HardwareParams:
    return ansor.HardwareParams(num_cores=n, target="c")


def test_peaks_are_those_of_the_data_sheets() -> None:
    peaks = {"V100": 15.7, "T4": 8.1, "A100": 19.5, "H100": 67, "H200": 67, "RTX3090": 35.6, "RTX4090": 82.6}
    for name, tera in peaks.items():
        assert GPUS[name].flops / 1e12 == pytest.approx(tera, rel=0.02)


class TestAnalyticalModel(CostModelSuite):
    @pytest.fixture
    def model(self) -> AnalyticalModel:
        return AnalyticalModel()


def test_scores_of_states_and_programs_agree() -> None:
    task = ansor.SearchTask(compute_dag=tutorial_layer(), target="cuda")
    model = AnalyticalModel(GPUS["V100"])
    states = sampled(tutorial_layer(), "cuda", 6, 1)
    sketch = generate_sketches(tutorial_layer(), task.target, task.hardware_params)[0]
    scores = model.predict(task, [*states, sketch])
    assert scores[-1] == -np.inf
    single = [model.predict_programs(task, Programs(infer_bounds(s)))[0] for s in states]
    np.testing.assert_array_equal(scores[:-1], single)
    np.testing.assert_allclose(np.exp(-scores[:-1]), [one(s, GPUS["V100"]) for s in states])


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_extents_beyond_64_bits(target: str) -> None:
    """More iterations than an int64 counts: finite, and far slower than a small one."""
    rng = np.random.default_rng(3)
    hardware, machine = HARDWARE[target], MACHINES[target]
    least = {}
    for shape in ((512, 512, 512), (2**21, 2**21, 2**22)):
        found = []
        for sketch in generate_sketches(te.ComputeDAG(matmul(*shape)), ansor.Target(target), hardware):
            variant = random_variant(random_space(sketch, rng, target, hardware), rng)
            rows = sample_rows(variant, 6, rng, target, hardware)
            found += seconds(programs(variant, rows, target, hardware), machine).tolist()
            found += [one(concrete(variant, row, target, hardware), machine) for row in rows]
        assert np.isfinite(found).all()
        least[shape] = min(found)
    assert least[2**21, 2**21, 2**22] > 1e9 * least[512, 512, 512] > 0


# --------------------------------------------------------------------------------------------- odd little tasks


def gated(channels: int, depth: int) -> te.ComputeDAG:
    """A 1x1 convolution of one pixel with a bias and a gate: the loops of its last stages are blocks."""
    data, weight = te.placeholder((1, depth, 1, 1), name="data"), te.placeholder((channels, depth, 1, 1), name="weight")
    conv = topi.nn.conv2d_nchw(data, weight, 1, 0, 1)
    bias, gate = te.placeholder((channels, 1, 1), name="bias"), te.placeholder(conv.shape, name="gate")
    wide = te.compute(conv.shape, lambda n, c, y, x: bias[c, y, x], name="wide")
    added = te.compute(conv.shape, lambda *i: conv[i] + wide[i], name="added")
    shut = te.compute(conv.shape, lambda *i: te.sigmoid(added[i]), name="shut")
    return te.ComputeDAG([data, weight, bias, gate, te.compute(conv.shape, lambda *i: shut[i] * gate[i], name="y")])


@pytest.mark.long
@pytest.mark.parametrize("shape", [(4, 96), (1, 7), (8, 1), (5, 3)])
@pytest.mark.one_in(2)
def test_a_first_round_of_a_little_task(shape: tuple[int, int]) -> None:
    task = ansor.SearchTask(compute_dag=gated(*shape), target="cuda")
    for seed in range(some(2, 1)):
        assert ansor.SketchPolicy(task, ansor.XGBModel(seed=seed), seed=seed, verbose=0).ask(16)


@pytest.mark.parametrize("blocks", [0, 1, 2])
def test_a_nest_of_blocks_starts_once(blocks: int) -> None:
    """Blocks are no loops around a nest: with a cache for all of it, a block asks for each byte once, and misses it."""
    tags = ["blockIdx.x", "blockIdx.y"][:blocks]
    state = replay(te.ComputeDAG(matmul(64, 64, 64)), tuple([Annotate(2, k, tag) for k, tag in enumerate(tags)]))
    (nest,) = loop_nests(Programs(infer_bounds(state)))
    _, misses = _fetched_bytes(nest, 1 << 17)
    assert misses == pytest.approx(1)
