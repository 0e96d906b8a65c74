"""Every rule of SimplifyExpr on the pattern it is for, and on its neighbours that it must leave."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Call, Constant, Expr, Function, Var, const
from relay_lite.transform import SimplifyExpr, SimplifyExprPostAlterOp

from .pass_graphs import assert_same_meaning, function, ops, relu

X = var("x", (2, 3, 4, 5), "float64")
ROW = Constant(np.random.default_rng(0).uniform(-1, 1, (5,)))
COLUMN = Constant(np.random.default_rng(1).uniform(-1, 1, (4, 1)))
LARGE = Constant(np.random.default_rng(2).uniform(-1, 1, (2, 2, 3, 4, 5)))


def number(value: float) -> Constant:
    return const(value, "float64")


def add(a: Expr, b: Expr) -> Call:
    return call("add", a, b)


def mul(a: Expr, b: Expr) -> Call:
    return call("multiply", a, b)


def transpose(x: Expr, *axes: int) -> Call:
    return call("transpose", x, axes=axes)


def layout(x: Expr, source: str, target: str) -> Call:
    return call("layout_transform", x, src_layout=source, dst_layout=target)


def cast(x: Expr, dtype: str) -> Call:
    return call("cast", x, dtype=dtype)


def clip(x: Expr, low: float, high: float) -> Call:
    return call("clip", x, a_min=low, a_max=high)


def reshape(x: Expr, *shape: int) -> Call:
    return call("reshape", x, newshape=shape)


SHORTER: list[tuple[Expr, dict[str, int]]] = [
    (relu(add(X, number(-0.0))), {"nn.relu": 1}),
    (relu(add(Constant(-np.zeros((1, 1))), X)), {"nn.relu": 1}),
    (relu(call("subtract", X, number(0))), {"nn.relu": 1}),
    (relu(mul(number(1), X)), {"nn.relu": 1}),
    (relu(call("divide", X, Constant(np.ones((1,))))), {"nn.relu": 1}),
    (reshape(reshape(X, 6, 20), 2, -1), {"reshape": 1}),
    (reshape(call("nn.batch_flatten", X), 4, 30), {"reshape": 1}),
    (call("squeeze", call("expand_dims", X, axis=0)), {}),
    (call("expand_dims", reshape(X, 6, 20), axis=1), {"reshape": 1}),
    (transpose(reshape(X, 6, 1, 20), 1, 0, 2), {"reshape": 1}),
    (transpose(reshape(X, 6, 1, 20, 1), 0, 3, 2, 1), {"reshape": 1}),
    (layout(reshape(X, 1, 120, 1, 1), "NCHW", "NHWC"), {"reshape": 1}),
    (relu(reshape(transpose(reshape(X, 6, 1, 20), 1, 0, 2), 2, 3, 4, 5)), {"nn.relu": 1}),
    (call("take", X, Constant(np.array(2)), axis=1), {"strided_slice": 1, "reshape": 1}),
    (call("take", X, Constant(np.array(4)), axis=-1), {"strided_slice": 1, "reshape": 1}),
    (relu(reshape(reshape(X, 6, 20), 2, 3, 4, 5)), {"nn.relu": 1}),
    (transpose(transpose(X, 0, 2, 3, 1), 3, 0, 1, 2), {"transpose": 1}),
    (relu(transpose(transpose(X, 0, 2, 3, 1), 0, 3, 1, 2)), {"nn.relu": 1}),
    (relu(transpose(X, 0, 1, -2, 3)), {"nn.relu": 1}),
    (relu(layout(layout(X, "NCHW", "NHWC"), "NHWC", "NCHW")), {"nn.relu": 1}),
    (layout(layout(X, "NCHW", "NHWC"), "NHWC", "HWNC"), {"layout_transform": 1}),
    (transpose(layout(X, "NCHW", "NHWC"), 3, 0, 1, 2), {"transpose": 1}),
    (relu(transpose(layout(X, "NCHW", "NHWC"), 0, 3, 1, 2)), {"nn.relu": 1}),
    (call("transpose", call("transpose", transpose(X, 1, 0, 2, 3)), axes=(0, 1, 3, 2)), {"transpose": 1}),
    (relu(cast(X, "float64")), {"nn.relu": 1}),
    (cast(cast(var("i", (3,), "int8"), "int32"), "float32"), {"cast": 1}),
    (relu(cast(cast(var("f", (3,), "float32"), "float64"), "float32")), {"nn.relu": 1}),
    (mul(X, call("ones", shape=(4, 5), dtype="float64")), {}),
    (call("maximum", X, call("zeros", shape=(2, 3, 4, 5), dtype="float64")), {"maximum": 1}),
    (call("subtract", call("full", number(2), shape=(3, 4, 5)), X), {"subtract": 1}),
    (mul(call("ones", shape=(2, 5), dtype="float64"), call("ones", shape=(5,), dtype="float64")), {"ones": 1}),
    (call("subtract", X, call("zeros_like", X)), {}),
    (mul(X, call("full_like", X, number(3))), {"multiply": 1}),
    (mul(add(X, ROW), COLUMN), {"multiply": 1, "add": 1}),
    (mul(COLUMN, add(ROW, X)), {"multiply": 1, "add": 1}),
    (mul(mul(X, ROW), COLUMN), {"multiply": 1}),
    (mul(number(2), mul(ROW, mul(X, COLUMN))), {"multiply": 1}),
    (add(add(X, ROW), COLUMN), {"add": 1}),
    (add(mul(add(mul(add(X, ROW), COLUMN), ROW), ROW), COLUMN), {"multiply": 1, "add": 1}),
    (add(relu(X), relu(X)), {"nn.relu": 2, "add": 1}),
    (call("divide", X, call("sqrt", add(mul(X, X), number(1)))), {"multiply": 2, "add": 1, "rsqrt": 1}),
    (clip(clip(X, -0.5, 0.7), -0.2, 0.9), {"clip": 1}),
    (clip(clip(clip(X, -0.9, 0.9), -0.5, 2), -2, 0.5), {"clip": 1}),
]

SAME: list[Expr] = [
    transpose(reshape(X, 6, 1, 20), 2, 1, 0),
    call("take", X, Constant(np.array(3)), axis=1),
    call("take", X, Constant(np.array(-1)), axis=1),
    call("take", X, Constant(np.array([2])), axis=1),
    call("take", X, Constant(np.array(2))),
    call("take", X, var("i", (), "int32"), axis=1),
    add(X, number(0)),
    add(X, Constant(np.zeros(5))),
    call("subtract", number(0), X),
    call("divide", number(1), X),
    add(X, Constant(np.zeros((1, 1, 1, 1, 1)))),
    mul(relu(X), X),
    call("maximum", var("one", (1,), "float64"), call("zeros", shape=(3, 5), dtype="float64")),
    cast(cast(X, "int32"), "float64"),
    cast(cast(X, "float32"), "float64"),
    clip(clip(X, -0.9, -0.5), 0.1, 0.9),
    transpose(relu(transpose(X, 1, 0, 2, 3)), 1, 0, 2, 3),
    mul(add(X, var("y", (2, 3, 4, 5), "float64")), ROW),
    call("subtract", call("subtract", X, ROW), ROW),
]


@pytest.mark.parametrize(("body", "expected"), SHORTER)
def test_patterns_become_shorter(body: Expr, expected: dict[str, int]) -> None:
    before = function(body)
    after = SimplifyExpr()(before)
    assert dict(ops(after)) == expected
    assert_same_meaning(before, after)
    assert SimplifyExpr()(after) is after


@pytest.mark.parametrize("body", SAME)
def test_neighbours_stay(body: Expr) -> None:
    before = function(body)
    assert SimplifyExpr()(before) is before


def test_a_value_added_to_itself_is_doubled() -> None:
    value = relu(X)
    before = function(add(value, value))
    after = SimplifyExpr()(before)
    assert ops(after) == {"nn.relu": 1, "multiply": 1}
    assert_same_meaning(before, after)


def test_the_scale_comes_first_and_data_stand_left() -> None:
    body = SimplifyExpr()(function(mul(COLUMN, add(ROW, X)))).body
    assert isinstance(body, Call) and body.op.name == "add"
    product, shift = body.args
    assert isinstance(product, Call) and product.args[0] is X and isinstance(shift, Constant)
    np.testing.assert_allclose(shift.value, ROW.value * COLUMN.value)


def test_products_that_overflow_are_not_made() -> None:
    large = Constant(np.full(5, 1e200))
    before = function(mul(mul(clip(X, -1e-200, 1e-200), large), large))
    assert SimplifyExpr()(before) is before
    masked = function(add(add(X, Constant(np.full(5, -np.inf))), ROW))
    assert ops(SimplifyExpr()(masked)) == {"add": 1}


def test_an_operand_that_broadcasts_the_result_stays() -> None:
    before = function(mul(X, call("ones", shape=(2, 2, 3, 4, 5), dtype="float64")))
    assert SimplifyExpr()(before) is before
    assert SimplifyExpr()(function(add(X, LARGE))).body.shape == (2, 2, 3, 4, 5)


RULES_AFTER_LAYOUTS: list[tuple[Callable[[Var], Expr], bool]] = [
    (lambda x: add(x, number(-0.0)), True),
    (lambda x: reshape(reshape(x, 6, 20), 12, 10), True),
    (lambda x: cast(x, "float64"), True),
    (lambda x: clip(clip(x, 0, 2), 1, 3), True),
    (lambda x: mul(mul(x, ROW), ROW), False),
    (lambda x: call("divide", x, call("sqrt", x)), False),
    (lambda x: transpose(transpose(x, 1, 0, 2, 3), 1, 0, 2, 3), False),
]


@pytest.mark.parametrize(("make", "changes"), RULES_AFTER_LAYOUTS)
def test_the_variant_after_layouts_has_four_rules(make: Callable[[Var], Expr], changes: bool) -> None:
    before = Function((X,), relu(make(X)))
    after = SimplifyExprPostAlterOp()(before)
    assert (after is not before) == changes


def test_a_long_chain_collapses() -> None:
    body: Expr = X
    for k in range(300):
        body = add(mul(body, number(0.5 if k % 2 else 2.0)), number(0.01))
    before = function(body)
    after = SimplifyExpr()(before)
    assert ops(after) == {"multiply": 1, "add": 1} or ops(after) == {"add": 1}
    assert_same_meaning(before, after)


def simplified(body: Expr) -> Expr:
    return SimplifyExpr()(function(body)).body


def test_a_mask_that_hides_nothing_is_left_out() -> None:
    """A tensor of zeros that keep the sign of a zero; others, and those that enlarge, stay."""
    for value, left in ((-0.0, True), (0.0, False), (1.0, False)):
        mask = Constant(np.full((4, 5), value))
        assert (simplified(add(X, mask)) is X) == left
    mixed = Constant(np.array([-0.0, 0.0, -0.0, -0.0, -0.0]))
    assert isinstance(simplified(add(X, mixed)), Call)
    assert isinstance(simplified(add(X, Constant(np.full((2, 2, 3, 4, 5), -0.0)))), Call)
    assert isinstance(simplified(mul(X, Constant(np.ones((4, 1))))), Call)
    assert isinstance(simplified(add(X, Constant(np.full((4, 5), np.nan)))), Call)


def test_a_choice_that_is_known_is_none() -> None:
    y = var("y", (2, 3, 4, 5), "float64")
    for value, left in ((True, X), (False, y)):
        assert simplified(call("where", Constant(np.full((3, 1, 5), value)), X, y)) is left
    assert isinstance(simplified(call("where", Constant(np.array([True, False, True, True, True])), X, y)), Call)
    enlarging = Constant(np.zeros((2, 2, 3, 4, 5), dtype=bool))
    assert isinstance(simplified(call("where", enlarging, X, y)), Call)
