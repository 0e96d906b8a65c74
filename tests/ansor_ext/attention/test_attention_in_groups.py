"""Attention by groups of warps whose tiles the copy engine fetches: on the emulator, beside float64."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import te_lite as te
from ansor.analytical import machine_of, seconds
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.rule import SketchContext
from ansor.space.programs import programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import home, space_of
from ansor_ext.attention.attention import attention_of, in_groups, scheduled
from ansor_ext.attention.grains import Grain, group_grains
from ansor_ext.tensor_core import chained_ring
from codegen_cuda import compile_source, emit
from codegen_cuda.emulation.emulator import run_program
from codegen_cuda.emulation.emulator_report import EmulatorError
from te_lite import Tensor
from te_lite.meaning.interp import run
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.schedule.step import from_json, to_json
from tests.ansor_ext.attention.test_attention import Case, causal, check, masked, scaled, sketches
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER
from tests.nonempty import nonempty
from tests.oracle import poisoned

TARGET = Target.of("cuda -model=H200")
HARDWARE = HardwareParams(target=TARGET).completed(TARGET)
compiled = pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
CASES = {
    "scaled": (Case((2, 70, 197, 64)), Grain(4, 1, 64, 2, True)),
    "masked, two groups": (Case((1, 100, 200, 64), masked), Grain(8, 1, 128, 2, True)),
    "masked, wide": (Case((1, 70, 200, 128), masked, "bfloat16"), Grain(4, 1, 64, 3, True)),
    "causal": (Case((1, 250, 250, 64), causal, after=True), Grain(4, 1, 64, 2, True)),
    "causal, whole blocks": (Case((1, 256, 256, 64), causal), Grain(8, 1, 64, 3, True)),
    "causal, wide": (Case((1, 130, 197, 128), causal, "bfloat16"), Grain(8, 1, 96, 2, True)),
    "80 wide": (Case((2, 70, 77, 80)), Grain(4, 1, 64, 2, True)),
    "floats out": (Case((1, 77, 129, 64), out="float32"), Grain(8, 1, 64, 2, True)),
    "1000 keys": (Case((1, 64, 1000, 64), masked), Grain(4, 1, 128, 3, True)),
    "256 wide": (Case((1, 77, 150, 256), out="float32"), Grain(4, 1, 64, 2, True)),
    "columns of values": (Case((1, 70, 208, 80), turned=True), Grain(4, 1, 112, 2, True)),
    "40 wide": (Case((2, 70, 150, 40)), Grain(4, 1, 64, 2, True)),
    "48 wide, masked": (Case((1, 100, 200, 48), masked, "bfloat16"), Grain(8, 1, 80, 2, True)),
    "56 wide, causal": (Case((1, 150, 150, 56), causal, after=True), Grain(8, 1, 64, 2, True)),
    "72 wide": (Case((1, 70, 150, 72), out="float32"), Grain(4, 1, 64, 2, True)),
    "causal, heads side by side": (Case((3, 150, 150, 64), causal), Grain(4, 1, 64, 2, True, heads_inside=True)),
}
OFTEN = ("scaled", "causal", "80 wide", "40 wide")


def program(tensors: Sequence[Tensor], grain: Grain) -> State:
    dag = ComputeDAG(tensors)
    ctx = SketchContext(dag, TARGET, HARDWARE)
    found = attention_of(ctx, dag.init_state)
    made = None if found is None else in_groups(ctx, dag.init_state, found)
    assert made is not None
    return scheduled(dag.init_state, made, grain)


def lowered_of(tensors: Sequence[Tensor], grain: Grain) -> te.LoweredFunc:
    return te.lower(program(tensors, grain), tensors)


def lowered(case: Case, grain: Grain) -> te.LoweredFunc:
    return lowered_of(case.tensors(), grain)


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in OFTEN else pytest.mark.slow) for n in CASES])
@pytest.mark.one_in(2)
def test_kernels_compute_attention(name: str) -> None:
    case, grain = CASES[name]
    arrays = case.inputs(np.random.default_rng(4))
    made = emit(lowered(case, grain))
    assert "ring_open" in made.source and ("_across(" in made.source) != case.turned
    results = []
    for _ in range(2):
        out = poisoned(case.wanted(arrays).shape, case.out)
        run_program(made, [*arrays, out])
        check(case, out, arrays)
        results.append(out)
    np.testing.assert_array_equal(*[np.nan_to_num(x.astype("float32")) for x in results])


@pytest.mark.parametrize("keys", [300, pytest.param(197, marks=pytest.mark.slow)])
def test_blocks_that_stay_compute_all_parts(monkeypatch: pytest.MonkeyPatch, keys: int) -> None:
    """Of an odd number of iterations, too, after which the tiles of the next part are in other places."""
    monkeypatch.setattr(chained_ring, "BLOCKS_AT_ONCE", 2)
    case = Case((2, 140, keys, 64), masked)
    arrays, out = case.inputs(np.random.default_rng(7)), poisoned((2, 140, 64), "float16")
    made = emit(lowered(case, Grain(8, 1, 128, 2, True)))
    assert [kernel.grid for kernel in made.kernels] == [(2, 1, 1)]
    run_program(made, [*arrays, out])
    check(case, out, arrays)


def test_blocks_of_masked_parts_do_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chained_ring, "BLOCKS_AT_ONCE", 2)
    case = Case((2, 149, 142, 64), causal)
    arrays, out = case.inputs(np.random.default_rng(7)), poisoned((2, 149, 64), "float16")
    made = emit(lowered(case, Grain(8, 1, 128, 2, True)))
    assert [kernel.grid for kernel in made.kernels] == [(4, 1, 1)]
    run_program(made, [*arrays, out])
    check(case, out, arrays)


def test_heads_beside_each_other_are_boxes() -> None:
    """Q, K and V of one product, [tokens, 3, heads, columns], without a copy of it."""
    tokens, heads, columns = 130, 2, 64
    x = te.placeholder((tokens, 3, heads, columns), name="X", dtype="float16")
    case = Case((heads, tokens, tokens, columns))
    q, k, v = [
        te.compute((heads, tokens, columns), lambda b, i, c, part=part: x[i, part, b, c], name=f"part{part}")
        for part in range(3)
    ]
    made = emit(lowered_of([x, case.of(q, k, v, x)], Grain(4, 1, 64, 2, True)))
    array = np.random.default_rng(8).standard_normal((tokens, 3, heads, columns)).astype("float16")
    out = poisoned((heads, tokens, columns), "float16")
    run_program(made, [array, out])
    check(case, out, [array[:, part].transpose(1, 0, 2) for part in range(3)])


@pytest.mark.parametrize(("tokens", "columns"), [(77, 64), pytest.param(130, 80, marks=pytest.mark.slow)])
def test_heads_of_several_texts_are_boxes_of_one_matrix(tokens: int, columns: int) -> None:
    """[texts * tokens, 3 * heads * columns]: each text, and each head, has an edge of its own."""
    texts, heads = 2, 3
    x = te.placeholder((texts * tokens, 3 * heads * columns), name="X", dtype="float16")
    case = Case((texts * heads, tokens, tokens, columns))
    q, k, v = [
        te.compute(
            (texts * heads, tokens, columns),
            lambda b, i, c, part=part: x[b // heads * tokens + i, (part * heads + b % heads) * columns + c],
            name=f"part{part}",
        )
        for part in range(3)
    ]
    made = emit(lowered_of([x, case.of(q, k, v, x)], Grain(4, 1, 64, 2, True)))
    array = np.random.default_rng(9).standard_normal((texts, tokens, 3, heads, columns)).astype("float16")
    out = poisoned((texts * heads, tokens, columns), "float16")
    run_program(made, [array.reshape(x.shape), out])
    parts = [array[:, :, n].transpose(0, 2, 1, 3).reshape(-1, tokens, columns) for n in range(3)]
    check(case, out, parts)


@pytest.mark.parametrize("name", ["scaled", pytest.param("causal, wide", marks=pytest.mark.slow)])
def test_the_interpreter_knows_no_ring(name: str) -> None:
    case, grain = CASES[name]
    case = replace(case, sizes=(1, 33, 130, case.sizes[3]))
    arrays = case.inputs(np.random.default_rng(5))
    out = poisoned(case.wanted(arrays).shape, case.out)
    run(lowered(case, grain), [*arrays, out])
    check(case, out, arrays)


@compiled
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in OFTEN else pytest.mark.slow) for n in CASES])
def test_nvrtc_keeps_sums_in_registers(name: str) -> None:
    """What makes products wait for each other is an error (`compile.py`)."""
    (found,) = compile_source(emit(lowered(*CASES[name])).source, "sm_90").resources
    assert (found.stack, found.spill_stores, found.spill_loads) == (0, 0, 0)


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_of_a_batch(kind: str) -> None:
    """[batch, 1, queries, keys], one for all heads: what counts, or what is added."""
    batch, heads, m, n, d = 2, 2, 70, 150, 64
    case = Case((batch * heads, m, n, d), out="float16")
    mask = te.placeholder((batch, 1, m, n), name="mask", dtype="bool" if kind == "bool" else "float32")
    hidden = te.const(-np.inf, "float32")

    def seen(s: Tensor, _: Tensor) -> Tensor:
        def score(h: te.Expr, i: te.Expr, j: te.Expr) -> te.Expr:
            at = mask[h // heads, 0, i, j]
            return te.if_then_else(at, s[h, i, j], hidden) if kind == "bool" else s[h, i, j] + at

        return te.compute(s.shape, score, name="seen")

    q, k, v = replace(case).tensors()[:3]
    out = replace(case, scores=seen).of(q, k, v, mask)
    made, rng = emit(lowered_of([q, k, v, mask, out], Grain(4, 1, 64, 2, True))), np.random.default_rng(3)
    arrays, shown = case.inputs(rng), rng.random((batch, 1, m, n)) < 0.7
    shown[..., 0] = True
    given = shown if kind == "bool" else np.where(shown, 0, -np.inf).astype("float32")
    result = poisoned((batch * heads, m, d), "float16")
    run_program(made, [*arrays, given, result])
    s = np.einsum("hid,hjd->hij", *[x.astype("float64") for x in arrays[:2]])
    s = np.where(np.repeat(shown[:, 0], heads, axis=0), s, -np.inf)
    e = np.exp(s - s.max(-1, keepdims=True))
    want = e / e.sum(-1, keepdims=True) @ arrays[2].astype("float64")
    assert "ring_open" in made.source and np.abs(result - want).max() < 2**-9 * np.abs(arrays[2]).max()


def test_iterations_behind_the_last_query_are_left_out() -> None:
    """What is fetched and multiplied of 256 queries in blocks of 64: 1 + 2 + 3 + 4 tiles of 16, most of them first."""
    case, grain = CASES["causal"]
    found = [emit(lowered(replace(case, sizes=(1, 256, 256, 64), scores=x), grain)).source for x in (causal, scaled)]
    live = [re.findall(r"if \(\(int\)blockIdx.x \+ fetched < 4\)", source) for source in found]
    assert len(live[0]) == 1 and not live[1]


@compiled
@pytest.mark.slow
def test_twenty_draws_compile_and_agree() -> None:
    rng = np.random.default_rng(12)
    for _ in range(20):
        heads, queries, keys, eights = [int(rng.integers(*x)) for x in ((1, 3), (20, 150), (130, 260), (5, 17))]
        case = Case((heads, queries, keys, 8 * eights), [scaled, masked, causal][int(rng.integers(3))])
        dag = ComputeDAG(case.tensors())
        ctx = SketchContext(dag, TARGET, HARDWARE)
        found = attention_of(ctx, dag.init_state)
        made = None if found is None else in_groups(ctx, dag.init_state, found)
        assert made is not None
        drawn = list(group_grains(dag.init_state, made, HARDWARE))
        state = scheduled(dag.init_state, made, drawn[int(rng.integers(len(drawn)))])
        emitted, arrays = emit(te.lower(state, dag.tensors)), case.inputs(rng)
        out = poisoned((heads, queries, case.sizes[3]), case.out)
        run_program(emitted, [*arrays, out])
        check(case, out, arrays)
        compile_source(emitted.source, "sm_90a")


@pytest.mark.parametrize("old, new", [("ring_await(barriers + 0, 0);", ""), ("ring_release(barriers + 2);", "")])
def test_spoilt_kernels_are_caught(old: str, new: str) -> None:
    case, grain = CASES["scaled"]
    made, arrays = emit(lowered(case, grain)), case.inputs(np.random.default_rng(6))
    assert old in made.source
    with pytest.raises(EmulatorError):
        out = poisoned(case.wanted(arrays).shape, case.out)
        run_program(replace(made, source=made.source.replace(old, new)), [*arrays, out])


def test_sketches_are_for_hoppers_and_halves() -> None:
    case = Case((12, 2048, 2048, 128))
    dag = ComputeDAG(case.tensors())
    ctx = SketchContext(dag, TARGET, HARDWARE)
    found = attention_of(ctx, dag.init_state)
    made = None if found is None else in_groups(ctx, dag.init_state, found)
    assert made is not None
    grains = list(nonempty(group_grains(dag.init_state, made, HARDWARE)))
    assert {g.warps for g in grains} >= {4, 8} and not any(g.heads_inside for g in grains)
    dag = ComputeDAG(replace(case, scores=causal).tensors())
    assert [g.heads_inside for g in group_grains(dag.init_state, made, HARDWARE)] == [True] * len(grains)

    def of_groups(case: Case, target: str) -> int:
        return sum("wgmma" in str(state) for state in sketches(case.tensors(), target))

    assert of_groups(Case((1, 256, 256, 64)), "cuda -model=H200") > 0
    assert of_groups(Case((1, 256, 256, 64)), "cuda -arch=sm_80") == 0
    assert of_groups(Case((1, 256, 256, 40)), "cuda -model=H200") > 0
    assert of_groups(Case((1, 256, 256, 32)), "cuda -model=H200") == 0
    assert of_groups(Case((1, 256, 256, 64), dtype="float32"), "cuda -model=H200 -precision=tf32") == 0


def test_estimates_are_near_what_was_measured() -> None:
    """Two groups of warps: 120 us with 128 keys an iteration, 146 us with 64, on an H200."""
    machine, times = machine_of(TARGET, HARDWARE), []
    for grain in (Grain(8, 1, 128, 2, True), Grain(8, 1, 64, 2, True)):
        space = space_of(program(Case((32, 2048, 2048, 128)).tensors(), grain), TARGET, HARDWARE)
        rows = sample_rows(home(space), 1, np.random.default_rng(0), TARGET, HARDWARE)
        times.append(float(seconds(programs(home(space), rows, TARGET, HARDWARE), machine)[0]))
    assert 60e-6 < times[0] < times[1] < 180e-6


def test_groups_of_warps_are_expected_to_be_faster() -> None:
    """GPT-2's attention on an H200: 14.7 to 22.1 us by groups of warps, 23.6 to 36.8 without."""
    machine, times = machine_of(TARGET, HARDWARE), dict[bool, list[float]]()
    for state in nonempty(sketches(Case((48, 512, 512, 64), causal).tensors(), "cuda -model=H200")):
        space = space_of(state, TARGET, HARDWARE)
        rows = sample_rows(home(space), 1, np.random.default_rng(0), TARGET, HARDWARE)
        times.setdefault("wgmma" in str(state), []).append(
            float(seconds(programs(home(space), rows, TARGET, HARDWARE), machine)[0])
        )
    assert max(times[True]) < 15e-6 < min(times[False]) < 30e-6


def test_steps_are_recorded() -> None:
    case, grain = CASES["80 wide"]
    state = program(case.tensors(), grain)
    assert replay(state.dag, [from_json(to_json(step)) for step in state.steps]) == state
