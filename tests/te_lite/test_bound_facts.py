"""How far loops run: TVM's state tests and the corners of bound inference."""

from __future__ import annotations

import pytest

import te_lite as te
from te_lite import State, Tensor, topi
from te_lite.bounds.bounds import infer_bounds
from te_lite.schedule.loop_steps import Annotate, FollowFusedSplit, FollowSplit, Fuse, Reorder, Split
from te_lite.schedule.place_steps import ComputeAt, ComputeInline, ComputeRoot
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.stage_steps import CacheRead, CacheWrite, RFactor
from te_lite.schedule.step import Step
from tests.ansor.sketch_cases import conv2d_bn_relu
from tests.workloads import matmul

UNKNOWN = None


def extents(state: State, k: int) -> list[object]:
    return [it.extent for it in state.stages[k].iters]


def inferred(dag: te.ComputeDAG, steps: list[Step]) -> State:
    return infer_bounds(replay(dag, steps)).state


# ------------------------------------------------------------------------------------------- splits


@pytest.fixture(scope="module")
def square() -> te.ComputeDAG:
    return te.ComputeDAG(matmul(512, 512, 512))


def test_split_fuse_reorder(square: te.ComputeDAG) -> None:
    steps: list[Step] = [Split(2, 0, 512, (16,)), Split(2, 2, 512, (8,)), Reorder(2, (0, 2, 4, 3, 1))]
    assert extents(replay(square, steps), 2) == [32, 64, 512, 8, 16]
    fused = replay(square, [*steps, Fuse(2, (0, 1))])
    assert extents(fused, 2) == [2048, 512, 8, 16]
    assert fused.stages[2].iters[0].name == "i.0@j.0@"


def test_lengths_from_either_side(square: te.ComputeDAG) -> None:
    state = replay(square, [Split(2, 0, 512, (8, 2), True), Split(2, 3, 512, (32, 8), False)])
    assert extents(state, 2) == [32, 8, 2, 32, 8, 2, 512]


@pytest.mark.parametrize("n_split", [1, 2, 3, 4, 5])
def test_follow_split(square: te.ComputeDAG, n_split: int) -> None:
    state = replay(square, [CacheWrite(2, "global"), Split(3, 0, 512, (4, 2, 8, 4)), FollowSplit(2, 0, 1, n_split)])
    assert extents(state, 2)[:n_split] == extents(state, 3)[:n_split]
    assert state == replay(square, state.steps)


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("factor", [True, False])
def test_follow_fused_split(square: te.ComputeDAG, level: int, factor: bool) -> None:
    steps: list[Step] = [CacheWrite(2, "global"), Split(3, 0, 512, (4, 2, 8, 4)), Split(3, 5, 512, (2, 2, 4, 8))]
    steps.append(Reorder(3, (0, 5, 1, 6, 2, 7, 3, 8, 4, 9)))
    steps += [Fuse(3, (at, at + 1)) for at in range(5)]
    state = replay(square, [*steps, FollowFusedSplit(2, 0, (1, 2), level, factor)])
    assert extents(state, 3)[level + 1] == extents(state, 2)[1 if factor else 0]


def test_undecided_lengths_leave_the_loops_outside_unknown(square: te.ComputeDAG) -> None:
    state = replay(square, [Split(2, 0, 512, (8, None, 2))])
    assert extents(state, 2)[:4] == [None, None, None, 2] and not state.concrete
    with pytest.raises(te.LowerError, match="C: the split of i is not decided yet"):
        infer_bounds(state)


# ------------------------------------------------------------------------------------------ places


@pytest.fixture(scope="module")
def conv() -> te.ComputeDAG:
    return te.ComputeDAG(conv2d_bn_relu(1, 224, 224, 3, 64, 7, 2, 3))


def test_compute_at_inline_root(conv: te.ComputeDAG) -> None:
    steps: list[Step] = [ComputeInline(9), ComputeInline(7), ComputeInline(5), ComputeAt(3, 10, 2)]
    state = replay(conv, steps)
    assert [state.stages[k].where for k in (3, 5, 10)] == ["iter", "inlined", "root"]
    assert extents(state, 3) == [None] * 7
    assert str(state).startswith(
        "Placeholder: data, kernel, bias, bn_scale, bn_offset\n"
        "for i1 (0,3)\n"
        "  for i2 (0,230)\n"
        "    for i3 (0,230)\n"
        "      pad_temp = ...\n"
        "for i1 (0,64)\n"
        "  for i2 (0,112)\n"
        "    for nn (None)\n"
        "      for ff (None)\n"
    )
    assert extents(infer_bounds(state).state, 3) == [1, 1, 1, 112, 3, 7, 7]
    back = replay(conv, [*steps, ComputeRoot(3)])
    assert back.stages[3].where == "root" and extents(back, 3) == [None] * 7
    assert extents(infer_bounds(back).state, 3) == [1, 64, 112, 112, 3, 7, 7]


