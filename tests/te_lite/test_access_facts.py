"""What the analysis says of TVM's example workloads, and what the language refuses."""

from __future__ import annotations

import pytest

import te_lite as te
from te_lite.computation.access import AccessInfo
from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import replay
from te_lite.schedule.stage_steps import CacheRead, CacheWrite
from te_lite.schedule.step import Step
from tests.ansor.sketch_cases import conv2d_bn_relu, parallel_matmul
from tests.workloads import matmul, matmul_relu

DATA, PAD, KERNEL, CONV, BIAS_ADD, BN_MUL, BN_ADD, RELU = 0, 1, 2, 3, 5, 7, 9, 10


@pytest.fixture(scope="module")
def dag() -> te.ComputeDAG:
    return te.ComputeDAG(conv2d_bn_relu(1, 224, 224, 3, 64, 7, 2, 3))


@pytest.fixture(scope="module")
def access(dag: te.ComputeDAG) -> AccessInfo:
    return dag.access


def test_only_the_convolution_needs_tiling(access: AccessInfo) -> None:
    assert [k for k in range(11) if access.needs_multi_level_tiling(k)] == [CONV]


def test_elementwise_stages_are_strictly_inlineable(access: AccessInfo) -> None:
    assert [k for k in range(11) if access.is_strictly_inlineable(k)] == [BIAS_ADD, BN_MUL, BN_ADD, RELU]


def test_the_graph_leads_from_producers_to_consumers(dag: te.ComputeDAG) -> None:
    assert list(dag.graph.nodes) == list(range(11)) and dag.graph.nodes[CONV]["op"] is dag.ops[CONV]
    assert list(dag.graph.predecessors(CONV)) == [PAD, KERNEL] and list(dag.graph.successors(RELU)) == []


def test_the_last_stage_is_the_only_output(access: AccessInfo) -> None:
    assert [k for k in range(11) if access.is_output(k)] == [RELU]


def test_common_outer_loops_are_the_least_along_all_paths(access: AccessInfo) -> None:
    assert access.num_common_outer_path(CONV, RELU) == 4
    assert access.num_common_outer_path(DATA, RELU) == 1
    assert access.num_common_outer_path(RELU, CONV) == 0


def test_element_by_element_chains(access: AccessInfo) -> None:
    assert access.elementwise_match(CONV, RELU)
    assert not access.elementwise_match(PAD, CONV)
    assert not access.elementwise_match(DATA, RELU)


def activated(other: str) -> AccessInfo:
    """x, dense, bias, g, out: `out` reads `bias` itself, and through `g`; `other` spoils one of the paths."""
    x, w = te.placeholder((8, 4), name="x"), te.placeholder((4, 8), name="w")
    k = te.reduce_axis((0, 4), name="k")
    dense = te.compute((8, 8), lambda i, j: te.sum(x[i, k] * w[k, j], axis=k), name="dense")
    bias = te.compute((8, 8), lambda i, j: dense[i, j] + 1.0, name="bias")
    g = te.compute((8, 8), lambda i, j: bias[j, i] if other == "turned" else te.tanh(bias[i, j]), name="g")
    out = te.compute((8, 8), lambda i, j: g[i, j] * bias[i, j], name="out")
    beside = [te.compute((8, 8), lambda i, j: bias[i, j] * 2.0, name="beside")] if other == "beside" else []
    return te.ComputeDAG([x, w, out, *beside]).init_state.access


def test_several_paths_element_by_element() -> None:
    """As in x * sigmoid(x) after a product: all of them must end at the one consumer, and none may iteration the
    tensor.
    """
    for other, matches in (("", True), ("turned", False), ("beside", False)):
        access = activated(other)
        names = [op.name for op in access.ops]
        assert access.elementwise_match(names.index("dense"), names.index("out")) == matches, other


def test_flop_counts() -> None:
    n = 64
    assert te.ComputeDAG(matmul(n, n, n)).flop_ct == 2 * n**3
    assert te.ComputeDAG(matmul_relu(n, n, n)).flop_ct == 2 * n**3 + 2 * n**2
    a = te.placeholder((n, n), name="A")
    chosen = te.compute((n, n), lambda i, j: te.if_then_else(a[i, j] > 0.0, a[i, j], 0.0), name="C")
    assert te.ComputeDAG([a, chosen]).flop_ct == n**2
    counted = te.compute((n, n), lambda i, j: a[i, j] * 2.0, name="D", attrs={"FLOP": 1234})
    assert te.ComputeDAG([a, counted]).flop_ct == 1234


def test_stage_order_with_caches() -> None:
    """Newest read cache first, each right after its source; write caches right before the stage they feed."""
    dag = te.ComputeDAG(parallel_matmul(64))
    s = te.create_schedule([dag.ops[k] for k in (2, 4)])
    d, e = dag.ops[2].output(), dag.ops[4].output()
    d_local, e_local = s.cache_write(d, "local"), s.cache_write(e, "local")
    a, b, c = (dag.ops[k].output() for k in (0, 1, 3))
    for tensor, reader in ((a, d_local), (b, d_local), (a, e_local), (c, e_local)):
        s.cache_read(tensor, "shared", [reader])
    names = [stage.op.name for stage in s.stages]
    assert names == ["A", "A.d.shared", "A.shared", "B", "B.shared", "D.local", "D", "C", "C.shared", "E.local", "E"]
    steps: list[Step] = [CacheWrite(2, "local"), CacheWrite(5, "local"), CacheRead(0, "shared", (2,))]
    steps += [CacheRead(2, "shared", (3,)), CacheRead(0, "shared", (7,)), CacheRead(7, "shared", (8,))]
    assert [stage.op.name for stage in replay(dag, steps).stages] == names


def test_consumers_are_those_of_the_current_stages(dag: te.ComputeDAG) -> None:
    state = replay(dag, [CacheWrite(CONV, "local"), CacheRead(PAD, "shared", (CONV,)), ComputeInline(BIAS_ADD + 2)])
    assert [op.name for op in state.ops][PAD : CONV + 3] == [
        "pad_temp",
        "pad_temp.shared",
        "kernel",
        "conv2d_nchw.local",
        "conv2d_nchw",
    ]
    assert list(state.access.read_by[PAD]) == [PAD + 1]
    assert list(state.access.read_by[CONV + 1]) == [CONV + 2]


def test_equal_iterator_names_are_refused() -> None:
    a = te.placeholder((4, 4), name="A")
    k, again = te.reduce_axis((0, 4), "k"), te.reduce_axis((0, 4), "k")
    with pytest.raises(te.ExprError, match="k"):
        te.ComputeDAG([a, te.compute((2,), lambda i: te.sum(a[k, again], axis=[k, again]), name="C")])


def test_a_placeholder_is_no_dag_of_other_things() -> None:
    with pytest.raises(te.ExprError, match="made of tensors"):
        te.ComputeDAG(["A"])  # type: ignore[list-item]
    with pytest.raises(te.ExprError, match="at least one tensor"):
        te.ComputeDAG([])


def test_a_dag_computes_something_and_lists_each_tensor_once() -> None:
    x = te.placeholder((4,), name="X")
    y = te.compute((4,), lambda i: x[i] + 1.0, name="Y")
    with pytest.raises(te.ExprError, match="ComputeDAG: computes nothing, its list has inputs only; add the tensor"):
        te.ComputeDAG([x])
    for twice in ([x, y, y], [x, y, x]):
        with pytest.raises(te.ExprError, match="ComputeDAG: each tensor is listed once, and its list has a tensor"):
            te.ComputeDAG(twice)
    assert te.create_schedule([x, y, y.op]).state.dag.tensors == (x, y)
