"""The rules beyond Ansor's: which sketches they give, and that their programs compute the workload."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor.core.errors import TaskError
from ansor.core.target.hardware import HardwareParams
from ansor.sketch.generate import OWNERS, extra_sketches
from ansor.sketch.predicates import needs_tiling, split_steps
from ansor.sketch.shared_memory import shared_bytes
from ansor.space.decisions.cooperative_fetch import copies
from ansor.space.decisions.loops import holes
from ansor.space.sample import sample_rows
from ansor.space.spaces import random_variant, space_of
from ansor.space.states import concrete, parse
from ansor_ext.analysis.own_stages import has_rfactor
from ansor_ext.axes.steps import Reindex
from ansor_ext.injective.injective import ITEMS
from benchmarks import workloads as benchmarks
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from te_lite import ComputeDAG, Tensor, topi
from te_lite.bounds.bounds import infer_bounds
from te_lite.expr.expr import Expr
from te_lite.loops.stmt import Alloc, Buffer, stmts_of
from te_lite.meaning.interp import run
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import ATTACHED, ROOT, State
from te_lite.schedule.step import from_json, to_json
from tests.amount import some
from tests.ansor import sketch_cases
from tests.ansor.sketch_cases import HARDWARE, matmul
from tests.conv_layer import conv2d_layer, tutorial_layer
from tests.drawn_programs import drawn_program
from tests.nonempty import nonempty
from tests.oracle import Oracle

AHEAD = ("double_buffer", *[name for name in OWNERS if name.endswith("_ahead")])
TVM_TAGS = {"AN", "FU", "PR", "RE", "SP", "FSP", "FFSP", "SA", "CA", "CI", "CR", "CHR", "CHW", "RF"}


def softmax_of_matmul(n: int, m: int, k: int) -> list[Tensor]:
    """A long reduction whose reader is no element-wise one."""
    a, b, c = matmul(n, m, k)
    return [a, b, topi.nn.softmax(c, axis=-1)]


SMALL: dict[str, Callable[[], list[Tensor]]] = {
    "conv": lambda: conv2d_layer(1, 3, 5, 8, 16, 3, 1, 1),
    "matmul": lambda: matmul(13, 20, 96),
    "wide_matmul": lambda: matmul(9, 130, 14),
    "dense": lambda: benchmarks.dense(1, 96, 36),
    "batch_matmul": lambda: benchmarks.batch_matmul(2, 8, 7, 64),
    "softmax_of_matmul": lambda: softmax_of_matmul(6, 10, 64),
    "norm": lambda: benchmarks.norm(2, 64, 32),
    "relu": lambda: benchmarks.relu(12, 42),
    "prime_relu": lambda: benchmarks.relu(13, 7),
    "softmax": lambda: benchmarks.softmax(6, 40),
    "max_pool": lambda: benchmarks.max_pool2d(2, 7, 7, 12, 3, 2, 1),
    "mean": lambda: benchmarks.global_avg_pool(2, 3, 3, 20),
}
DAGS = {name: ComputeDAG(make()) for name, make in SMALL.items()}


def rule_sketches(dag: ComputeDAG, target: str, rule: str) -> list[State]:
    return extra_sketches(dag, target, HARDWARE[target], rules=[rule])


def factor_of(sketch: State) -> int:
    """The factor of the first rfactor: the extent of the partial results' first axis."""
    return next(s.op.shape[0] for s in sketch.stages if ".rf" in s.op.name)


def programs(sketch: State, target: str, count: int) -> list[State]:
    drawn = [drawn_program(sketch, target, HARDWARE[target], np.random.default_rng([5, k])) for k in range(count)]
    assert all(s is not None for s in drawn)
    return [s for s in drawn if s is not None]