def grouped() -> list[Tensor]:
    """The DAG of TVM's cache test: a kernel made by an operation of two outputs, and data read twice."""
    data = te.placeholder((4, 512, 7, 7), name="Data")
    source = te.placeholder((512, 512, 3, 3), name="Kernel_data")
    first, second = te.compute(source.shape, lambda *i: (source(*i) + 1.0, source(*i) / 2.0), name="Kernel_split")
    kernel = te.compute(source.shape, lambda *i: first(*i) + second(*i), name="Kernel")
    relu = topi.nn.relu(topi.nn.conv2d_nchw(data, kernel, 1, 1, dilation=1))
    return [data, source, topi.add(data, relu)]


def test_caches_at_loops_and_of_two_outputs() -> None:
    dag = te.ComputeDAG(grouped())
    names = [op.name for op in dag.ops]
    assert names[:6] == ["Data", "pad_temp", "Kernel_data", "Kernel_split", "Kernel", "conv2d_nchw"]
    steps: list[Step] = [Split(7, 0, 4, (2,)), Reorder(7, (0, 2, 1, 3, 4)), ComputeInline(6), CacheWrite(5, "global")]
    steps += [ComputeAt(5, 6, 3), CacheRead(4, "global", (5,)), ComputeAt(5, 6, 4)]
    state = inferred(dag, steps)
    assert [op.name for op in state.ops][4:8] == ["Kernel", "Kernel.global", "conv2d_nchw.global", "conv2d_nchw"]
    assert extents(state, 5) == [1, 1, 3, 3]
    assert extents(state, 6) == [1, 1, 1, 1, 512, 3, 3]
    assert [it.name for it in state.stages[6].iters] == ["nn_c", "ff_c", "yy_c", "xx_c", "rc", "ry", "rx"]
    steps += [CacheRead(1, "global", (6,)), CacheRead(2, "shared", (7,)), ComputeAt(2, 8, 2), ComputeAt(3, 8, 4)]
    state = inferred(dag, steps)
    assert extents(state, 2) == [1, 512, 3, 3] and extents(state, 3) == [1, 1, 3, 3]
    steps += [CacheRead(0, "global", (1, 11))]
    assert extents(inferred(dag, steps), 1) == [4, 512, 7, 7]
    steps += [CacheWrite(6, "global")]
    state = inferred(dag, steps)
    assert [op.name for op in state.ops][6:8] == ["Kernel_split.global", "Kernel_split"]
    assert extents(state, 6) == extents(state, 7) == [512, 512, 3, 3]


def test_rfactor_on_either_loop() -> None:
    dag = te.ComputeDAG(matmul(8, 8, 512))
    for loop, partial, final in ((2, [8, 8, 32, 16], [8, 8, 32]), (3, [8, 8, 16, 32], [8, 8, 16])):
        state = replay(dag, [Split(2, 2, 512, (16,)), RFactor(2, loop, 2)])
        assert [extents(state, 2), extents(state, 3)] == [partial, final]
        assert [op.name for op in state.ops] == ["A", "B", "C.rf", "C.repl"]
    assert [it.name for it in state.stages[2].iters] == ["i", "j", "k_i", "k_o"]
    assert [it.name for it in state.stages[3].iters] == ["ax0", "ax1", "k_i_v"]


def test_rfactor_after_a_fuse() -> None:
    dag = te.ComputeDAG(conv2d_bn_relu(1, 6, 6, 4, 4, 3, 1, 1))
    state = replay(dag, [Fuse(3, (4, 5, 6)), Split(3, 4, 36, (4,)), RFactor(3, 4, 4)])
    assert extents(state, 3) == [1, 4, 6, 6, 9, 4] and extents(state, 4) == [1, 4, 6, 6, 9]


