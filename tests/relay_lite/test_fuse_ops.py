"""Groups: the patterns of residual networks one by one, and laws of random graphs."""

from __future__ import annotations

import numpy as np
import pytest

import relay_lite as relay
from relay_lite.ir.nodes import Call, Constant, Expr, Function, FunctionCall, Tuple, TupleGetItem
from relay_lite.ir.op_registry import OpPattern
from relay_lite.ir.visit import post_order
from relay_lite.transform import DefuseOps, FuseOps, PassContext
from relay_lite.transform.dominator import flow_graph
from relay_lite.transform.fuse_ops import MOST_MOVES, fuse_ops, own_scalars, partition
from relay_lite.transform.fused_function import fused_name, structure
from tests.nonempty import nonempty

from .toy_graphs import ADD, CONCAT, CONV, RELU, RESHAPE, SHAPE, SORT, SPLIT, SUM, call, random_graph, scalar, var


def groups(body: Expr, *params: object, **options: int) -> list[str]:
    """The names of the calls of a fused graph in execution order, without `fused_`."""
    fused = fuse_ops(Function((), body), **options)  # type: ignore[arg-type]
    calls = [node for node in post_order(fused.body) if isinstance(node, FunctionCall)]
    return [c.function.attrs["name"].removeprefix("fused_") for c in calls]


def conv(x: Expr, name: str) -> Expr:
    return call(CONV, x, var(name, (3, 3)))


def shift(x: Expr, name: str) -> Expr:
    return call(RELU, call(ADD, x, var(name, (1, 6))))


def test_a_convolution_takes_shift_and_relu() -> None:
    fused = fuse_ops(Function((), shift(conv(var("x"), "w"), "b")))
    assert isinstance(fused.body, FunctionCall)
    function = fused.body.function
    assert [str(p.name) for p in function.params] == ["p0", "p1", "p2"]
    assert [p.shape for p in function.params] == [SHAPE, (3, 3), (1, 6)]
    assert dict(function.attrs) == {"primitive": True, "name": "fused_nn_conv2d_add_nn_relu", "reshape_only": False}


def test_last_unit_of_a_stage_collapses() -> None:
    residual = var("r")
    total = call(ADD, conv(var("x"), "w"), residual)
    assert groups(conv(shift(total, "b"), "w2")) == ["nn_conv2d_add_add_nn_relu", "nn_conv2d"]


def test_a_sum_with_two_readers_stops_the_group() -> None:
    total = call(ADD, conv(var("x"), "w"), var("r"))
    inner = conv(shift(conv(shift(total, "b"), "w1"), "b1"), "w2")
    assert groups(call(RELU, call(ADD, inner, total))) == [
        "nn_conv2d_add", "add_nn_relu", "nn_conv2d_add_nn_relu", "nn_conv2d_add_nn_relu_1",
    ]  # fmt: skip


def test_the_first_of_two_convolutions_takes_the_sum() -> None:
    a = var("x")
    total = call(ADD, conv(conv(a, "w1"), "w2"), conv(a, "sc"))
    fused = fuse_ops(Function((), total))
    assert isinstance(fused.body, FunctionCall)
    assert fused.body.function.attrs["name"] == "fused_nn_conv2d_add"
    inner = fused.body.args[0]
    shortcut = fused.body.args[2]
    assert isinstance(inner, FunctionCall) and isinstance(shortcut, FunctionCall)
    assert inner.function is shortcut.function


def test_a_broadcast_that_enlarges_ends_a_convolution() -> None:
    assert groups(call(ADD, conv(var("x", (1, 6)), "w"), var("y"))) == ["nn_conv2d", "add"]


def test_a_reduction_takes_what_is_before_it_and_nothing_after() -> None:
    assert groups(call(RELU, call(SUM, call(RELU, call(ADD, var("x"), var("y")))))) == ["add_nn_relu_sum", "nn_relu"]


