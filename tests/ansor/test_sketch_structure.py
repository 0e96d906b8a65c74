"""What TVM's own sketch tests assert, and workloads that stop TVM with an error."""

from __future__ import annotations

import pytest

import te_lite as te
from ansor.core.errors import TaskError
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.core.values.options import SketchOptions
from ansor.sketch import PreloadCustomSketchRule, default_rules, generate_sketches
from ansor.sketch.predicates import (
    has_cache_write,
    has_cross_thread_reduction,
    is_tiled,
    traced_steps,
)
from te_lite import ComputeDAG, Tensor, topi
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import CacheRead, RFactor
from te_lite.schedule.state import ATTACHED, INLINED, ROOT, Stage, State
from tests.ansor.sketch_cases import (
    CASES,
    HARDWARE,
    conv2d_bn_relu,
    dag_of,
    double_matmul,
    matmul,
    max_pool2d,
    softmax,
)
from tests.nonempty import nonempty


def has_rfactor(state: State, k: int) -> bool:
    """Whether a stage holds the partial results of an rfactor."""
    return any(isinstance(step, RFactor) for _, step in traced_steps(state.steps, k))


def sketches(tensors: list[Tensor] | ComputeDAG, target: str) -> list[State]:
    dag = tensors if isinstance(tensors, ComputeDAG) else ComputeDAG(tensors)
    return generate_sketches(dag, target, HARDWARE[target])


def inlined(s: State, *stages: int) -> bool:
    return all(s.stages[k].where == INLINED for k in stages)


def is_attached(stage: Stage) -> bool:
    return stage.where == ATTACHED


def has_cache_read(s: State, k: int) -> bool:
    return any(isinstance(step, CacheRead) for _, step in traced_steps(s.steps, k))


def cached(s: State, k: int) -> bool:
    return is_tiled(s.stages[k]) and has_cache_write(s, k) and is_attached(s.stages[k])


# ----------------------------------------------------------------------------------------------------- CPU


def test_cpu_matmul() -> None:
    found = sketches(matmul(512, 512, 512), "c")
    assert len(found) == 3
    assert is_tiled(found[0].stages[2]) and not has_cache_write(found[0], 2)
    assert cached(found[1], 2) and cached(found[2], 2)
    assert str(found[1]) != str(found[2])


def test_cpu_small_matmul() -> None:
    found = sketches(matmul(8, 8, 512), "c")
    assert len(found) == 5
    assert has_rfactor(found[0], 2) and has_rfactor(found[1], 2) and str(found[0]) != str(found[1])
    assert is_tiled(found[2].stages[2])
    assert cached(found[3], 2) and cached(found[4], 2) and str(found[3]) != str(found[4])


def test_cpu_double_matmul() -> None:
    found = sketches(double_matmul(512), "c")
    assert len(found) == 9
    assert is_tiled(found[8].stages[5])


def test_cpu_conv2d_bn_relu() -> None:
    found = sketches(conv2d_bn_relu(1, 56, 56, 512, 512, 3, 1, 1), "c")
    assert len(found) == 3
    for s in found:
        assert not is_tiled(s.stages[1]) and is_tiled(s.stages[3]) and inlined(s, 5, 7, 9)
    for s in found[:2]:
        assert is_attached(s.stages[3]) and is_tiled(s.stages[10])
    assert found[2].stages[3].where == ROOT and not is_tiled(found[2].stages[10])


def test_cpu_max_pool2d() -> None:
    (only,) = sketches(max_pool2d(1, 56, 56, 512, 1), "c")
    assert only.steps == ()


def test_cpu_min() -> None:
    found = sketches(dag_of("min"), "c")
    assert len(found) == 3
    assert has_rfactor(found[0], 1) and has_rfactor(found[1], 1) and str(found[0]) != str(found[1])
    assert found[2].steps == ()


@pytest.mark.parametrize("shape", [(1, 1024), (1, 12, 128, 128)])
def test_cpu_softmax(shape: tuple[int, ...]) -> None:
    found = sketches(softmax(*shape), "c")
    assert len(found) == 9
    for i in range(3):
        for j in range(3):
            s = found[i * 3 + j]
            assert has_rfactor(s, 1) == (j < 2)
            assert has_rfactor(s, 4 if j < 2 else 3) == (i < 2)
    assert found[8].steps == ()


def test_cpu_winograd() -> None:
    found = sketches(dag_of("winograd"), "c")
    assert len(found) == 3
    for s in found:
        assert not is_tiled(s.stages[1]) and not is_tiled(s.stages[2]) and inlined(s, 3)
        assert is_tiled(s.stages[4]) and is_tiled(s.stages[6])
    assert inlined(found[0], 7) and is_tiled(found[0].stages[8]) and not is_tiled(found[0].stages[9])
    for s in found[1:]:
        assert cached(s, 6) and inlined(s, 8) and is_tiled(s.stages[9]) and not is_tiled(s.stages[10])
    assert str(found[1]) != str(found[2])


