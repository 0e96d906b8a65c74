"""Common subexpressions, constant folding and canonical forms."""

from __future__ import annotations

import numpy as np
import pytest

from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call, var
from relay_lite.ir.module import bind_params
from relay_lite.ir.nodes import Call, Constant, Function, Tuple, TupleGetItem, const
from relay_lite.transform import CanonicalizeCast, CanonicalizeOps, EliminateCommonSubexpr, FoldConstant
from relay_lite.transform.fold_constant import evaluate, input_free

from .pass_graphs import Layers, assert_same_meaning, calls, function, ops, relu


def test_equal_calls_merge_with_all_that_reads_them() -> None:
    make = Layers(np.random.default_rng(0))
    x, y = make.input(3, 4), var("y", (3, 4), "float64")
    two = [call("add", relu(call("multiply", x, const(0.5, "float64"))), y) for _ in range(2)]
    before = function(call("subtract", call("tanh", two[0]), two[1]))
    after = EliminateCommonSubexpr()(before)
    assert ops(after) == {"multiply": 1, "nn.relu": 1, "add": 1, "tanh": 1, "subtract": 1}
    assert_same_meaning(before, after)


def test_what_differs_stays() -> None:
    make = Layers(np.random.default_rng(1))
    x = make.input(3, 4)
    one, other = make.draw(4), make.draw(4)
    pairs = [
        (call("multiply", x, const(0.5, "float64")), call("multiply", x, const(0.25, "float64"))),
        (call("multiply", x, one), call("multiply", x, other)),
        (call("multiply", x, one), call("multiply", x, Constant(one.value))),
        (call("nn.leaky_relu", x, alpha=0.1), call("nn.leaky_relu", x, alpha=0.2)),
        (call("add", x, one), call("add", one, x)),
        (call("zeros", shape=(3, 4), dtype="float64"), call("zeros", shape=(3, 4), dtype="float64")),
    ]
    for a, b in pairs:
        graph = Function((x,), call("add", a, b))
        assert EliminateCommonSubexpr()(graph) is graph


def test_tuples_count_by_their_fields_and_items_merge() -> None:
    make = Layers(np.random.default_rng(2))
    x = make.input(4, 6)
    joined = [call("concatenate", Tuple((x, relu(x))), axis=1) for _ in range(2)]
    halves = [call("split", j, indices_or_sections=2, axis=1) for j in joined]
    before = function(call("add", TupleGetItem(halves[0], 1), TupleGetItem(halves[1], 1)))
    after = EliminateCommonSubexpr()(before)
    assert ops(after) == {"nn.relu": 1, "concatenate": 1, "split": 1, "add": 1}
    assert isinstance(after.body, Call) and after.body.args[0] is after.body.args[1]
    assert_same_meaning(before, after)


def test_different_items_stay_different() -> None:
    make = Layers(np.random.default_rng(7))
    halves = call("split", make.input(4, 6), indices_or_sections=2, axis=1)
    before = function(call("subtract", TupleGetItem(halves, 1), TupleGetItem(halves, 0)))
    assert EliminateCommonSubexpr()(before) is before


def test_folding_computes_what_reads_no_input() -> None:
    make = Layers(np.random.default_rng(3))
    x = make.input(3, 4)
    weight = call("transpose", call("exp", make.draw(4, 3)), axes=(1, 0))
    parts = call("split", weight, indices_or_sections=2, axis=1)
    half = call("concatenate", Tuple((TupleGetItem(parts, 1), TupleGetItem(parts, 0))), axis=1)
    before = function(call("add", x, half))
    after = FoldConstant()(before)
    assert ops(after) == {"add": 1}
    assert_same_meaning(before, after, 0)


def test_items_of_literal_tuples_are_the_fields() -> None:
    make = Layers(np.random.default_rng(4))
    x = make.input(3, 4)
    after = FoldConstant()(function(relu(TupleGetItem(Tuple((x, call("tanh", x))), 1))))
    assert ops(after) == {"tanh": 1, "nn.relu": 1} and isinstance(after.body, Call)
    assert isinstance(after.body.args[0], Call)


def test_fills_stay_and_shapes_fold() -> None:
    make = Layers(np.random.default_rng(5))
    x = make.input(3, 4)
    fills = [call("zeros", shape=(3, 4), dtype="float64"), call("full", const(2.0, "float64"), shape=(3, 4))]
    before = function(call("add", call("add", x, fills[0]), fills[1]))
    assert FoldConstant()(before) is before
    shape = FoldConstant()(Function((x,), call("shape_of", relu(x)))).body
    assert isinstance(shape, Constant) and shape.value.tolist() == [3, 4] and shape.dtype == "int32"


def test_without_parameters_nothing_folds() -> None:
    x, w = var("x", (2, 3)), var("w", (5, 3))
    before = Function((x, w), call("nn.dense", x, call("nn.relu", w)))
    assert FoldConstant()(before) is before
    bound = FoldConstant()(bind_params(before, {"w": np.ones((5, 3), "float32")}))
    assert ops(bound) == {"nn.dense": 1}


def test_values_of_input_free_nodes() -> None:
    x = var("x", (2,))
    fill = call("ones", shape=(2,))
    total = call("add", fill, const(np.float32([1, 2])))
    body = call("add", x, total)
    assert input_free(body) >= {fill, total} and not input_free(body) & {x, body}
    assert evaluate(total).tolist() == [2, 3]
    with pytest.raises(GraphError, match="must depend on no input"):
        evaluate(body)


@pytest.mark.parametrize(("layout", "shape"), [("NCHW", (5, 1, 1)), ("NHWC", (5,))])
def test_a_bias_becomes_an_add(layout: str, shape: tuple[int, ...]) -> None:
    make = Layers(np.random.default_rng(6), layout)
    before = function(make.bias(make.conv(make.input(2, 3, 4, 6), 5)))
    after = CanonicalizeOps()(before)
    assert isinstance(after.body, Call) and after.body.op.name == "add" and after.body.args[1].shape == shape
    assert_same_meaning(before, after)


def test_every_elementwise_reader_has_its_own_widening_cast() -> None:
    x = var("x", (3, 4), "int8")
    wide = call("cast", x, dtype="int32")
    total = call("sum", wide, axis=(1,), keepdims=True)
    before = function(call("add", call("multiply", wide, wide), call("maximum", wide, total)))
    after = CanonicalizeCast()(before)
    casts = calls(after, "cast")
    assert len(casts) == 3, "one each for both sides of multiply and for maximum; the sum shares the first"
    assert calls(after, "sum")[0].args[0] in casts
    assert_same_meaning(before, after, 0)
    narrow = call("cast", var("y", (3,), "float64"), dtype="float32")
    graph = function(call("add", narrow, call("tanh", narrow)))
    assert CanonicalizeCast()(graph) is graph
