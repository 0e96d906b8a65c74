"""Constant weights are packed for the programs that read them, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import codegen_c
import relay_lite as relay
from ansor.core.target.hardware import HardwareParams
from ansor.layout.packing import PackedLayout, packed_layouts
from ansor.records.dispatch import ApplyHistoryBest, DispatchContext
from ansor.sketch import generate_sketches
from relay_lite import reference, transform
from relay_lite.compiler.optimize import optimize
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Call, Constant, Expr, Function, FunctionCall
from relay_lite.ir.visit import free_vars, post_order
from relay_lite.op.lower_group import lower_group
from te_lite.lowering.lower import lower
from te_lite.schedule.state import State
from tests.drawn_programs import drawn_program
from tests.oracle import poisoned

HARDWARE = HardwareParams(4, 64, 64, 0, 0, 0, 0, 0)
PACK = transform.AutoSchedulerLayoutRewrite("c")


def constant(*shape: int) -> Constant:
    rng = np.random.default_rng(sum(shape))
    return relay.const(rng.uniform(-1, 1, shape).astype("float32"))


def conv2d() -> Expr:
    x = relay.var("x", shape=(1, 9, 9, 8))
    y = relay.nn.conv2d(x, constant(3, 3, 8, 12), padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")
    return relay.nn.relu(relay.add(y, constant(12)))


def winograd() -> Expr:
    x = relay.var("x", shape=(1, 6, 6, 4))
    return relay.nn.conv2d(x, constant(3, 3, 4, 66), padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")


def conv3d() -> Expr:
    x = relay.var("x", shape=(1, 3, 5, 5, 4))
    return relay.nn.conv3d(x, constant(2, 3, 3, 4, 6), data_layout="NDHWC", kernel_layout="DHWIO")


def dense() -> Expr:
    return relay.add(relay.nn.dense(relay.var("x", shape=(3, 16)), constant(20, 16)), constant(20))


def matmul() -> Expr:
    return relay.nn.matmul(relay.var("x", shape=(3, 16)), constant(16, 20))


def batch_matmul() -> Expr:
    return relay.nn.batch_matmul(relay.var("x", shape=(2, 5, 12)), constant(2, 10, 12))


NETWORKS = {f.__name__: f for f in (conv2d, winograd, conv3d, dense, matmul, batch_matmul)}


def fused(body: Expr) -> Function:
    with transform.PassContext(opt_level=3):
        return optimize(Function(free_vars(body), body), {}, "c")


def groups(graph: Function) -> list[FunctionCall]:
    return [n for n in post_order(graph.body) if isinstance(n, FunctionCall)]


@contextmanager
def tuned(graph: Function, seed: int = 0) -> Iterator[ApplyHistoryBest]:
    """A dispatch context with a random program that would pack, for every group that has one."""
    context = ApplyHistoryBest(None)
    for node in groups(graph):
        group = lower_group(node.function, "c")
        state = packing_program(node.function, seed)
        if state is not None:
            context.update("c", group.workload_key, state)
    with context:
        yield context


def packing_program(function: Function, seed: int) -> State | None:
    dag, rng = lower_group(function, "c").dag, np.random.default_rng(seed)
    sketches = generate_sketches(dag, "c", HARDWARE)
    drawn = [drawn_program(sketches[k % len(sketches)], "c", HARDWARE, rng) for k in range(12)]
    return next((s for s in drawn if s is not None and packed_layouts(s)), None)


def values(graph: Function, dtype: str | None = None) -> np.ndarray:
    rng = np.random.default_rng(7)
    inputs = {v.name: rng.uniform(-1, 1, v.shape).astype("float32") for v in graph.params}
    return np.asarray(reference.run(graph, inputs, dtype=dtype))


def compiled(graph: Function) -> np.ndarray:
    """The value of a graph whose groups are run as the programs that the dispatch context has for them."""
    rng = np.random.default_rng(7)
    made: dict[Expr, np.ndarray] = {v: rng.uniform(-1, 1, v.shape).astype("float32") for v in graph.params}
    for node in post_order(graph.body):
        if isinstance(node, Constant):
            made[node] = node.value
        elif isinstance(node, FunctionCall):
            group = lower_group(node.function, "c")
            state = DispatchContext.current.query("c", group.workload_key, group.is_complex, group.dag)
            assert state is not None and state.dag is group.dag
            (result,) = group.outputs
            args = [made[node.args[k]].copy() for k in group.inputs] + [poisoned(result.shape, result.dtype)]
            codegen_c.build(lower(state, group.tensors))(*args)
            made[node] = args[-1]
    return made[graph.body]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.one_in(5)
def test_packed_networks_compute_the_same(name: str) -> None:
    graph = fused(NETWORKS[name]())
    want = values(graph, "float64")
    with tuned(graph):
        packed = PACK(graph)
        np.testing.assert_array_equal(values(packed), values(graph))
        np.testing.assert_allclose(compiled(packed), want, rtol=0, atol=2e-5 * np.abs(want).max())
    (before,), (after,) = groups(graph), groups(packed)
    shapes = [(a.shape, b.shape) for a, b in zip(before.args, after.args, strict=True)]
    assert sum(a != b for a, b in shapes) == 1
    changed = [b for a, b in zip(before.args, after.args, strict=True) if a.shape != b.shape]
    assert all(isinstance(b, Constant) for b in changed)
    assert "packed_weight" in [n.op.name for n in post_order(after.function.body) if isinstance(n, Call)]
    assert after.function.attrs["name"] == f"{before.function.attrs['name']}_packed"


def test_packed_computations_read_only_the_packed_weight() -> None:
    """`packed_weight` is no stage: the computation has as many as before, and its text says how it is indexed."""
    graph = fused(conv2d())
    with tuned(graph) as context:
        packed = PACK(graph)
    before, after = [lower_group(groups(g)[0].function, "c") for g in (graph, packed)]
    told = context.query("c", after.workload_key)
    assert told is not None and told.dag.workload_key() == after.workload_key
    assert [op.name for op in before.dag.ops] == [op.name for op in after.dag.ops]
    assert before.workload_key != after.workload_key
    shapes = json.loads(after.workload_key)[1:]
    assert [list(a.shape) for a in groups(packed)[0].args] == shapes[:-1]


def test_equal_groups_and_shared_weights_stay_shared() -> None:
    weight, x = constant(3, 3, 8, 8), relay.var("x", shape=(1, 9, 9, 8))
    attrs = {"padding": (1, 1, 1, 1), "data_layout": "NHWC", "kernel_layout": "HWIO"}
    body = x
    for kernel in (weight, weight, constant(3, 3, 8, 8)):
        body = relay.nn.conv2d(body, kernel, **attrs)
    graph = fused(body)
    with tuned(graph):
        packed = PACK(graph)
        np.testing.assert_array_equal(values(packed), values(graph))
    nodes = groups(packed)
    assert len(nodes) == 3 and len({n.function for n in nodes}) == 1
    assert nodes[0].args[1] is nodes[1].args[1] and nodes[2].args[1] is not nodes[1].args[1]


def test_weights_that_are_inputs_stay_as_they_are() -> None:
    """Of two calls of one group only that with a constant weight is changed."""
    x, w = relay.var("x", shape=(3, 20)), relay.var("w", shape=(20, 20))
    graph = fused(relay.nn.dense(relay.nn.dense(x, w), constant(20, 20)))
    with tuned(graph):
        packed = PACK(graph)
        want = values(graph, "float64")
        np.testing.assert_allclose(compiled(packed), want, rtol=0, atol=2e-5 * np.abs(want).max())
    first, second = groups(packed)
    assert first.function is groups(graph)[0].function
    assert second.function is not first.function and len({g.function.attrs["name"] for g in groups(packed)}) == 2


def test_without_programs_or_on_other_targets_nothing_happens() -> None:
    graph = fused(conv2d())
    assert PACK(graph) is graph
    with tuned(graph):
        assert transform.AutoSchedulerLayoutRewrite("cuda")(graph) is graph
        assert PACK(graph) is not graph
    depthwise = relay.nn.conv2d(relay.var("x", shape=(1, 9, 9, 8)), constant(3, 3, 8, 1), groups=8,
                                data_layout="NHWC", kernel_layout="HWOI")  # fmt: skip
    alone = fused(depthwise)
    with tuned(alone):
        assert PACK(alone) is alone


def test_packing_twice_is_packing_once() -> None:
    graph = fused(dense())
    with tuned(graph):
        packed = PACK(graph)
        assert PACK(packed) is packed


def test_a_program_that_does_not_fit_is_named_with_its_kernel() -> None:
    graph, other = fused(conv2d()), fused(batch_matmul())
    state = packing_program(groups(other)[0].function, 0)
    assert state is not None
    context = ApplyHistoryBest(None)
    context.update("c", lower_group(groups(graph)[0].function, "c").workload_key, state)
    with context, pytest.raises(GraphError, match=r"kernel fused_.*conv2d.*: its recorded program cannot be used"):
        PACK(graph)


def test_the_operator_checks_its_layout() -> None:
    layout = PackedLayout((4, 6), ("a", "b"), ((1, 6), (0, 4)))
    assert call("packed_weight", relay.var("w", shape=(6, 4)), layout=layout).shape == (4, 6)
    with pytest.raises(GraphError, match=r"the shape \(6, 4\) is needed"):
        call("packed_weight", relay.var("w", shape=(4, 6)), layout=layout)
    with pytest.raises(GraphError, match="a PackedLayout is needed"):
        call("packed_weight", relay.var("w", shape=(4, 6)))
