"""Steps: JSON, refusals, and what each does to a state."""

from __future__ import annotations

import pytest

import te_lite as te
from ansor_ext.pipeline.steps import Pipeline
from ansor_ext.tensor_core.steps import Swizzled
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.loop_steps import (
    Annotate,
    FollowFusedSplit,
    FollowSplit,
    FreePragma,
    Fuse,
    Pragma,
    Reorder,
    Split,
)
from te_lite.schedule.place_steps import ComputeAt, ComputeInline, ComputeRoot
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.stage_steps import CacheRead, CacheWrite, RFactor
from te_lite.schedule.step import Step, from_json, to_json
from te_lite.schedule.storage_steps import SetScope, StorageAlign
from tests.workloads import matmul, matmul_relu

EXAMPLES: list[tuple[Step, list[object]]] = [
    (Annotate(2, 3, "vectorize"), ["AN", 2, 3, 2]),
    (Fuse(1, (0, 1, 2)), ["FU", 1, [0, 1, 2]]),
    (Pragma(1, 0, "auto_unroll_max_step$64"), ["PR", 1, 0, "auto_unroll_max_step$64"]),
    (FreePragma(1, 0, "unroll_explicit$True"), ["PRX", 1, 0, "unroll_explicit$True"]),
    (Reorder(1, (1, 0)), ["RE", 1, [1, 0]]),
    (Split(2, 0, 512, (2, 8), True), ["SP", 2, 0, 512, [2, 8], 1]),
    (FollowSplit(3, 0, 1, 2), ["FSP", 3, 0, 1, 2]),
    (FollowFusedSplit(3, 0, (2, 1), 1, True), ["FFSP", 3, 0, [2, 1], 1, 1]),
    (StorageAlign(3, 0, 32, 1), ["SA", 3, 0, 32, 1]),
    (Swizzled(3), ["SWZ", 3]),
    (Pipeline(3, 4), ["PIP", 3, 4]),
    (SetScope(2, "fragment.m16n8k8_tf32_f32.a"), ["SSC", 2, "fragment.m16n8k8_tf32_f32.a"]),
    (ComputeAt(2, 3, 1), ["CA", 2, 3, 1]),
    (ComputeInline(2), ["CI", 2]),
    (ComputeRoot(2), ["CR", 2]),
    (CacheRead(0, "shared", (3,)), ["CHR", 0, "shared", [3]]),
    (CacheWrite(2, "local"), ["CHW", 2, "local"]),
    (RFactor(2, 2, 1), ["RF", 2, 2, 1]),
]


@pytest.mark.parametrize(("step", "data"), EXAMPLES, ids=lambda x: x.tag if hasattr(x, "tag") else "")
def test_json_round_trip(step: Step, data: list[object]) -> None:
    assert to_json(step) == data
    assert from_json(data) == step


@pytest.mark.parametrize(
    "data",
    [
        None, 3, [], ["XX", 1], ["SP"], ["SP", 1, 0, 8, [0], 1], ["SP", 1, 0, 8, [-2], 1], ["SP", 1, 0, 8, [1.5], 1],
        ["SP", 1, 0, 8, [None], 1], ["SP", 1, 0, 8, [2], 7], ["AN", 0, 0, 99], ["AN", 0, 0, 0], ["AN", 0, 0, True],
        ["FU", 0, "abc"], ["CHR", 0, "texture", [1]], ["PR", 0, 0, 5], ["PR", 0, 0, "x" * 1000], ["CI", 10**30],
        ["CI", -1], [["CI"], 1], {"SP": 1}, ["RE", 0, [[[[]]]]],
    ],
)  # fmt: skip
def test_bad_json_is_refused_in_one_sentence(data: object) -> None:
    with pytest.raises(te.RecordError) as caught:
        from_json(data)
    assert "\n" not in str(caught.value)


@pytest.fixture
def dag() -> te.ComputeDAG:
    return te.ComputeDAG(matmul(64, 48, 32))