def test_reshape_stays_out_of_a_convolution_but_joins_others() -> None:
    body = call(RESHAPE, call(RESHAPE, conv(call(RELU, var("x")), "w")))
    assert groups(body) == ["nn_relu", "nn_conv2d", "reshape_reshape"]
    fused = fuse_ops(Function((), body))
    assert isinstance(fused.body, FunctionCall) and fused.body.function.attrs["reshape_only"]


def test_convolutions_are_served_before_injective_operators() -> None:
    assert groups(call(ADD, call(RESHAPE, var("y")), conv(var("x"), "w"))) == ["reshape", "nn_conv2d_add"]


def test_elementwise_inputs_join_a_concat() -> None:
    fields = (call(RELU, var("x")), conv(var("y"), "w"), call(RESHAPE, var("z")))
    assert groups(call(RELU, call(CONCAT, Tuple(fields)))) == ["nn_conv2d", "nn_relu_reshape_concatenate_nn_relu"]


def test_a_returned_tuple_takes_nothing() -> None:
    shared = call(RELU, var("x"))
    body = Tuple((shared, call(CONCAT, Tuple((shared, var("y"))))))
    assert groups(body) == ["nn_relu", "concatenate"]


def test_a_concat_of_a_returned_tuple_reads_its_fields() -> None:
    fields = Tuple((call(SORT, var("x")), var("y")))
    joined = call(CONCAT, fields)
    fused = fuse_ops(Function((), Tuple((TupleGetItem(fields, 0), joined))))
    last = post_order(fused.body)[-2]
    assert isinstance(last, FunctionCall) and len(last.args) == 2


def test_items_of_an_opaque_tuple_are_parameters() -> None:
    pair = call(SPLIT, call(SORT, var("x")))
    anchors = [conv(TupleGetItem(pair, k), f"w{k}") for k in (0, 1)]
    fused = fuse_ops(Function((), call(ADD, *anchors)))
    assert all(
        p.type for node in post_order(fused.body) if isinstance(node, FunctionCall) for p in node.function.params
    )
    assert structure(DefuseOps()(fused)) == structure(Function((), call(ADD, *anchors)))


def test_scalars_are_inlined_and_never_tie_kernels_together() -> None:
    half = scalar(0.5)
    first = call(ADD, conv(var("x"), "w"), half)
    second = call(ADD, conv(call(SORT, first), "w2"), half)
    fused = fuse_ops(Function((), second))
    calls = [node for node in post_order(fused.body) if isinstance(node, FunctionCall)]
    assert [len(c.args) for c in calls] == [2, 1, 2]
    assert calls[0].function is calls[2].function


def test_depth_limit_and_level_zero() -> None:
    body: Expr = var("x")
    for _ in range(6):
        body = call(RELU, body)
    assert groups(body) == ["_".join(["nn_relu"] * 6)]
    assert max(name.count("relu") for name in groups(body, max_depth=2)) == 2
    assert groups(body, fuse=False) == ["nn_relu"] * 6
    with PassContext(opt_level=0):
        assert structure(FuseOps()(Function((), body))) == structure(fuse_ops(Function((), body), fuse=False))
    with PassContext(config={"relay.FuseOps.max_depth": 2}):
        assert structure(FuseOps()(Function((), body))) == structure(fuse_ops(Function((), body), max_depth=2))


def test_few_operators_of_a_group_move_elements() -> None:
    pieces = [relay.expand_dims(relay.var(f"x{k}", (4, 6)), 0) for k in range(2 * MOST_MOVES)]
    fused = _fused(relay.concatenate(pieces, 0))
    moves = [sum(isinstance(n, Call) for n in post_order(function.body)) for function in fused]
    assert max(moves) == MOST_MOVES + 1 and sum(moves) == 2 * MOST_MOVES + 1