# ----------------------------------------------------------------------------------------------------- CUDA


def test_cuda_matmul() -> None:
    (s,) = sketches(matmul(512, 512, 512), "cuda")
    assert has_cache_read(s, 0) and is_attached(s.stages[1])
    assert has_cache_read(s, 2) and is_attached(s.stages[3])
    assert cached(s, 4) and is_tiled(s.stages[5])


def test_cuda_small_matmul() -> None:
    first, second = sketches(matmul(8, 8, 1024), "cuda")
    assert has_cross_thread_reduction(first, 2)
    assert has_cache_read(second, 0) and has_cache_read(second, 2) and cached(second, 4)


def test_cuda_double_matmul() -> None:
    (s,) = sketches(double_matmul(512), "cuda")
    assert s.stages[5].where == ROOT and is_attached(s.stages[6])


def test_cuda_conv2d_bn_relu() -> None:
    (s,) = sketches(conv2d_bn_relu(1, 56, 56, 512, 512, 3, 1, 1), "cuda")
    assert has_cache_read(s, 1) and inlined(s, 1, 7, 9, 11) and is_attached(s.stages[2])
    assert has_cache_read(s, 3) and is_attached(s.stages[4])
    assert is_tiled(s.stages[5]) and is_attached(s.stages[5]) and is_tiled(s.stages[12])


def test_cuda_max_pool2d_and_min() -> None:
    (pool,) = sketches(max_pool2d(1, 56, 56, 512, 0), "cuda")
    assert pool.steps == ()
    first, second = sketches(dag_of("min"), "cuda")
    assert has_cross_thread_reduction(first, 1) and second.steps == ()


@pytest.mark.parametrize("shape", [(2, 1024), (1, 12, 128, 128)])
def test_cuda_softmax(shape: tuple[int, ...]) -> None:
    found = sketches(softmax(*shape), "cuda")
    crossed = [(has_cross_thread_reduction(s, 1), has_cross_thread_reduction(s, 3)) for s in found]
    assert crossed == [(True, True), (False, True), (True, False), (False, False)]
    assert all(inlined(s, 2) for s in found)


def test_cuda_winograd() -> None:
    (s,) = sketches(dag_of("winograd"), "cuda")
    assert inlined(s, 1, 3) and is_attached(s.stages[2])
    assert is_tiled(s.stages[4]) and has_cache_read(s, 4) and is_attached(s.stages[5])
    assert has_cache_read(s, 6) and is_attached(s.stages[7])
    assert cached(s, 8) and s.stages[9].where == ROOT
    assert is_tiled(s.stages[11]) and not is_tiled(s.stages[12])


@pytest.mark.parametrize(("target", "count"), [("c", 3), ("cuda", 2)])
def test_zero_rank(target: str, count: int) -> None:
    assert len(sketches(dag_of("zero_rank_reduce"), target)) == count
    assert sketches(dag_of("zero_rank_compute"), target)


# ------------------------------------------------------------------------------------------------ all workloads


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("name", CASES)
def test_every_sketch_is_the_replay_of_its_steps(name: str, target: str) -> None:
    dag = dag_of(name)
    found = sketches(dag, target)
    assert found and len({str(s) for s in found}) == len(found)
    for s in found:
        if not any(isinstance(step, RFactor) for step in s.steps):
            assert replay(dag, s.steps) == s
        for before, step in zip(s.steps, s.steps[1:], strict=False):
            if isinstance(step, RFactor):
                assert isinstance(before, Split) and before.lengths == (None,)


def test_tiled_consumer_is_no_fusion_target() -> None:
    """`D` reuses a column and a row, so on CPUs it is tiled before the matmul it reads."""
    found = sketches(dag_of("matmul_outer_add"), "c")
    tiled = [s for s in found if is_tiled(s.stages[-1]) and s.stages[-1].op.name == "D"]
    assert any(not is_attached(s.stages[2]) for s in tiled)
    (s,) = sketches(dag_of("matmul_outer_add"), "cuda")
    assert [st.op.name for st in s.stages if st.op.name.endswith(".shared")] == ["A.shared", "B.shared"]


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_what_reads_a_product_twice_is_computed_in_its_tiles(target: str) -> None:
    """dense + bias, of which GELU reads every element twice; TVM leaves the product a kernel of its own."""
    x, w, bias = te.placeholder((64, 96), name="x"), te.placeholder((80, 96), name="w"), te.placeholder((80,), name="b")
    y = topi.add(topi.nn.dense(x, w), bias)
    out = te.compute(y.shape, lambda i, j: y[i, j] * (te.erf(y[i, j] * 0.7071) * 0.5 + 0.5), name="gelu")
    products = [s for sketch in sketches([x, w, bias, out], target) for s in sketch.stages if s.op.reduce_axis]
    assert [is_tiled(s) and is_attached(s) for s in products] == {"c": [True, True, False], "cuda": [True]}[target]


