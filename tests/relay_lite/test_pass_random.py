"""Every pass keeps the meaning of random networks, alone and after one another, and deep graphs need no deep stack."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_lite.ir.control import Loop
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Expr, Function, Tuple, Var, tensor_type
from relay_lite.ir.types import TensorType
from relay_lite.ir.visit import free_vars, is_op, operators_of, post_order, rewrite
from relay_lite.transform import (
    BackwardFoldScaleAxis,
    CanonicalizeCast,
    CanonicalizeOps,
    EliminateCommonSubexpr,
    FastMath,
    FoldConstant,
    FoldScaleAxis,
    ForwardFoldScaleAxis,
    Pass,
    PassContext,
    Sequential,
    SimplifyExpr,
    SimplifyExprPostAlterOp,
    SimplifyInference,
)
from relay_lite.transform.sequential import ACTS_ON, where_needed
from tests.amount import examples

from .pass_graphs import Layers, assert_same_meaning, function, ops, random_network, relu

ALL: list[Pass] = [
    SimplifyInference(),
    EliminateCommonSubexpr(),
    FoldConstant(),
    BackwardFoldScaleAxis(),
    ForwardFoldScaleAxis(),
    FoldScaleAxis(),
    SimplifyExpr(),
    CanonicalizeCast(),
    CanonicalizeOps(),
    SimplifyExprPostAlterOp(),
]
IN_ORDER = [SimplifyInference(), EliminateCommonSubexpr(), FoldConstant(), FoldScaleAxis(), SimplifyExpr(),
            CanonicalizeCast(), CanonicalizeOps(), SimplifyExprPostAlterOp(), FoldConstant()]  # fmt: skip
LAYOUTS = pytest.mark.parametrize("layout", ["NCHW", "NHWC"])


@LAYOUTS
@examples(150, derandomize=True)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 25))
def test_the_passes_in_order(layout: str, seed: int, size: int) -> None:
    before = random_network(np.random.default_rng(seed), size, layout)
    with PassContext(opt_level=3):
        after = Sequential(IN_ORDER)(before)
    assert_same_meaning(before, after, 1e-8)
    assert not {"nn.batch_norm", "nn.bias_add"} & set(ops(after))


@LAYOUTS
@examples(150, derandomize=True)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 20), order=st.lists(st.integers(0, len(ALL) - 1), max_size=6))
def test_passes_in_any_order(layout: str, seed: int, size: int, order: list[int]) -> None:
    before = random_network(np.random.default_rng(seed), size, layout)
    after = before
    with PassContext(opt_level=3):
        for k in order:
            after = ALL[k](after)
    assert_same_meaning(before, after, 1e-8)


def _deep(layers: int) -> Function:
    """A network of many units with one shared value each."""
    make = Layers(np.random.default_rng(0), negative=False)
    x: Expr = make.input(1, 2, 2, 3)
    for _ in range(layers):
        x = call("add", make.conv(relu(make.bn(make.bias(x))), 3, 1), x)
    return function(x)


def test_depth_is_no_matter() -> None:
    deep = _deep(300)
    with PassContext(opt_level=3):
        after = Sequential(IN_ORDER)(deep)
    assert ops(after) == {"nn.conv2d": 300, "nn.relu": 300, "add": 900}


@pytest.mark.parametrize("a_pass", ALL, ids=[p.name for p in ALL])
def test_a_pass_that_finds_nothing_returns_its_argument(a_pass: Pass) -> None:
    make = Layers(np.random.default_rng(1))
    graph = function(make.tail(relu(make.conv(make.input(1, 4, 4, 3), 4))))
    with PassContext(opt_level=3):
        assert a_pass(graph) is graph
        once = a_pass(_deep(3))
        assert a_pass(once) is once


@pytest.mark.parametrize("a_pass", ALL, ids=[p.name for p in ALL])
def test_what_a_pass_does_not_change_stays_shared(a_pass: Pass) -> None:
    before = random_network(np.random.default_rng(7), 30, "NHWC")
    with PassContext(opt_level=3):
        after = a_pass(before)
    size = len(post_order(before.body))
    assert len(post_order(after.body)) <= 4 * size, "a shared value must not be copied for each of its readers"


@pytest.mark.parametrize("make", ACTS_ON, ids=[make.__name__ for make in ACTS_ON])
@examples(20, derandomize=True)
@given(seed=st.integers(0, 10**6))
def test_a_pass_leaves_a_graph_without_its_operators_alone(make: Callable[[], Pass], seed: int) -> None:
    """What such an operator gives is an input here."""

    def change(node: Expr) -> Expr:
        return Var("given", tensor_type(node)) if is_op(node, *ACTS_ON[make]) else node

    network = SimplifyInference()(random_network(np.random.default_rng(seed), 20, "NHWC"))
    before = FoldConstant()(rewrite(network, change))
    before = Function(free_vars(before.body), before.body)
    assert not operators_of(before) & ACTS_ON[make]
    with PassContext(opt_level=4):
        assert make()(before) is before and where_needed(make)(before) is before


def test_a_pass_is_made_where_an_operator_is_in_a_loop_only() -> None:
    h = Var("h", TensorType((1, 3), "float32"))
    step = Function((h,), Tuple((call("tanh", h),)))
    x = Var("x", TensorType((1, 3), "float32"))
    graph = Function((x,), Loop(step, (x,), steps=2, sliced=0, states=1))
    with PassContext(opt_level=4):
        assert operators_of(where_needed(FastMath)(graph)) == {"fast_tanh"}
