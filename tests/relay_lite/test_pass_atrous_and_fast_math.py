"""Dilated convolutions are found behind space-to-batch; tanh and erf have fast forms at level 4."""

from __future__ import annotations

from math import erf

import numpy as np
import pytest

import te_lite as te
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Call, Expr
from relay_lite.op.space_batch import batch_to_space_nd, space_to_batch_nd
from relay_lite.transform import FastMath, FlattenAtrousConv, PassContext, Sequential
from te_lite.meaning import reference

from .pass_graphs import Layers, assert_same_meaning, calls, function, ops, relu


def _atrous(
    make: Layers, x: Expr, block: tuple[int, int], paddings: object, crops: object, conv_padding: int = 0, **split: int
) -> Call:
    parts = space_to_batch_nd(x, block, paddings, **split)
    p = conv_padding
    conv = call("nn.conv2d", parts, make.draw(3, 2, x.shape[-1], 5), padding=(p, p, p, p), channels=5,
                kernel_size=(3, 2), data_layout="NHWC", kernel_layout="HWIO")  # fmt: skip
    return batch_to_space_nd(conv, block, crops)


@pytest.mark.parametrize(
    ("block", "paddings", "crops", "conv_padding", "padding"),
    [
        ((2, 3), ((0, 0), (0, 0)), ((0, 0), (0, 0)), 0, (0, 0, 0, 0)),
        ((2, 3), ((2, 2), (3, 6)), ((0, 0), (1, 2)), 0, (2, 2, 2, 4)),
        ((4, 1), ((4, 2), (1, 0)), ((1, 2), (0, 0)), 1, (7, 2, 4, 1)),
    ],
)
def test_space_to_batch_around_a_convolution_is_dilation(
    block: tuple[int, int],
    paddings: tuple[tuple[int, int], tuple[int, int]],
    crops: tuple[tuple[int, int], tuple[int, int]],
    conv_padding: int,
    padding: tuple[int, ...],
) -> None:
    make = Layers(np.random.default_rng(0))
    before = function(relu(_atrous(make, make.input(2, 10, 12, 3), block, paddings, crops, conv_padding)))
    after = FlattenAtrousConv()(before)
    assert ops(after) == {"nn.conv2d": 1, "nn.relu": 1}
    (conv,) = calls(after, "nn.conv2d")
    assert conv.attrs["dilation"] == block and conv.attrs["padding"] == padding
    assert_same_meaning(before, after)


def test_what_is_no_dilated_convolution_stays() -> None:
    make = Layers(np.random.default_rng(1))
    x = make.input(2, 10, 12, 3)
    none = ((0, 0), (0, 0))
    cut = _atrous(make, x, (2, 3), none, ((1, 0), (0, 0)))
    filled = _atrous(make, x, (2, 3), ((1, 1), (0, 0)), none, pad_value=1)
    for body in (cut, filled):
        graph = function(body)
        assert FlattenAtrousConv()(graph) is graph
        assert_same_meaning(graph, graph)


def test_blocks_go_to_the_batch_and_back() -> None:
    make = Layers(np.random.default_rng(2))
    x = make.input(2, 4, 6, 3)
    parts = space_to_batch_nd(x, (2, 3), ((0, 2), (2, 1)))
    assert parts.shape == (12, 3, 3, 3)
    assert_same_meaning(function(relu(x)), function(relu(batch_to_space_nd(parts, (2, 3), ((0, 2), (2, 1))))), 0)
    with pytest.raises(GraphError, match="the block must divide the padded data"):
        space_to_batch_nd(x, (3, 3), ((0, 0), (0, 0)))
    with pytest.raises(GraphError, match="one entry for each spatial dimension"):
        space_to_batch_nd(x, (2, 3), ((0, 0),))
    with pytest.raises(GraphError, match="the block must divide the batch"):
        batch_to_space_nd(x, (2, 3), ((0, 0), (0, 0)))
    with pytest.raises(GraphError, match="the crops leave nothing"):
        batch_to_space_nd(parts, (2, 3), ((3, 3), (0, 0)))


def _te_value(node: Call, value: np.ndarray) -> np.ndarray:
    """The operator's tensor expression, evaluated."""
    (given,) = node.args
    data = te.placeholder(given.shape, name="data", dtype=given.dtype)
    (out,) = node.op.compute([data], node.attrs, "c")  # type: ignore[misc]
    return reference.evaluate([out], {data: value})[out]


def test_tensor_expressions_mean_the_same() -> None:
    rng = np.random.default_rng(3)
    image, batch = (rng.uniform(-1, 1, s).astype("float32") for s in ((2, 4, 6, 3), (12, 3, 3, 2)))
    split = space_to_batch_nd(var("x", image.shape), (2, 3), ((0, 2), (2, 1)), 0.5)
    joined = batch_to_space_nd(var("x", batch.shape), (2, 3), ((1, 0), (2, 4)))
    values = np.linspace(-11, 11, 301, dtype="float32")
    fast = [call(name, var("x", values.shape)) for name in ("fast_tanh", "fast_erf")]
    for node, value in ((split, image), (joined, batch), *((f, values) for f in fast)):
        want = node.op.numpy([value], node.attrs)
        assert want.shape == node.shape and want.dtype == node.dtype
        np.testing.assert_allclose(_te_value(node, value), want, rtol=0, atol=2e-7)


@pytest.mark.parametrize(("name", "exact"), [("tanh", np.tanh), ("erf", np.vectorize(erf))])
def test_fast_functions_are_close_everywhere(name: str, exact: np.ufunc) -> None:
    x = np.concatenate([np.linspace(-12, 12, 20001), [0, -0.0, 1e-30, 1e30, np.inf, -np.inf]]).astype("float32")
    got = call(f"fast_{name}", var("x", x.shape)).op.numpy([x], {})
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, exact(x.astype("float64")), rtol=0, atol=5e-7)


def test_fast_math_runs_at_level_4_only_and_on_float32_only() -> None:
    x = var("x", (3, 5))
    before = function(call("add", call("tanh", x), call("erf", call("exp", x))))
    with PassContext(opt_level=3):
        assert Sequential([FastMath()])(before) is before
    with PassContext(opt_level=4):
        after = Sequential([FastMath()])(before)
    assert ops(after) == {"fast_tanh": 1, "fast_erf": 1, "exp": 1, "add": 1}
    assert_same_meaning(before, after, 1e-6)
    double = function(call("tanh", var("y", (3,), "float64")))
    assert FastMath()(double) is double