@pytest.mark.parametrize(
    ("steps", "law"),
    [
        ([Split(9, 0, 0, (2,), True)], "there are 3 stages, got stage=9"),
        ([Split(2, 7, 0, (2,), True)], "has 3 loops, got loop=7"),
        ([Split(2, 0, 0, (0,), True)], "every factor must be positive"),
        ([Fuse(2, (0, 2))], "neighbours"),
        ([Reorder(2, (0, 1))], "every one of the 3 loops"),
        ([Annotate(2, 0, "parallel"), Annotate(2, 0, "unroll")], "annotated already"),
        (
            [Annotate(2, 0, "simd")],
            "^annotate C: the annotation is unknown, known are unroll, vectorize, .* got 'simd'",
        ),
        ([Annotate(2, 0, "none")], "the annotation is unknown"),
        ([FollowSplit(2, 0, 0, 1)], "an earlier split"),
        ([Split(2, 0, 0, (2,), True), FollowSplit(2, 2, 0, 5)], "n_split must be 1 to 2"),
        ([ComputeInline(2)], "a reduction cannot be inlined"),
        ([ComputeAt(2, 1, 0)], "the target must come later"),
        ([ComputeAt(0, 2, 0)], "an input is not computed"),
        ([CacheRead(0, "shared", (1,))], "each reader must read it"),
        ([CacheWrite(0, "local")], "an input is not computed"),
        ([RFactor(2, 0, 0)], "must be a reduction loop"),
        ([Pragma(2, 0, "auto_unroll_max_step$x")], "known is auto_unroll_max_step"),
        ([StorageAlign(2, 2, 8, 0)], "needs an unsplit spatial axis"),
    ],
)
def test_refusals_name_the_law_and_the_value(dag: te.ComputeDAG, steps: list[Step], law: str) -> None:
    with pytest.raises(te.ScheduleError, match=law):
        replay(dag, steps)


def extents(state: te.State, k: int) -> list[object]:
    return [it.extent for it in infer_bounds(state).state.stages[k].iters]


def test_split_both_ways(dag: te.ComputeDAG) -> None:
    state = replay(dag, [Split(2, 0, 64, (8, 2), True), Split(2, 3, 48, (3, 8), False)])
    assert extents(state, 2) == [4, 8, 2, 3, 8, 2, 32]


def test_split_that_does_not_divide_rounds_up(dag: te.ComputeDAG) -> None:
    assert extents(replay(dag, [Split(2, 0, 0, (10,), True)]), 2) == [7, 10, 48, 32]


def test_fuse_and_follow_fused_split(dag: te.ComputeDAG) -> None:
    steps: list[Step] = [CacheRead(0, "shared", (2,)), Split(3, 0, 64, (4, 2), True), Split(3, 3, 48, (6, 2), True)]
    steps += [Fuse(1, (0, 1)), FollowFusedSplit(1, 0, (1, 2), 0, True)]
    assert extents(replay(dag, steps), 1) == [86, 24]


def test_compute_at_covers_what_is_read(dag: te.ComputeDAG) -> None:
    state = replay(dag, [CacheRead(0, "shared", (2,)), Split(3, 2, 32, (8,), True), ComputeAt(1, 3, 2)])
    assert [it.extent for it in state.stages[1].iters] == [None, None]
    assert extents(state, 1) == [1, 8]


def test_rfactor_on_either_loop(dag: te.ComputeDAG) -> None:
    for loop, (kept, factored) in ((2, (16, 2)), (3, (2, 16))):
        state = replay(dag, [Split(2, 2, 32, (16,), True), RFactor(2, loop, 2)])
        assert extents(state, 2) == [64, 48, factored, kept]
        assert extents(state, 3) == [64, 48, factored]


def test_cache_write_names_and_shifts() -> None:
    dag = te.ComputeDAG(matmul_relu(8, 6, 4))
    state = replay(dag, [CacheWrite(2, "local"), ComputeInline(5), ComputeAt(3, 6, 0)])
    assert [s.op.name for s in state.stages] == ["A", "B", "C.local", "C", "bias", "D", "E"]
    assert [it.name for it in state.stages[2].iters] == ["i_c", "j_c", "k"]
    shifted = apply(state, CacheRead(0, "shared", (2,)))
    assert shifted.stages[4].attach is not None and shifted.stages[4].attach.stage == 7


def test_newer_read_cache_comes_first() -> None:
    dag = te.ComputeDAG(matmul(4, 4, 4))
    state = replay(dag, [CacheRead(0, "shared", (2,)), CacheRead(1, "shared", (3,)), CacheRead(0, "shared", (1,))])
    assert [s.op.name for s in state.stages][:3] == ["A", "A.d.shared", "A.shared"]
