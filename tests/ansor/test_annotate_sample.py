"""Every random program is valid: it keeps to the limits, replays, survives JSON, and computes the workload."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.values.options import SketchOptions
from ansor.sketch import generate_sketches
from ansor.sketch.predicates import is_tiled
from ansor.sketch.shared_memory import shared_bytes
from ansor.space.decisions.loops import fill, holes
from ansor.space.decisions.unroll import CPU_UNROLL, GPU_UNROLL
from te_lite import ComputeDAG
from te_lite.bounds.bounds import infer_bounds
from te_lite.meaning.interp import run
from te_lite.schedule.loop_steps import FollowFusedSplit, Fuse, Pragma, Split
from te_lite.schedule.replay import replay
from te_lite.schedule.state import ATTACHED, INLINED, ROOT, Stage, State
from te_lite.schedule.step import from_json, to_json
from tests.amount import some
from tests.ansor import sketch_cases
from tests.ansor.sketch_cases import CASES, HARDWARE, dag_of
from tests.conv_layer import conv2d_layer
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import Oracle

SAMPLES = some(80, 24)


def programs(dag: ComputeDAG, target: str, count: int, seed: int = 0) -> list[State]:
    """`count` samples, the sketches taken in turn."""
    sketches = generate_sketches(dag, target, HARDWARE[target])
    out = []
    for k in range(count):
        state = drawn_program(sketches[k % len(sketches)], target, HARDWARE[target], np.random.default_rng([seed, k]))
        assert state is not None
        out.append(state)
    return out


def round_trips(state: State) -> bool:
    text = json.dumps([to_json(step) for step in state.steps])
    return replay(state.dag, [from_json(x) for x in json.loads(text)]) == state


def extent_of(stage: Stage, annotation: str) -> int:
    return math.prod(it.extent for it in stage.iters if it.annotation == annotation)  # type: ignore[misc]


def depth_of_parallel(state: State, k: int, around: int = 0) -> int:
    """The largest number of parallel loops around each other in stage `k` and what is computed in it."""
    deepest = around
    for it in state.stages[k].iters:
        around += it.annotation == "parallel"
        inside = [depth_of_parallel(state, child, around) for child in state.attached_to(k, it.uid)]
        deepest = max(deepest, around, *inside)
    return deepest


# ----------------------------------------------------------------------------------------------------- CPU


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", ["matmul", "conv2d_bn_relu", "softmax_abcd", "winograd", "layer_norm", "strided_conv"])
@pytest.mark.one_in(6)
def test_cpu_samples_are_valid(name: str, seed: int) -> None:
    for state in nonempty(programs(dag_of(name), "c", SAMPLES, seed)):
        assert round_trips(state)
        bounded = infer_bounds(state).state
        for k, stage in nonempty(enumerate(bounded.stages)):
            if stage.is_placeholder or stage.where == INLINED:
                continue
            assert all(isinstance(it.extent, int) for it in nonempty(stage.iters))
            assert extent_of(stage, "vectorize") <= 64
            if stage.where == ROOT:
                assert depth_of_parallel(bounded, k) <= 1
        pragmas = [step.text for step in state.steps if isinstance(step, Pragma)]
        assert set(pragmas) <= {f"auto_unroll_max_step${v}" for v in CPU_UNROLL}


def test_untiled_stages_move() -> None:
    """The padding of a convolution is found at its root, inlined, and at several loops of the convolution."""
    seen = set()
    for state in programs(dag_of("conv2d_bn_relu"), "c", SAMPLES):
        stage = state.stages[1]
        loop = None if stage.attach is None else state.stages[stage.attach.stage].vars[stage.attach.iter].name
        seen.add((stage.where, loop))
    places = {where for where, _ in seen}
    assert places == {ROOT, INLINED, ATTACHED} and len(seen) > 8


def test_locations_can_be_frozen() -> None:
    sketch = generate_sketches(dag_of("conv2d_bn_relu"), "c", HARDWARE["c"])[0]
    options = SketchOptions(
        disable_change_compute_location=1, max_vectorize_size=4, max_innermost_split_factor=2,
        max_innermost_reduce_factor=2,
    )  # fmt: skip
    for k in range(30):
        state = drawn_program(sketch, "c", HARDWARE["c"], np.random.default_rng(k), options)
        assert state is not None and state.stages[1].where == ROOT
        assert all(step.lengths[-1] <= 2 for step in state.steps if isinstance(step, Split))  # type: ignore[operator]
        for stage in infer_bounds(state).state.stages:
            assert stage.is_placeholder or stage.where == INLINED or extent_of(stage, "vectorize") <= 4


@pytest.mark.long
def test_loops_of_a_tile_are_lanes_together_where_they_lie_side_by_side() -> None:
    """The rows of an image tile join when the tile is as wide as the image (or what a loop around it needs of it)."""
    lanes: dict[str, set[Any]] = {}
    for state in programs(ComputeDAG(conv2d_layer(1, 7, 7, 4, 4, 3, 1, 1)), "c", 300):
        for stage in infer_bounds(state).state.stages:
            if is_tiled(stage) and stage.op.reduce_axis and stage.where == ROOT:
                last = stage.vars[stage.leaf[-1]]
                lanes.setdefault(last.name, set()).add(last.extent)
    assert lanes["xx.3"] == {1, 7} and lanes["yy.3@xx.3@"] == {7, 49}


# ----------------------------------------------------------------------------------------------------- GPU


def check_kernel(state: State, k: int, hardware: HardwareParams) -> None:
    """The limits of the kernel whose root is stage `k` of a bounded state."""
    stage = state.stages[k]
    inside = [s for s in state.stages if s.attach is not None and s.attach.stage == k]
    bound = [s for s in (stage, *inside) if any(it.annotation == "threadIdx.x" for it in s.iters)]
    assert bound, f"{stage.op.name} is bound to no thread"
    threads = {extent_of(s, "threadIdx.x") for s in bound}
    assert max(threads) <= hardware.max_threads_per_block
    assert extent_of(stage, "vthread") <= hardware.max_vthread_extent
    points = math.prod(stage.op.shape)
    if extent_of(stage, "vthread") and any(it.annotation == "vthread" for it in stage.iters):
        assert max(threads) >= hardware.warp_size or points <= 2 * hardware.warp_size


GPU_CASES = ["matmul", "small_matmul", "conv2d_bn_relu", "strided_conv", "softmax_abcd", "winograd", "double_matmul"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", GPU_CASES)
@pytest.mark.one_in(6)
def test_gpu_samples_keep_to_the_limits(name: str, seed: int) -> None:
    hardware = HARDWARE["cuda"]
    for state in nonempty(programs(dag_of(name), "cuda", SAMPLES, seed)):
        assert round_trips(state)
        bounds = infer_bounds(state)
        assert all(n <= hardware.max_shared_memory_per_block for n in shared_bytes(bounds).values())
        for k, stage in nonempty(enumerate(bounds.state.stages)):
            if not stage.is_placeholder and stage.where == ROOT:
                check_kernel(bounds.state, k, hardware)
            if stage.op.name.endswith(".shared"):
                assert [it.annotation for it in stage.iters] == ["none", "threadIdx.x", "vectorize"]
                assert stage.iters[2].extent in (1, 2, 4)
        pragmas = [step.text for step in state.steps if isinstance(step, Pragma)]
        assert set(pragmas) <= {f"auto_unroll_max_step${v}" for v in GPU_UNROLL}


def test_gpu_steps_have_the_shape_of_a_tvm_record() -> None:
    state = programs(dag_of("matmul"), "cuda", 1)[0]
    tags = " ".join(step.tag for step in state.steps)
    tiles = "CHW SP SP SP RE FSP FSP RE CA CHR CA CHR CA"
    threads = "FU AN FU AN FU AN"
    fetch = "FU SP AN FFSP AN"
    assert tags == f"{tiles} {threads} {fetch} {fetch} PR"
    follow = [step for step in state.steps if isinstance(step, FollowFusedSplit)]
    assert [(s.sources, s.level, s.factor) for s in follow] == [((2, 1), 1, True)] * 2
    assert [s.iters for s in state.steps if isinstance(s, Fuse)] == [(0, 1), (1, 2), (2, 3), (0, 1), (0, 1)]


def test_vector_widths_are_explored() -> None:
    widths = {
        infer_bounds(s).state.stages[k].iters[-1].extent for s in programs(dag_of("matmul"), "cuda", 60) for k in (1, 3)
    }
    assert widths == {1, 2, 4}


# ------------------------------------------------------------------------------------------ meaning and seeds

SMALL: dict[str, ComputeDAG] = {
    "matmul": ComputeDAG(sketch_cases.matmul(24, 40, 16)),
    "prime_matmul": ComputeDAG(sketch_cases.matmul(13, 101, 7)),
    "deep_matmul": ComputeDAG(sketch_cases.matmul(6, 8, 80)),
    "conv2d": ComputeDAG(sketch_cases.conv2d_bn_relu(2, 9, 9, 4, 8, 3, 2, 1)),
    "softmax": ComputeDAG(sketch_cases.softmax(3, 70)),
    "layer_norm": ComputeDAG(sketch_cases.layer_norm(5, 70)),
    "zero_rank": ComputeDAG(sketch_cases.zero_rank_compute(130)),
    "outer_add": ComputeDAG(sketch_cases.matmul_outer_add(16, 24, 8)),
    "residual": ComputeDAG(sketch_cases.residual(16)),
    "chained": ComputeDAG(sketch_cases.sum_of_squares(5, 70)),
}


def compiled(func: te.LoweredFunc, args: object) -> None:
    codegen_c.build(func)(*args)  # type: ignore[misc]


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.one_in(5)
def test_samples_compute_the_workload(name: str, target: str) -> None:
    dag = SMALL[name]
    oracle = Oracle(dag, np.random.default_rng(7))
    for state in nonempty(programs(dag, target, 4 if target == "c" else 8, seed=3)):
        program = te.lower(state)
        found = oracle.mismatch(program, compiled if target == "c" else run)  # type: ignore[arg-type]
        assert found is None, f"{found} in {[to_json(step) for step in state.steps]}"


def test_same_seed_same_program() -> None:
    for target in ("c", "cuda"):
        dag = dag_of("conv2d_bn_relu")
        assert [s.steps for s in programs(dag, target, 5)] == [s.steps for s in programs(dag, target, 5)]
        assert [s.steps for s in programs(dag, target, 5)] != [s.steps for s in programs(dag, target, 5, seed=1)]


SCRIPT = """
import json
from te_lite.schedule.step import to_json
from tests.ansor.sketch_cases import dag_of
from tests.ansor.test_annotate_sample import programs
for name in ("conv2d_bn_relu", "softmax", "winograd"):
    for target in ("c", "cuda"):
        print(json.dumps([[to_json(x) for x in s.steps] for s in programs(dag_of(name), target, 4)]))