def test_only_tiled_readers_get_a_shared_copy() -> None:
    (s,) = sketches(dag_of("residual"), "cuda")
    assert [st.op.name for st in s.stages].count("A.shared") == 1


def gram(count: int, width: int) -> list[Tensor]:
    x, r = te.placeholder((count, width), name="X"), te.reduce_axis((0, width), name="r")
    return [x, te.compute((count, count), lambda i, j: te.sum(x[i, r] * x[j, r], axis=r), name="G")]


def test_rows_of_one_matrix_that_are_multiplied_are_reused() -> None:
    assert [is_tiled(s.stages[-1]) for s in sketches(gram(64, 32), "c")] == [True] * 3
    (found,) = sketches(gram(64, 32), "cuda")
    assert is_tiled(found.stages[-1]) and not has_cache_read(found, 0), "a copy would hold all rows from i to j"
    twice = te.placeholder((64, 64), name="X")
    point = te.compute((64, 64), lambda i, j: twice[i, j] + twice[i, 0] * twice[i, 0], name="point")
    assert not any(is_tiled(s.stages[-1]) for s in nonempty(sketches([twice, point], "c")))


def test_no_threads_inside_a_shared_copy() -> None:
    """In attention the only consumer of the softmax's sums is the shared copy of its output."""
    for s in nonempty(sketches(dag_of("attention"), "cuda")):
        for stage in nonempty(s.stages):
            threaded = any(it.annotation == "threadIdx.x" for it in stage.iters)
            assert not (stage.op.name.endswith(".shared") and threaded)


# ------------------------------------------------------------------------------------------------ custom rules


def test_custom_rule() -> None:
    dag = dag_of("matmul")

    def meet(policy: object, state: State, stage: int) -> int:
        assert policy == "policy"
        return PreloadCustomSketchRule.APPLY_AND_SKIP_REST if stage == 2 else PreloadCustomSketchRule.PASS

    def split_i(policy: object, state: State, stage: int) -> list[list[object]]:
        after = replay(dag, (*state.steps, Split(stage, 0, 512, (8, 2))))
        return [[state, -1], [after, -1]]

    rule = PreloadCustomSketchRule(meet, split_i, "split i")
    first, second = generate_sketches(dag, "c", HARDWARE["c"], [rule], "policy")
    assert [it.extent for it in first.stages[2].iters] == [512, 512, 512]
    assert [it.extent for it in second.stages[2].iters] == [32, 8, 2, 512, 512]


def test_custom_rule_mistakes() -> None:
    dag = dag_of("min")
    odd = PreloadCustomSketchRule(lambda p, s, k: 7, lambda p, s, k: [])
    with pytest.raises(TaskError, match="must be 0, 1 or 2"):
        generate_sketches(dag, "c", HARDWARE["c"], [odd])
    bad = PreloadCustomSketchRule(lambda p, s, k: 1, lambda p, s, k: ["no pair"])
    with pytest.raises(TaskError, match="pairs of a state and the next stage id"):
        generate_sketches(dag, "c", HARDWARE["c"], [bad])
    none = PreloadCustomSketchRule(lambda p, s, k: None, lambda p, s, k: [[s, -1]])  # type: ignore[arg-type,return-value]
    with pytest.raises(TaskError, match=r"must be 0, 1 or 2 .*, got None"):
        generate_sketches(dag, "c", HARDWARE["c"], [none])


# ------------------------------------------------------------------------------------------------ the rest


def test_rules_say_what_they_are() -> None:
    for rule in nonempty((*default_rules(Target("c")), *default_rules(Target("cuda")))):
        assert rule.paper and isinstance(rule.departs, str)


def test_tiling_structure_is_an_option() -> None:
    options = SketchOptions(cpu_multi_level_tiling_structure="SRS")
    found = generate_sketches(dag_of("matmul"), "c", HARDWARE["c"], options=options)
    assert [it.name for it in found[0].stages[2].iters] == ["i.0", "j.0", "k", "i.1", "j.1"]
    assert len(found) == 2
    with pytest.raises(TaskError, match="letters S and R"):
        SketchOptions(cpu_multi_level_tiling_structure="SXS")
    with pytest.raises(TaskError, match="start with SSSR"):
        SketchOptions(gpu_multi_level_tiling_structure="SSRSRS")


def test_what_no_rule_of_a_target_takes_has_no_sketch() -> None:
    hardware = HardwareParams(1, 16, 64, 0, 0, 0, 0, 0)
    assert generate_sketches(dag_of("min"), "vta", hardware) == []