def test_what_is_read_again_and_again_is_not_written_out_without_end() -> None:
    body: Expr = var("x")
    for _ in range(40):
        body = call(ADD, body, body)
    names = groups(body)
    assert sum(name.count("add") for name in names) == 40 and 1 < len(names) < 6
    for _ in range(3):  # a function that reads its argument ten times
        read = [call(RELU, body, tag=k) for k in range(10)]
        for one in read:
            body = call(ADD, body, one)
    assert max(map(_written, _fused(body))) <= 1024
    chain: Expr = var("x")
    for _ in range(200):
        chain = call(ADD, chain, var("y"))
    assert len(groups(chain)) == 1


def _fused(body: Expr) -> list[Function]:
    return [node.function for node in post_order(fuse_ops(Function((), body)).body) if isinstance(node, FunctionCall)]


def _written(function: Function) -> int:
    """Operations of the expression of a kernel."""
    found: dict[Expr, int] = {}
    for node in post_order(function.body):
        found[node] = 1 + sum(found[a] for a in node.args) if isinstance(node, Call) else 0
    return found[function.body]


def test_a_primitive_function_of_the_user_stays() -> None:
    x = var("x")
    mine = Function((x,), conv(conv(x, "w1"), "w2"))
    fused = fuse_ops(Function((), call(RELU, FunctionCall(mine, (call(RELU, var("y")),)))))
    names = [node.function.attrs["name"] for node in post_order(fused.body) if isinstance(node, FunctionCall)]
    assert names == ["fused_nn_relu", "fused_nn_conv2d_nn_conv2d", "fused_nn_relu"]


def test_long_names_are_cut_and_keep_apart() -> None:
    names = [
        fused_name(["nn.contrib_conv2d_winograd_without_weight_transform", *["add"] * n, "nn.relu"]) for n in (4, 5)
    ]
    assert len(set(names)) == 2
    assert all(len(name) == 80 + 18 and "." not in name for name in names)
    assert fused_name(["nn.conv2d", "add"]) == "fused_nn_conv2d_add"


@pytest.mark.parametrize("seed", range(60))
def test_laws_of_random_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    function = random_graph(rng, int(rng.integers(1, 70)))
    limit = int(rng.choice([2, 5, 256]))
    fused = fuse_ops(function, limit)
    assert structure(own_scalars(DefuseOps()(fused))) == structure(own_scalars(function))
    names: dict[str, Function] = {}
    for node in post_order(fused.body):
        assert not isinstance(node, Call)
        if isinstance(node, FunctionCall):
            inside = [n for n in post_order(node.function.body) if isinstance(n, Call)]
            assert sum(n.op.pattern == OpPattern.OUT_ELEMWISE_FUSABLE for n in inside) <= 1
            assert len(inside) == 1 or all(n.op.pattern != OpPattern.OPAQUE for n in inside)
            assert names.setdefault(node.function.attrs["name"], node.function) is node.function
            assert all(a.type == p.type for a, p in zip(node.args, node.function.params, strict=True))
    assert len({structure(f) for f in names.values()}) == len(names)


@pytest.mark.parametrize("seed", range(40))
def test_only_the_last_node_of_a_group_is_read_elsewhere(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = flow_graph(random_graph(rng, 50))
    roots = partition(graph)
    for k, edges in nonempty((k, edges) for k, edges in enumerate(graph.readers) if roots[k] != k):
        assert k != graph.result
        assert all(roots[edge.reader] == roots[k] for edge in nonempty(edges))


def test_structure_tells_attributes_constants_and_sharing_apart() -> None:
    x, y = var("x"), var("y")
    bodies = [
        call(RELU, x), call(RELU, x, tag=1), call(ADD, x, x), call(ADD, x, y), call(ADD, y, x), call(ADD, x, scalar(1)),
        call(ADD, x, scalar(2)), call(ADD, x, Constant(np.ones(1, np.float32))), Tuple((x, y)),
        TupleGetItem(call(SPLIT, x), 0), TupleGetItem(call(SPLIT, x), 1),
    ]  # fmt: skip
    assert len({structure(Function((x, y), body)) for body in bodies}) == len(bodies)
    assert structure(Function((x, y), call(ADD, x, y))) == structure(Function((y, x), call(ADD, y, x)))
