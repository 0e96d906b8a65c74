"""Scales of batch norms vanish in weights: backward, forward, and where they must stay."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Constant, Expr, Function, Tuple, TupleGetItem
from relay_lite.ir.visit import free_vars
from relay_lite.transform import (
    BackwardFoldScaleAxis,
    CanonicalizeOps,
    FoldConstant,
    FoldScaleAxis,
    ForwardFoldScaleAxis,
    Pass,
    PassContext,
    Sequential,
    SimplifyInference,
)

from .pass_graphs import Layers, assert_same_meaning, calls, function, ops, relu

LAYOUTS = pytest.mark.parametrize("layout", ["NCHW", "NHWC"])


def _input(make: Layers) -> Expr:
    return make.input(*((2, 6, 8, 7) if make.layout == "NCHW" else (2, 8, 7, 6)))


def _fold(before: Function, *passes: Pass) -> Function:
    """The network after folding; its meaning is compared."""
    chain = Sequential([SimplifyInference(), FoldConstant(), *(passes or (FoldScaleAxis(),)), FoldConstant()])
    with PassContext(opt_level=3):
        after = chain(before)
    assert_same_meaning(before, after)
    return after


def _preactivation(make: Layers, x: Expr, filters: int, stride: int, same: bool) -> Expr:
    a = relu(make.bn(x))
    c1 = make.conv(a, filters, 3, stride)
    c2 = make.conv(relu(make.bn(c1)), filters)
    return call("add", c2, x if same else make.conv(a, filters, 1, stride))


@LAYOUTS
def test_preactivation_network_keeps_the_multiply_of_the_last_norm_only(layout: str) -> None:
    make = Layers(np.random.default_rng(0), layout, negative=False)
    x = relu(make.bn(make.conv(make.bn(_input(make), scale=False), 4, 7, 2)))
    x = make.pool(x)
    for filters, stride, same in ((4, 1, False), (4, 1, True), (8, 2, False), (8, 1, True)):
        x = _preactivation(make, x, filters, stride, same)
    after = _fold(function(make.tail(relu(make.bn(x)))))
    assert ops(after)["multiply"] == 1 and ops(after)["divide"] == 0
    (last,) = calls(after, "multiply")
    assert calls(after, "nn.relu")[-1].args[0].args[0] is last  # type: ignore[attr-defined]
    assert ops(after)["add"] == 1 + 1 + 2 * 4 + 4 + 1
    assert all(isinstance(c.args[1], Constant) for c in calls(after, "nn.conv2d"))


@LAYOUTS
def test_negative_scale_stops_forward_at_relu_and_not_backward(layout: str) -> None:
    make = Layers(np.random.default_rng(1), layout, negative=True)
    unit = _preactivation(make, make.pool(_input(make)), 5, 1, False)
    after = _fold(function(make.tail(unit)))
    assert ops(after)["multiply"] == 1, "the norm at the head stays, that between the convolutions is folded"
    (kept,) = calls(after, "multiply")
    assert kept.args[0] is calls(after, "nn.max_pool2d")[0]
    positive = Layers(np.random.default_rng(1), layout, negative=False)
    unit = _preactivation(positive, positive.pool(_input(positive)), 5, 1, False)
    assert ops(_fold(function(positive.tail(unit))))["multiply"] == 0


@LAYOUTS
def test_postactivation_block_folds_whatever_the_sign(layout: str) -> None:
    make = Layers(np.random.default_rng(2), layout)
    x = relu(make.bn(make.conv(_input(make), 4)))
    y = make.bn(make.conv(relu(make.bn(make.conv(x, 4))), 4))
    y = relu(call("add", y, x))
    z = call("add", make.bn(make.conv(y, 8, 3, 2)), make.bn(make.conv(y, 8, 1, 2)))
    after = _fold(function(make.tail(relu(z))))
    assert "multiply" not in ops(after)


@LAYOUTS
def test_depthwise_both_ways(layout: str) -> None:
    make = Layers(np.random.default_rng(3), layout, negative=False)
    x = relu(make.bn(make.pool(_input(make))))
    x = relu(make.bn(make.conv(x, 0, depthwise=True)))
    after = _fold(function(make.tail(relu(make.bn(make.conv(x, 5, 1))))))
    assert "multiply" not in ops(after)
    forward = _fold(function(make.tail(make.conv(make.bn(_input(make)), 0, depthwise=True))), ForwardFoldScaleAxis())
    assert "multiply" not in ops(forward)


@LAYOUTS
def test_grouped_convolution_takes_no_scale(layout: str) -> None:
    make = Layers(np.random.default_rng(4), layout)
    weight = make.draw(*((4, 3, 3, 3) if layout == "NCHW" else (3, 3, 3, 4)))
    kernel = "OIHW" if layout == "NCHW" else "HWIO"
    conv = call("nn.conv2d", make.bn(_input(make)), weight, padding=(1, 1, 1, 1), groups=2, channels=4,
                kernel_size=(3, 3), data_layout=layout, kernel_layout=kernel)  # fmt: skip
    assert ops(_fold(function(make.bn(conv))))["multiply"] == 2


def test_dense_both_ways_and_its_bias() -> None:
    make = Layers(np.random.default_rng(5))
    x = make.dense(make.bn(make.input(3, 7)), 4)
    x = make.bn(relu(make.bn(make.bias(x))), center=False)
    after = _fold(function(make.dense(x, 2)))
    assert "multiply" not in ops(after), ops(after)


def test_conv3d() -> None:
    make = Layers(np.random.default_rng(6), "NDHWC", negative=False)
    x = make.input(2, 3, 5, 4, 3)

    def conv(data: Expr, filters: int) -> Expr:
        weight = make.draw(3, 3, 3, data.shape[-1], filters)
        return call("nn.conv3d", data, weight, padding=(1,) * 6, channels=filters, kernel_size=(3, 3, 3),
                    data_layout="NDHWC", kernel_layout="DHWIO")  # fmt: skip

    after = _fold(function(conv(relu(make.bn(conv(make.bn(x), 4))), 2)))
    assert "multiply" not in ops(after)
    wrong = call("nn.batch_norm", conv(x, 4), *(make.draw(3) for _ in range(3)), Constant(np.ones(3)), axis=1)
    other_axis = function(relu(TupleGetItem(wrong, 0)))
    assert ops(_fold(other_axis))["multiply"] == 1, "a norm over the depth cannot be folded"


@LAYOUTS
def test_backward_needs_one_reader_everywhere(layout: str) -> None:
    make = Layers(np.random.default_rng(7), layout)
    conv = make.conv(_input(make), 4)
    twice = function(call("add", make.bn(conv), call("tanh", conv)))
    assert ops(_fold(twice))["multiply"] == 1
    result = function(Tuple((conv, make.bn(conv))))
    assert ops(_fold(result))["multiply"] == 1
    square = function(call("multiply", conv, conv))
    assert ops(_fold(square))["multiply"] == 1


@LAYOUTS
def test_forward_needs_all_readers(layout: str) -> None:
    make = Layers(np.random.default_rng(8), layout, negative=False)
    a = relu(make.bn(_input(make)))
    shared = function(call("add", make.conv(a, 4), make.conv(a, 4, 1)))
    after = _fold(shared)
    assert "multiply" not in ops(after) and ops(after)["add"] == 2
    a = relu(make.bn(_input(make)))
    seen = function(call("add", make.conv(a, make.channels(a)), a))
    assert ops(_fold(seen))["multiply"] == 1
    a = relu(make.bn(_input(make)))
    assert ops(_fold(function(Tuple((make.conv(a, 4), a)))))["multiply"] == 1
    a = make.bn(_input(make))
    other_axis = call("nn.dense", call("reshape", a, newshape=(-1, a.shape[-1])), make.draw(3, a.shape[-1]))
    assert ops(_fold(function(Tuple((make.conv(a, 4), other_axis)))))["multiply"] == 1


def test_readers_must_agree_on_the_axis() -> None:
    make = Layers(np.random.default_rng(15), "NHWC")
    x = make.bn(make.input(2, 4, 4, 4))
    one = make.conv(x, 4)
    make.layout = "NCHW"
    for pair in ((one, make.conv(x, 4)), (make.conv(x, 4), one)):
        assert ops(_fold(function(call("add", *pair))))["multiply"] == 1


@LAYOUTS
def test_one_reader_behind_a_relu_refuses_for_all(layout: str) -> None:
    make = Layers(np.random.default_rng(16), layout)
    x = make.bn(_input(make))
    plain, behind = make.conv(x, 4), make.conv(relu(x), 4)
    for pair in ((plain, behind), (behind, plain)):
        assert ops(_fold(function(call("add", *pair))))["multiply"] == 1


@LAYOUTS
def test_backward_into_both_sides_of_a_sum(layout: str) -> None:
    make = Layers(np.random.default_rng(17), layout)
    x = _input(make)
    both = call("add", make.conv(x, 4), make.conv(x, 4, 1))
    after = _fold(function(make.bn(both)), BackwardFoldScaleAxis())
    assert ops(after) == {"nn.conv2d": 2, "add": 2}
    one_side = call("add", make.conv(x, make.channels(x)), x)
    assert ops(_fold(function(make.bn(one_side)), BackwardFoldScaleAxis()))["multiply"] == 1


def test_backward_stops_at_a_bias_of_another_axis() -> None:
    make = Layers(np.random.default_rng(18), "NHWC")
    conv = make.conv(make.input(2, 4, 4, 3), 4)
    for axis, left in ((-1, 0), (3, 0), (1, 1), (2, 1)):
        biased = call("nn.bias_add", conv, make.draw(4), axis=axis)
        before = function(call("multiply", biased, make.draw(4)))
        assert ops(_fold(before, BackwardFoldScaleAxis()))["multiply"] == left


SIDES: list[Callable[[Expr, Expr], Expr]] = [
    lambda x, c: call("add", x, c),
    lambda x, c: call("add", c, x),
    lambda x, c: call("subtract", x, c),
    lambda x, c: call("subtract", c, x),
]


@LAYOUTS
@pytest.mark.parametrize("shift", SIDES)
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("rank", ["vector", "full rank", "scalar"])
def test_sums_pass_a_scale_on_either_side(
    layout: str, shift: Callable[[Expr, Expr], Expr], mirrored: bool, rank: str
) -> None:
    make = Layers(np.random.default_rng(9), layout)
    x = make.pool(_input(make))
    c = make.channels(x)

    def constant(c: int) -> Expr:
        vector = (c, 1, 1) if layout == "NCHW" else (c,)
        return make.draw(*{"vector": vector, "full rank": (1,) * (4 - len(vector)) + vector, "scalar": ()}[rank])

    scaled = call("multiply", *((constant(c), x) if mirrored else (x, constant(c))))
    conv = make.conv(shift(scaled, constant(c)), 4)
    body = call("multiply", *((constant(4), conv)[:: 1 if mirrored else -1]))
    before = function(shift(body, constant(4)))
    after = _fold(before)
    assert ops(after)["multiply"] == 0 and ops(after)["divide"] == 0
    behind = call("multiply", shift(make.conv(x, 4), constant(4)), constant(4))
    assert ops(_fold(function(behind), BackwardFoldScaleAxis()))["multiply"] == 0


@LAYOUTS
def test_zero_in_a_scale_goes_past_relu_but_not_past_a_sum(layout: str) -> None:
    make = Layers(np.random.default_rng(10), layout)
    x = make.pool(_input(make))
    c = make.channels(x)
    vector = np.linspace(0, 1, c).reshape((c, 1, 1) if layout == "NCHW" else (c,))
    scaled = call("multiply", x, Constant(vector))
    assert ops(_fold(function(make.conv(relu(scaled), 4))))["multiply"] == 0
    shifted = call("add", scaled, Constant(vector + 1))
    assert ops(_fold(function(make.conv(relu(shifted), 4))))["multiply"] == 1
    assert ops(_fold(function(make.conv(relu(shifted), c))))["multiply"] == 1
    behind = call("multiply", relu(make.conv(x, c)), Constant(vector))
    assert ops(_fold(function(behind)))["multiply"] == 0


def test_a_computed_scale_stays() -> None:
    make = Layers(np.random.default_rng(11), "NCHW")
    x = make.input(1, 6, 5, 7)
    gate = call("sigmoid", call("nn.global_avg_pool2d", x, layout="NCHW"))
    graph = function(make.conv(call("multiply", x, gate), 4))
    assert ops(_fold(graph))["multiply"] == 1
    gamma = var("gamma", (6, 1, 1), "float64")
    open_graph = make.conv(call("multiply", x, gamma), 4)
    assert ops(_fold(Function(free_vars(open_graph), open_graph)))["multiply"] == 1


def test_integer_convolutions_take_no_scale() -> None:
    rng = np.random.default_rng(12)
    x = var("x", (1, 5, 5, 3), "int32")
    weight, scale = (Constant(rng.integers(-5, 5, s, dtype="int32")) for s in ((3, 3, 3, 4), (4,)))
    conv = call("nn.conv2d", x, weight, channels=4, kernel_size=(3, 3), data_layout="NHWC", kernel_layout="HWIO")
    assert ops(_fold(function(call("multiply", conv, scale))))["multiply"] == 1


def test_bias_that_was_canonicalized_first() -> None:
    make = Layers(np.random.default_rng(13), "NCHW")
    before = function(make.bn(relu(make.bn(make.bias(make.conv(_input(make), 4)))), center=False))
    after = _fold(before, CanonicalizeOps(), FoldScaleAxis())
    assert ops(after)["multiply"] == 1 and ops(after)["nn.bias_add"] == 0


def test_float32_folding_loses_no_more_than_rounding() -> None:
    rng = np.random.default_rng(14)
    make = Layers(rng, "NHWC", "float32", negative=False)
    x = make.pool(_input(make))
    for filters, stride, same in ((6, 1, True), (4, 1, False), (8, 2, False), (8, 1, True)):
        x = _preactivation(make, x, filters, stride, same)
    before = function(make.tail(relu(make.bn(x))))
    with PassContext(opt_level=3):
        after = Sequential([SimplifyInference(), FoldConstant(), FoldScaleAxis()])(before)
    assert ops(after)["multiply"] == 1
    assert_same_meaning(before, after, 1e-5)
