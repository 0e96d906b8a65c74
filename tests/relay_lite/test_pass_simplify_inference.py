"""Layers of training become arithmetic with the argument order that task texts show."""

from __future__ import annotations

import numpy as np
import pytest

from relay_lite.ir.make import call
from relay_lite.ir.nodes import Call, Constant, Function, Tuple, TupleGetItem
from relay_lite.ir.visit import post_order
from relay_lite.transform import FoldConstant, SimplifyInference
from tests.nonempty import nonempty

from .pass_graphs import Layers, assert_same_meaning, calls, function, ops, relu


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("center", [False, True])
def test_batch_norm_is_a_multiply_and_an_add(layout: str, scale: bool, center: bool) -> None:
    make = Layers(np.random.default_rng(0), layout)
    x = make.input(2, 5, 3, 7)
    before = function(make.bn(x, epsilon=2e-5, scale=scale, center=center))
    after = SimplifyInference()(before)
    assert_same_meaning(before, after)
    add = after.body
    assert isinstance(add, Call) and add.op.name == "add"
    product, shift = add.args
    assert isinstance(product, Call) and product.op.name == "multiply" and product.args[0] is x
    channels = make.channels(x)
    expected = (channels, 1, 1) if layout == "NCHW" else (channels,)
    assert product.args[1].shape == shift.shape == expected
    assert ops(after)["expand_dims"] == (2 if layout == "NCHW" else 0)
    assert ops(after)["multiply"] == 2 + scale
    assert ops(FoldConstant()(after)) == {"multiply": 1, "add": 1}


def test_the_axis_may_be_negative_and_the_norm_shared() -> None:
    make = Layers(np.random.default_rng(1))
    x = make.input(2, 3, 4, 5)
    norm = call("nn.batch_norm", x, *(make.draw(4) for _ in range(3)), Constant(np.ones(4)), axis=-2)
    before = function(call("add", TupleGetItem(norm, 0), relu(TupleGetItem(norm, 0))))
    after = SimplifyInference()(before)
    assert_same_meaning(before, after)
    assert ops(after)["sqrt"] == 1


def test_other_results_of_batch_norm_stay() -> None:
    make = Layers(np.random.default_rng(2))
    x = make.input(2, 3, 4, 5)
    normed = make.bn(x)
    assert isinstance(normed, TupleGetItem)
    before = function(Tuple((normed, TupleGetItem(normed.tuple_value, 1))))
    after = SimplifyInference()(before)
    assert_same_meaning(before, after)
    assert ops(after)["nn.batch_norm"] == 1


def test_dropout_vanishes() -> None:
    make = Layers(np.random.default_rng(3))
    x = make.input(2, 3)
    after = SimplifyInference()(function(relu(TupleGetItem(call("nn.dropout", x, rate=0.5), 0))))
    assert ops(after) == {"nn.relu": 1}


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("name", ["nn.layer_norm", "nn.instance_norm", "nn.group_norm"])
def test_other_norms_are_their_definition(name: str, scale: bool, center: bool) -> None:
    make = Layers(np.random.default_rng(4))
    x = make.input(2, 6, 3, 5)
    axis = -1 if name == "nn.layer_norm" else 1
    attrs = {"num_groups": 3} if name == "nn.group_norm" else {}
    channels = x.shape[axis]
    layer = call(name, x, make.draw(channels), make.draw(channels), axis=axis, scale=scale, center=center, **attrs)
    before = function(layer)
    after = SimplifyInference()(before)
    assert name not in ops(after)
    assert ops(after)["multiply"] == 1 + scale and ops(after)["add"] == 1 + center
    assert_same_meaning(before, after)


def test_layer_norm_divides_by_the_root_of_the_variance() -> None:
    make = Layers(np.random.default_rng(5))
    x = make.input(2, 3, 8)
    after = SimplifyInference()(function(call("nn.layer_norm", x, make.draw(8), make.draw(8), axis=-1)))
    order = [node.op.name for node in post_order(after.body) if isinstance(node, Call)]
    centred = ["mean", "subtract", "mean", "subtract"]
    assert order == [*centred, "multiply", "mean", "add", "sqrt", "divide", "multiply", "add"]


def test_l2_normalize() -> None:
    make = Layers(np.random.default_rng(6))
    x = make.input(2, 5, 3)
    before = function(call("nn.l2_normalize", x, eps=1e-3, axis=(1,)))
    after = SimplifyInference()(before)
    assert "nn.l2_normalize" not in ops(after)
    assert_same_meaning(before, after)


ROWS = {
    "nn.layer_norm": ({"axis": -1}, {"axis": 1}),
    "nn.instance_norm": ({"axis": 1}, {"axis": 3}),
    "nn.l2_normalize": ({"axis": (2, 3)}, {"axis": (1,)}),
    "nn.group_norm": (None, {"axis": 1, "num_groups": 3}),
}


@pytest.mark.parametrize("name", ROWS)
def test_norms_of_rows_may_stay(name: str) -> None:
    """Those over the last dimensions, where a target computes whole rows in one kernel."""
    make = Layers(np.random.default_rng(8))
    x = make.input(2, 6, 3, 6)
    for attrs, stay in nonempty((a, n) for a, n in zip(ROWS[name], (1, 0), strict=True) if a is not None):
        vectors = [] if name == "nn.l2_normalize" else [make.draw(6), make.draw(6)]
        before = function(call(name, x, *vectors, **attrs))
        after = SimplifyInference(keep_rows=True)(before)
        assert ops(after).get(name, 0) == stay
        assert_same_meaning(before, after)


def test_what_has_no_such_layer_stays_the_same_function() -> None:
    make = Layers(np.random.default_rng(7))
    graph = function(relu(make.conv(make.input(1, 4, 4, 3), 2)))
    assert SimplifyInference()(graph) is graph
    assert isinstance(graph, Function) and len(calls(graph, "nn.conv2d")) == 1
