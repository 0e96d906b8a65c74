"""Attention of few queries on many keys, which are cut into parts for blocks of their own: beside float64."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.rule import SketchContext
from ansor_ext.attention.attention import attention_of, in_groups, scheduled
from ansor_ext.attention.grains import Attention, Grain, grains, group_grains, part_lengths
from ansor_ext.online.steps import CarryParts
from benchmarks.compiled import compile_many
from codegen_cuda import CompileError, emit
from codegen_cuda.emulation.emulator import run_program
from te_lite import Tensor, topi
from te_lite.meaning.interp import run
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import from_json, to_json
from tests.ansor_ext.attention.test_attention import Case, causal, check, masked, sketches
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER
from tests.nonempty import nonempty
from tests.oracle import poisoned

TARGET = Target.of("cuda -model=H200 -precision=tf32")
HARDWARE = HardwareParams(target=TARGET).completed(TARGET)
compiled = pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
CASES = {
    "four heads of a group": (Case((2, 4, 192, 64)), Grain(1, 1, 32, 2, part=64)),
    "one query": (Case((3, 1, 150, 128), dtype="bfloat16"), Grain(1, 1, 32, 3, part=96)),
    "masked": (Case((2, 7, 130, 48), masked, after=True), Grain(1, 1, 32, 2, part=64)),
    "a part of one key": (Case((1, 4, 129, 80), out="float32"), Grain(1, 1, 32, 2, part=64)),
    "causal, more queries": (Case((1, 40, 140, 64), causal), Grain(2, 1, 32, 2, part=64)),
    "columns of values": (Case((2, 4, 160, 64), turned=True), Grain(1, 1, 32, 2, part=96)),
    "tf32": (Case((2, 3, 100, 32), masked, "float32", "float32"), Grain(1, 1, 32, 2, part=64)),
    "groups of warps": (Case((1, 70, 500, 64), masked), Grain(4, 1, 64, 2, True, 256)),
    "groups of warps, causal": (Case((1, 128, 300, 80), causal), Grain(8, 1, 64, 2, True, 192)),
}
OFTEN = ("four heads of a group", "masked", "a part of one key", "groups of warps")
NAMES = [pytest.param(n, marks=() if n in OFTEN else pytest.mark.slow) for n in CASES]


def found(tensors: Sequence[Tensor], groups: bool = False) -> tuple[State, Attention]:
    dag = ComputeDAG(tensors)
    ctx = SketchContext(dag, TARGET, HARDWARE)
    made = attention_of(ctx, dag.init_state)
    made = in_groups(ctx, dag.init_state, made) if groups and made is not None else made
    assert made is not None
    return dag.init_state, made


def program(case: Case, grain: Grain) -> State:
    return scheduled(*found(case.tensors(), grain.groups), grain)


def lowered(case: Case, grain: Grain) -> te.LoweredFunc:
    state = program(case, grain)
    return te.lower(state, state.dag.tensors)


@pytest.mark.parametrize("name", NAMES)
def test_kernels_add_up_parts(name: str) -> None:
    case, grain = CASES[name]
    made, arrays = emit(lowered(case, grain)), case.inputs(np.random.default_rng(4))
    out = poisoned(case.wanted(arrays).shape, case.out)
    run_program(made, [*arrays, out])
    check(case, out, arrays)
    assert made.kernels[0].grid[0] % -(-case.sizes[2] // grain.part) == 0
    assert len(made.kernels) == 2


@pytest.mark.parametrize("name", ["four heads of a group", pytest.param("masked", marks=pytest.mark.slow)])
def test_the_interpreter_adds_up_parts(name: str) -> None:
    case, grain = CASES[name]
    arrays = case.inputs(np.random.default_rng(5))
    out = poisoned(case.wanted(arrays).shape, case.out)
    run(lowered(case, grain), [*arrays, out])
    check(case, out, arrays)


def test_attention_of_the_operator_library() -> None:
    """Its softmax keeps terms, shares and their casts apart, some of which nobody reads in the end."""
    q, k, v = [te.placeholder((2, n, 32), name=name, dtype="float16") for name, n in (("Q", 4), ("K", 150), ("V", 150))]
    scores = topi.multiply(topi.nn.batch_matmul(q, k, out_dtype="float32"), 0.25)
    shares = topi.cast(topi.nn.softmax(scores), "float16")
    out = topi.cast(topi.nn.batch_matmul(shares, v, out_dtype="float32", transpose_b=False), "float16")
    case, state = Case((2, 4, 150, 32)), scheduled(*found([q, k, v, out]), Grain(1, 1, 32, 2, part=64))
    arrays, result = case.inputs(np.random.default_rng(7)), poisoned((2, 4, 32), "float16")
    run_program(emit(te.lower(state, state.dag.tensors)), [*arrays, result])
    check(case, result, arrays)


def test_a_part_whose_keys_are_all_masked_is_left_out() -> None:
    case, grain = Case((1, 3, 192, 32), masked), Grain(1, 1, 32, 2, part=64)
    arrays = case.inputs(np.random.default_rng(6))
    arrays[3][1:] = 0
    arrays[3][1, :64], arrays[3][2, 64:] = -np.inf, -np.inf
    out = poisoned(case.wanted(arrays).shape, case.out)
    run_program(emit(lowered(case, grain)), [*arrays, out])
    assert np.isnan(out[0, 0]).all() and not np.isnan(out[0, 1:]).any()
    check(case, out, arrays)


@compiled
@pytest.mark.parametrize("name", NAMES)
def test_nvrtc_keeps_sums_in_registers(name: str) -> None:
    (made,) = compile_many([emit(lowered(*CASES[name])).source], "sm_90", workers=1)
    assert not isinstance(made, CompileError)
    assert all((x.stack, x.spill_stores, x.spill_loads) == (0, 0, 0) for x in made.resources)


def test_steps_are_recorded() -> None:
    state = program(*CASES["masked"])
    assert replay(state.dag, [from_json(to_json(step)) for step in state.steps]) == state
    assert sum(isinstance(step, CarryParts) for step in state.steps) == 1


def cut(case: Case) -> set[int]:
    """The lengths of parts among the sketches of a case."""
    steps = [step for state in nonempty(sketches(case.tensors())) for step in state.steps]
    return {step.length for step in steps if isinstance(step, CarryParts)}


def test_keys_are_cut_where_blocks_are_few() -> None:
    assert {64, 128, 256} <= cut(Case((8, 4, 4096, 128)))
    assert cut(Case((32, 1, 1000, 128))) == {64, 128, 256}
    assert cut(Case((8, 4, 100, 128))) == cut(Case((128, 4, 4096, 128))) == set()
    state, made = found(Case((8, 128, 4097, 128)).tensors(), True)
    parts = {g.part for g in nonempty(group_grains(state, made, HARDWARE))}
    assert len(parts) > 2 and min(parts - {0}) >= 128
    state, made = found(Case((8, 4, 4097, 128)).tensors())
    for grain in nonempty(grains(state, made, HARDWARE)):
        assert grain.part % grain.keys == 0 and grain.part in part_lengths(state, made, 16, grain.keys)


def test_few_queries_are_no_rows_for_groups_of_warps() -> None:
    dag = ComputeDAG(Case((8, 4, 4096, 128)).tensors())
    ctx = SketchContext(dag, TARGET, HARDWARE)
    made = attention_of(ctx, dag.init_state)
    assert made is not None and in_groups(ctx, dag.init_state, made) is None


@compiled
@pytest.mark.slow
def test_twenty_draws_compile_and_agree() -> None:
    rng = np.random.default_rng(11)
    sources = []
    for _ in range(20):
        heads, queries, keys, steps = [int(rng.integers(*x)) for x in ((1, 3), (1, 33), (129, 300), (1, 9))]
        sizes = (heads, queries, keys, 16 * steps)
        case = Case(sizes, masked if rng.random() < 0.5 else causal, ("float16", "bfloat16")[int(rng.integers(2))])
        wanted = [s for s in sketches(case.tensors()) if any(isinstance(step, CarryParts) for step in s.steps)]
        state = wanted[int(rng.integers(len(wanted)))]
        made, arrays = emit(te.lower(state, state.dag.tensors)), case.inputs(rng)
        out = poisoned(case.wanted(arrays).shape, case.out)
        run_program(made, [*arrays, out])
        check(case, out, arrays)
        sources.append(made.source)
    assert [str(x) for x in compile_many(sources, "sm_90a", workers=2) if isinstance(x, CompileError)] == []