def test_scalar_programs() -> None:
    x, k = te.placeholder((128,), name="A"), te.reduce_axis((0, 128), "k")
    total = te.compute((), lambda: te.sum(x[k], axis=k), name="B")
    state = inferred(te.ComputeDAG([x, total]), [Fuse(1, ()), Annotate(1, 0, "blockIdx.x"), Split(1, 1, 128, (32,))])
    assert extents(state, 1) == [1, 4, 32]
    assert str(state).splitlines() == ["Placeholder: A", "for k.0 (0,4)", "  for k.1 (0,32)", "    B = ..."]


# ----------------------------------------------------------------------------------------- corners


def strided(h: int = 56) -> list[Tensor]:
    data, kernel = te.placeholder((1, h, h, 8), name="data"), te.placeholder((3, 3, 8, 16), name="kernel")
    return [data, kernel, topi.nn.relu(topi.nn.conv2d_nhwc(data, kernel, 2, 1, 1))]


def test_a_root_stage_covers_what_is_read_of_it() -> None:
    """A stride of 2 never reads the last padded row."""
    state = inferred(te.ComputeDAG(strided()), [])
    assert extents(state, 1) == [1, 57, 57, 8]


def test_starts_print_as_the_loops_around_decide() -> None:
    """The example of the TenSet data set: a padded input computed inside a fused parallel loop."""
    dag = te.ComputeDAG(strided())
    steps: list[Step] = [
        Split(4, 0, 1, (1, 1)),
        Split(4, 3, 28, (1, 28)),
        Split(4, 6, 28, (1, 7)),
        Split(4, 9, 16, (8, 2)),
    ]
    steps += [Reorder(4, (0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11)), Fuse(4, (0, 1, 2)), ComputeAt(1, 4, 0)]
    steps += [ComputeAt(3, 4, 0), Annotate(4, 0, "parallel")]
    text = str(inferred(dag, steps))
    fused = "i0_outer_outer_i1_outer_outer_fused_i2_outer_outer_fused"
    assert text.splitlines()[1:5] == [
        "parallel i0.0@i1.0@i2.0@ (0,4)",
        "  for i1 (0,57)",
        f"    for i2 ({fused} % 4 * 14,15)",
        "      for i3 (0,8)",
    ]
    steps[3] = Split(4, 9, 16, (4, 2))
    steps[5] = Fuse(4, (0, 1, 2, 3))
    assert f"for i2 ({fused}_i3_outer_outer_fused % 8 // 2 * 14,15)" in str(inferred(dag, steps))


def test_starts_add_up_from_the_largest_factor_down() -> None:
    dag = te.ComputeDAG(matmul(64, 64, 64))
    steps: list[Step] = [CacheWrite(2, "local"), Split(3, 1, 64, (4, 8)), ComputeAt(2, 3, 2), Split(2, 2, 64, (16,))]
    steps += [Split(2, 1, 8, (2,)), CacheRead(1, "local", (2,)), ComputeAt(2, 3, 1)]
    text = str(inferred(dag, steps))
    assert "for ax1 (j_outer_outer * 32 + j_outer_inner * 8 + j_c_outer * 2,2)" in text


def test_lengths_longer_than_the_loop_are_cut_but_not_those_of_threads() -> None:
    dag = te.ComputeDAG(matmul(4, 6, 8))
    assert extents(inferred(dag, [Split(2, 0, 4, (16,))]), 2) == [1, 4, 6, 8]
    assert extents(inferred(dag, [Split(2, 0, 4, (16,)), Annotate(2, 1, "threadIdx.x")]), 2) == [1, 16, 6, 8]
    vector_in_threads: list[Step] = [Split(2, 1, 6, (16,)), Split(2, 1, 1, (32,)), Annotate(2, 2, "threadIdx.x")]
    assert extents(inferred(dag, vector_in_threads), 2) == [4, 1, 32, 6, 8]


def stencil() -> list[Tensor]:
    x = te.placeholder((12,), name="x")
    p = te.compute((12,), lambda i: x[i] * 2.0, name="p")
    return [x, te.compute((10,), lambda i: p[i] + p[i + 2], name="q")]


def test_every_read_counts() -> None:
    dag = te.ComputeDAG(stencil())
    assert extents(inferred(dag, []), 1) == [12]
    assert extents(inferred(dag, [Split(2, 0, 10, (5,)), ComputeAt(1, 2, 0)]), 1) == [7]
    state = apply(dag.init_state, Split(2, 0, 10, (3,)))
    state = infer_bounds(apply(state, ComputeAt(1, 2, 0))).state
    assert extents(state, 1) == [5] and "  for i (i_outer * 3,5)\n" in str(state)