"""


@pytest.mark.long
def test_programs_do_not_depend_on_the_hash_seed() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.getcwd()},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert outputs[0] == outputs[1] and outputs[0].count("\n") == 6


def test_every_case_can_be_sampled() -> None:
    for name in CASES:
        for target in ("c", "cuda"):
            for state in nonempty(programs(dag_of(name), target, some(3, 1))):
                assert state.concrete and infer_bounds(state).state.steps == state.steps


@pytest.mark.parametrize(("target", "log"), [("cuda", "cuda_h200"), ("c", "cpu")])
def test_sketches_are_the_beginning_of_tvm_records(target: str, log: str) -> None:
    """With its lengths filled in, one of our sketches is how every program that TVM measured begins."""
    dag = ComputeDAG(sketch_cases.matmul(1024, 1024, 1024))
    sketches = generate_sketches(dag, target, HARDWARE[target])
    lines = (Path(__file__).parents[1] / "golden" / f"tvm_log_matmul1024_{log}.json").read_text().splitlines()
    for line in nonempty(lines):
        steps = tuple(from_json(step) for step in json.loads(line)["i"][1][1])
        begins = []
        for sketch in sketches:
            lengths = {p: steps[p].lengths for p in holes(sketch) if p < len(steps) and isinstance(steps[p], Split)}
            same = len(lengths) == len(holes(sketch))
            begins.append(same and fill(sketch, lengths).steps == steps[: len(sketch.steps)])
        assert any(begins)