def compiled(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    codegen_c.build(func)(*args)


def check_decided(dag: ComputeDAG, sketches: Sequence[State], seed: int) -> None:
    """Nothing is left open in the sketches, and a program of each computes the workload; the first one is compiled."""
    oracle = Oracle(dag, np.random.default_rng(seed))
    for n, sketch in enumerate(sketches):
        assert not holes(sketch)
        (state,) = programs(sketch, "c", 1)
        assert oracle.mismatch(te.lower(state), compiled if n == 0 else run) is None


def emulated(func: te.LoweredFunc, args: Sequence[np.ndarray]) -> None:
    run_program(emit(func), args)


# ------------------------------------------------------------------------------------------ which sketches


@pytest.mark.parametrize(
    ("tensors", "factors"),
    [
        (lambda: tutorial_layer().tensors, [2, 4, 8, 16]),
        (lambda: matmul(128, 128, 2048), [2, 4, 8, 16, 32]),
        (lambda: benchmarks.dense(1, 512, 1000), [2, 4, 8, 16, 32]),
        (lambda: benchmarks.batch_matmul(1, 128, 128, 128), [2, 4, 8]),
        (lambda: benchmarks.norm(1, 256, 256), [16, 64, 256]),
        (lambda: matmul(1024, 1024, 1024), [2]),
        (lambda: matmul(2048, 2048, 2048), []),
        (lambda: matmul(1024, 1024, 256), []),
        (lambda: matmul(127, 509, 1021), [2, 4, 8]),
        (lambda: matmul(64, 64, 60), []),
        (lambda: matmul(64, 64, 101), []),
        (lambda: benchmarks.relu(64, 64), []),
    ],
)
def test_split_factors_on_gpus(tensors: Callable[[], Sequence[Tensor]], factors: list[int]) -> None:
    sketches = rule_sketches(ComputeDAG(list(tensors())), "cuda", "split_reduction")
    assert [factor_of(s) for s in sketches] == factors


def test_cpus_split_only_what_leaves_cores_idle() -> None:
    few, many = HardwareParams(4, 64, 64, 0, 0, 0, 0, 0), HardwareParams(2, 64, 64, 0, 0, 0, 0, 0)
    dag = ComputeDAG(benchmarks.dense(1, 512, 1000))
    assert {factor_of(s) for s in extra_sketches(dag, "c", few, rules=["split_reduction"])} == {2, 4}
    assert not extra_sketches(dag, "c", many, rules=["split_reduction"])


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", ["conv", "matmul", "dense", "batch_matmul", "softmax_of_matmul"])
def test_partial_results_are_tiled_by_the_ordinary_rules(name: str, target: str) -> None:
    found = rule_sketches(DAGS[name], target, "split_reduction")
    assert found
    for sketch in found:
        assert sum(isinstance(step, RFactor) for step in sketch.steps) == 1
        (k,) = [k for k in range(len(sketch.stages)) if has_rfactor(sketch, k) and needs_tiling(sketch, k)]
        structure = "SSSRRSRS" if target == "cuda" else "SSRSRS"
        axes, reductions = sketch.stages[k].op.axis, sketch.stages[k].op.reduce_axis
        loops = structure.count("S") * len(axes) + structure.count("R") * len(reductions)
        assert len(sketch.stages[k].leaf) == loops and len(split_steps(sketch, k)) == len(axes) + len(reductions)
        first = sketch.steps[min(split_steps(sketch, k))]
        assert isinstance(first, Split) and set(first.lengths) == {1}
        assert len(holes(sketch)) == len(axes) + len(reductions) - 1
        if target == "cuda":
            assert len(copies(sketch)) == 2 and sketch.stages[k].where == ATTACHED


def test_the_sum_of_the_parts_is_computed_where_it_is_used() -> None:
    for name, kernels in (("conv", 2), ("dense", 2), ("matmul", 2), ("softmax_of_matmul", 5)):
        for sketch in nonempty(rule_sketches(DAGS[name], "cuda", "split_reduction")[:1]):
            roots = [s.op.name for s in sketch.stages if s.where == ROOT and not s.is_placeholder]
            assert len(roots) == kernels, roots


def test_injective_grains() -> None:
    large = rule_sketches(ComputeDAG(benchmarks.relu(4096, 4096)), "cuda", "injective")
    assert len(large) == len(ITEMS) * 3 - 1
    assert len(rule_sketches(ComputeDAG(benchmarks.relu(8, 8)), "cuda", "injective")) == 2
    for absent in (benchmarks.relu(13, 7), benchmarks.dense(1, 512, 1000)):
        assert not rule_sketches(ComputeDAG(absent), "cuda", "injective")
    for state in [programs(s, "cuda", 1)[0] for s in large]:
        stage = infer_bounds(state).state.stages[-1]
        block, thread, items, lanes = [it.extent for it in stage.iters]
        assert [it.annotation for it in stage.iters] == ["blockIdx.x", "threadIdx.x", "unroll", "vectorize"]
        assert lanes in (1, 2, 4) and block * thread * items * lanes == 4096 * 4096  # type: ignore[operator]


def test_a_mean_becomes_one_kernel() -> None:
    for sketch in nonempty(rule_sketches(DAGS["mean"], "cuda", "injective")):
        assert sum(s.where == ROOT and not s.is_placeholder for s in sketch.stages) == 1


def test_pads_are_for_tiles_read_in_strides() -> None:
    """Rows of A are read down a column, rows of B along; with a transposed B both are read in strides."""
    aligned = {}
    for name in ("matmul", "dense"):
        (sketch,) = rule_sketches(DAGS[name], "cuda", "padded_shared")
        aligned[name] = {s.op.name: s.storage_align for s in sketch.stages if s.op.name.endswith(".shared")}
    assert aligned["matmul"] == {"A.shared": (0, 32, 4), "B.shared": None}
    assert aligned["dense"] == {"A.shared": None, "B.shared": (0, 32, 4)}
    assert not rule_sketches(DAGS["relu"], "cuda", "padded_shared")
    assert not rule_sketches(DAGS["matmul"], "c", "padded_shared")


def test_rows_that_are_read_along_are_packed() -> None:
    """Rows of B are read along, a few lanes of each; A is read down, and short rows are near."""
    sketches = rule_sketches(DAGS["wide_matmul"], "c", "packed_read")
    assert len(sketches) == 3
    for sketch in sketches:
        (panel,) = [s for s in sketch.stages if s.op.name == "B.local"]
        assert panel.where == ATTACHED and not any(s.op.name == "A.local" for s in sketch.stages)
    nhwc = ComputeDAG(benchmarks.conv2d(1, 5, 5, 8, 136, 3, 1, 1))
    assert not rule_sketches(DAGS["matmul"], "c", "packed_read")
    assert rule_sketches(nhwc, "c", "packed_read") and not rule_sketches(DAGS["wide_matmul"], "cuda", "packed_read")


OPERANDS: dict[str, tuple[int, Callable[[Tensor, Tensor, Tensor, Expr, Expr], Expr]]] = {
    "of an inlined copy": (0, lambda b, copy, one, k, j: copy[k, j]),
    "of itself and an inlined copy": (3, lambda b, copy, one, k, j: b[k, j] * copy[k, j]),
    "of itself, and down in an inlined copy": (3, lambda b, copy, one, k, j: b[k, j] * copy[j % 14, k]),
    "beside a scalar": (3, lambda b, copy, one, k, j: b[k, j] * one[()]),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_panels_are_packed_for_reductions_that_read_them_directly(name: str) -> None:
    """Of an operand that is read through an inlined stage, nothing in the reduction would read the copy."""
    count, operand = OPERANDS[name]
    a, b, one = te.placeholder((9, 14), name="A"), te.placeholder((14, 130), name="B"), te.placeholder((), name="one")
    copy = te.compute((14, 130), lambda k, j: b[k, j], name="copy")
    k = te.reduce_axis((0, 14), name="k")
    c = te.compute((9, 130), lambda i, j: te.sum(a[i, k] * operand(b, copy, one, k, j), axis=k), name="C")
    dag = ComputeDAG([t for t in (a, b, one, c) if name == "beside a scalar" or t is not one])
    sketches = rule_sketches(dag, "c", "packed_read")
    assert len(sketches) == count
    for state in [p for sketch in sketches for p in programs(sketch, "c", 1)]:
        assert [s.op.name for s in state.stages if s.op.name.endswith(".local")].count("B.local") == 1
        assert Oracle(dag, np.random.default_rng(6)).mismatch(te.lower(state), run) is None


def test_panels_of_reductions_whose_length_varies_are_packed() -> None:
    a, b = te.placeholder((9, 14), name="A"), te.placeholder((14, 130), name="B")

    def below_the_diagonal(i: Expr, j: Expr) -> Expr:
        k = te.reduce_axis((0, i + 1), name="k")
        return te.sum(a[i, k] * b[k, j], axis=k)

    dag = ComputeDAG([a, b, te.compute((9, 130), below_the_diagonal, name="C")])
    sketches = rule_sketches(dag, "c", "packed_read")
    assert len(sketches) == 3
    for state in [p for sketch in sketches for p in programs(sketch, "c", 2)]:
        assert Oracle(dag, np.random.default_rng(7)).mismatch(te.lower(state), run) is None


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(TaskError, match=f"known are {', '.join(OWNERS)}, got 'splitk'"):
        extra_sketches(DAGS["relu"], "c", rules=["splitk"])


# ------------------------------------------------------------------------------------------ what they compute

CASES = [
    (name, target, rule)
    for name in SMALL
    for target in ("c", "cuda")
    for rule in OWNERS
    if rule_sketches(DAGS[name], target, rule)
]


def first_of_each(cases: Sequence[tuple[str, ...]]) -> list[Any]:
    """The cases as parameters, name first; slow where both the name and the rule were there before."""
    seen: set[Hashable] = set()
    out = []
    for case in cases:
        kinds = {("name", case[0]), case[1:]}
        out.append(pytest.param(*case, marks=[pytest.mark.slow] if kinds <= seen else []))
        seen |= kinds
    return out


def named(target: str) -> list[tuple[str, str]]:
    return [(name, rule) for name, own, rule in CASES if own == target]


def own_tags(rule: str, target: str) -> set[str]:
    """The steps of our own that the programs of a rule have."""
    ahead = {"DBF"} if rule in AHEAD else set()
    transposed = {"STO"} if "transposed" in rule else {"JAX"} if rule.startswith("joined_") else set()
    return ahead | transposed | ({"SSC"} if (rule, target) == ("rows", "cuda") else set())


@pytest.mark.parametrize(("name", "target", "rule"), first_of_each(CASES))
def test_programs_compute_the_workload(name: str, target: str, rule: str) -> None:
    oracle = Oracle(DAGS[name], np.random.default_rng(3))
    for sketch in nonempty(rule_sketches(DAGS[name], target, rule)):
        for state in nonempty(programs(sketch, target, some(3, 1))):
            steps = json.loads(json.dumps([to_json(step) for step in state.steps]))
            ordered = {"STO"} if any(s.storage_order for s in sketch.stages) else set()
            ordered |= {"RIX"} if any(isinstance(step, Reindex) for step in sketch.steps) else set()
            assert {step[0] for step in steps} - TVM_TAGS == own_tags(rule, target) | ordered
            assert replay(state.dag, map(from_json, steps)) == state
            found = oracle.mismatch(te.lower(state), run)
            assert found is None, f"{found} in {steps}"


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")
@pytest.mark.parametrize(("name", "rule"), first_of_each(named("cuda")))
def test_emulated_kernels_compute_the_workload(name: str, rule: str) -> None:
    oracle = Oracle(DAGS[name], np.random.default_rng(4))
    state = programs(rule_sketches(DAGS[name], "cuda", rule)[-1], "cuda", 1)[0]
    assert oracle.mismatch(te.lower(state), emulated) is None, [to_json(step) for step in state.steps]


@pytest.mark.parametrize(("name", "rule"), first_of_each(named("c")))
def test_compiled_programs_compute_the_workload(name: str, rule: str) -> None:
    oracle = Oracle(DAGS[name], np.random.default_rng(5))
    for sketch in nonempty(rule_sketches(DAGS[name], "c", rule)[: some(2, 1)]):
        (state,) = programs(sketch, "c", 1)
        assert oracle.mismatch(te.lower(state), compiled) is None, [to_json(step) for step in state.steps]


def test_lanes_are_vectors_in_cuda() -> None:
    for name in ("relu", "mean", "softmax"):
        sketch = rule_sketches(DAGS[name], "cuda", "injective")[-1]
        source = emit(te.lower(programs(sketch, "cuda", 1)[0])).source
        assert "*(float4 *)(" in source or "*(float2 *)(" in source


def shared_buffers(func: te.LoweredFunc) -> list[Buffer]:
    return [s.buffer for s in stmts_of(func.body) if isinstance(s, Alloc) and s.buffer.scope == "shared"]


def test_padded_rows_start_in_different_banks() -> None:
    (sketch,) = rule_sketches(ComputeDAG(matmul(64, 64, 128)), "cuda", "padded_shared")
    seen = 0
    for state in programs(sketch, "cuda", 20):
        (a,) = [b for b in shared_buffers(te.lower(state)) if b.name.startswith("A")]
        assert a.strides is not None and a.strides[0] % 32 == 4 and a.strides[0] >= a.shape[1]
        banks = {(row * a.strides[0] + word) % 32 for row in range(8) for word in range(4)}
        assert len(banks) == 32
        seen += a.shape[1] % 32 == 0
    assert seen


def test_shared_bytes_count_the_padding() -> None:
    for sketch in nonempty(rule_sketches(DAGS["matmul"], "cuda", "padded_shared")):
        for state in nonempty(programs(sketch, "cuda", 20)):
            buffers = shared_buffers(te.lower(state))
            allocated = sum(4 * b.size for b in buffers)
            gaps = sum(4 * (b.strides[-2] - b.shape[-1]) for b in buffers if b.strides)
            (counted,) = shared_bytes(infer_bounds(state)).values()
            assert allocated <= counted <= allocated + gaps


def test_padding_keeps_programs_within_shared_memory() -> None:
    hardware = HardwareParams(-1, 16, 64, 4096, 2**31 - 1, 1024, 8, 32)
    (sketch,) = extra_sketches(ComputeDAG(matmul(256, 256, 256)), "cuda", hardware, rules=["padded_shared"])
    for seed in range(30):
        state = drawn_program(sketch, "cuda", hardware, np.random.default_rng(seed))
        assert state is None or sum(4 * b.size for b in shared_buffers(te.lower(state))) <= 4096


# ------------------------------------------------------------------------------------------ the population engine


@pytest.mark.parametrize(("name", "target", "rule"), first_of_each(CASES))
def test_rows_of_the_population_engine(name: str, target: str, rule: str) -> None:
    """Rows become programs that compute the workload, and are found again in their steps."""
    oracle = Oracle(DAGS[name], np.random.default_rng(6))
    rng = np.random.default_rng(7)
    sketches = rule_sketches(DAGS[name], target, rule)
    for sketch in nonempty(sketches[: some(3, 1)]):
        variant = random_variant(space_of(sketch, target, HARDWARE[target]), rng)
        rows = sample_rows(variant, 2, rng, target, HARDWARE[target])
        assert len(rows) == 2
        state = concrete(variant, rows[0], target, HARDWARE[target])
        assert oracle.mismatch(te.lower(state), run) is None, [to_json(step) for step in state.steps]
        found = parse(sketches, state.steps, target, HARDWARE[target])
        assert found is not None and concrete(*found, target, HARDWARE[target]) == state


def test_ordinary_splits_of_a_factored_stage_stay_countable() -> None:
    """The splits of an undecided rfactor belong to no later stage."""
    for sketch in nonempty(rule_sketches(ComputeDAG(sketch_cases.matmul(8, 8, 1024)), "cuda", "split_reduction")):
        (position,) = [n for n, step in enumerate(sketch.steps) if isinstance(step, RFactor)]
        owners = [k for k in range(len(sketch.stages)) if position - 1 in split_steps(sketch, k)]
        assert owners == [] and math.prod(sketch.stages[-1].op.shape) == 64
