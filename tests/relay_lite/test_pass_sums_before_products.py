"""`SumsBeforeProducts`: values stay, and what is only summed up is not computed."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_lite import reference
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Call, Expr, Function, Var
from relay_lite.ir.visit import is_op, post_order
from relay_lite.transform import PassContext
from relay_lite.transform.sums_before_products import CONVOLUTIONS, LEAST_GAIN, MATMULS, POOLS, SumsBeforeProducts
from tests.amount import examples

from .pass_graphs import assert_same_meaning


def wide(name: str, shape: Sequence[int]) -> Var:
    return var(name, shape, "float64")


@st.composite
def convolutions(draw: st.DrawFn) -> Call:
    """Plain and transposed ones of 1 to 3 axes; padding may be longer than the data."""
    n, transposed, groups = draw(st.integers(1, 3)), draw(st.booleans()), draw(st.sampled_from([1, 2]))

    def several(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=n, max_size=n)))

    size, kernel = several(1, 5), several(1, 4)
    strides = several(1, 3) if transposed or draw(st.booleans()) else (1,) * n
    dilation = (1,) * n if transposed else several(1, 2)
    extra = tuple([draw(st.integers(0, s - 1)) for s in strides])
    padding = tuple([draw(st.integers(0, k - 1 if transposed else k)) for k in kernel * 2])
    rows = zip(size, kernel, strides, dilation, padding[:n], padding[n:], extra, strict=True)
    out = [
        (m - 1) * s + k - b - a + e if transposed else (m + b + a - d * (k - 1) - 1) // s + 1
        for m, k, s, d, b, a, e in rows
    ]
    if min(out) < 1:
        padding, size = (0,) * (2 * n), tuple([d * k for k, d in zip(kernel, dilation, strict=True)])
    data = wide("x", (draw(st.integers(1, 2)), 2 * groups, *size))
    shape = (2 * groups, 3, *kernel) if transposed else (3 * groups, 2, *kernel)
    more = {"output_padding": extra} if transposed else {"dilation": dilation}
    return call(
        f"nn.conv{n}d{'_transpose' if transposed else ''}", data, wide("w", shape), strides=strides, padding=padding,
        groups=groups, channels=3 * groups, kernel_size=kernel, **more,
    )  # fmt: skip


@st.composite
def matmuls(draw: st.DrawFn) -> Call:
    name, (m, n, k) = draw(st.sampled_from(MATMULS)), [draw(st.integers(1, 6)) for _ in range(3)]
    batch = (draw(st.integers(1, 3)),) if name == "nn.batch_matmul" else ()
    if name == "nn.dense":
        return call(name, wide("x", (m, k)), wide("w", (n, k)))
    turned = draw(st.booleans()), draw(st.booleans())
    left, right = (k, m) if turned[0] else (m, k), (n, k) if turned[1] else (k, n)
    right = ((1,) if batch and draw(st.booleans()) else batch) + right
    return call(name, wide("x", (*batch, *left)), wide("w", right), transpose_a=turned[0], transpose_b=turned[1])


@st.composite
def sums(draw: st.DrawFn) -> Expr:
    """A sum over some axes of a product after some operators that are linear, or nearly."""
    node: Expr = draw(st.one_of(convolutions(), matmuls()))
    rank = len(node.shape)
    for step in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["add", "subtract", "multiply", "divide", "negative", "nn.bias_add"]))
        axis = draw(st.integers(0, rank - 1))
        shape = tuple([e if draw(st.booleans()) else 1 for e in node.shape])[draw(st.integers(0, rank - 1)) :]
        other = wide(f"v{step}", (node.shape[axis],) if kind == "nn.bias_add" else shape)
        if kind == "negative":
            node = call(kind, node)
        elif kind == "nn.bias_add":
            node = call(kind, node, other, axis=axis)
        else:
            args = (other, node) if kind != "divide" and draw(st.booleans()) else (node, other)
            node = call(kind, *args)
    axes = tuple(draw(st.sets(st.integers(0, rank - 1), min_size=1)))
    return call(draw(st.sampled_from(["sum", "mean"])), node, axis=axes, keepdims=draw(st.booleans()))


def variables(body: Expr) -> tuple[Var, ...]:
    return tuple([n for n in post_order(body) if isinstance(n, Var)])


def changed(body: Expr) -> Function:
    with PassContext(opt_level=3):
        return SumsBeforeProducts()(Function(variables(body), body))


def same_values(body: Expr) -> Function:
    function, rng = changed(body), np.random.default_rng(0)
    inputs = {v.name: rng.uniform(0.5, 1, v.var_type.shape) for v in function.params}
    inputs["x"] *= rng.choice([-1, 1], inputs["x"].shape)
    want = reference.run(Function(function.params, body), inputs)
    np.testing.assert_allclose(reference.run(function, inputs), want, rtol=1e-10, atol=1e-10)
    assert function.body.type == body.type
    return function


@examples(300)
@given(sums())
def test_values_stay(body: Expr) -> None:
    same_values(body)


@examples(100)
@given(st.one_of(convolutions(), matmuls()), st.data())
def test_what_is_summed_up_is_not_computed(product: Call, data: st.DataObject) -> None:
    rank = len(product.shape)
    allowed = [a for a in range(rank) if not (is_op(product, "nn.batch_matmul") and a == 0)]
    if is_op(product, *CONVOLUTIONS) and not product.op.name.endswith("_transpose"):
        allowed = [a for a in allowed if a < 2 or product.attrs["strides"][a - 2] == 1]
    axes = tuple(data.draw(st.sets(st.sampled_from(allowed), min_size=1)))
    body = call("sum", product, axis=axes)
    products = [n for n in post_order(same_values(body).body) if is_op(n, *CONVOLUTIONS, *MATMULS)]
    summed = prod([product.shape[a] for a in axes])
    assert len(products) == 1
    if summed >= LEAST_GAIN:
        assert prod(products[0].shape) == prod(product.shape) // summed
    else:
        assert products == [product]


def test_taps_that_meet_the_same_data_share_a_sum() -> None:
    conv = call("nn.conv2d_transpose", wide("x", (2, 4, 9, 9)), wide("w", (4, 5, 3, 3)), strides=(2, 2), channels=5,
                kernel_size=(3, 3))  # fmt: skip
    function = same_values(call("mean", conv, axis=(2, 3)))
    (product,) = [n for n in post_order(function.body) if is_op(n, *MATMULS)]
    assert [a.shape for a in product.args] == [(2, 4), (4, 5)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n", POOLS.values())
def test_averages_before_convolutions_of_points(n: int, bias: bool) -> None:
    data, stride = wide("x", (2, 3, *[7] * n)), {1: 4, 2: 2, 3: 2}[n]
    node = call(f"nn.conv{n}d", data, wide("w", (5, 3, *[1] * n)), channels=5, kernel_size=(1,) * n)
    if bias:
        node = call("nn.bias_add", node, wide("b", (5,)))
    pool = call(f"nn.avg_pool{n}d", node, pool_size=(3,) * n, strides=(stride,) * n)
    (conv,) = [c for c in post_order(same_values(pool).body) if is_op(c, f"nn.conv{n}d")]
    assert is_op(conv.args[0], f"nn.avg_pool{n}d")
    for other in ({"padding": (1,) * n}, {"strides": (1,) * n}, {"ceil_mode": True}):
        pool = call(f"nn.avg_pool{n}d", node, **{"pool_size": (3,) * n, "strides": (stride,) * n, **other})
        assert changed(pool).body is pool


@pytest.mark.parametrize("axes", [(0,), (1,), (2,), (2, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("multiplier", [1, 3, 4])
def test_depthwise_convolutions_whose_weight_is_by_channel(axes: tuple[int, ...], multiplier: int) -> None:
    conv = call("nn.conv2d", wide("x", (4, 4, 6, 5)), wide("w", (4, multiplier, 3, 3)), groups=4, padding=(1, 0, 1, 2),
                channels=4 * multiplier, kernel_size=(3, 3))  # fmt: skip
    body = call("mean", conv, axis=axes)
    assert same_values(body).body is not body


def test_one_number_stands_for_all_axes() -> None:
    x, w, one = wide("x", (2, 4, 8, 8)), wide("w", (4, 4, 3, 3)), wide("p", (4, 4, 1, 1))
    for conv in (
        call("nn.conv2d", x, w, strides=1, padding=1, dilation=2),
        call("nn.conv2d", x, w, padding=(2,)),
        call("nn.conv2d_transpose", x, w, strides=2, padding=1, output_padding=1),
        call("nn.conv2d_transpose", x, w, strides=(3,), padding=(1, 2), output_padding=(1,)),
    ):
        body = call("sum", conv, axis=(2, 3))
        assert same_values(body).body is not body
    points = call("nn.conv2d", x, one, strides=1, padding=0)
    body = call("nn.avg_pool2d", points, pool_size=2, strides=2, padding=0)
    assert same_values(body).body is not body


@pytest.mark.parametrize("axis", [0, 2, 3, -1])
def test_a_bias_along_pooled_axes_stays_in_front_of_the_pool(axis: int) -> None:
    points = call("nn.conv2d", wide("x", (6, 6, 6, 6)), wide("w", (6, 6, 1, 1)), channels=6, kernel_size=(1, 1))
    body = call(
        "nn.avg_pool2d", call("nn.bias_add", points, wide("b", (6,)), axis=axis), pool_size=(2, 2), strides=(2, 2)
    )
    assert same_values(body).body is body


def test_means_of_whole_images() -> None:
    conv = call("nn.conv2d", wide("x", (2, 3, 8, 8)), wide("w", (4, 3, 3, 3)), channels=4, kernel_size=(3, 3))
    function = same_values(call("nn.global_avg_pool2d", conv))
    assert not [n for n in post_order(function.body) if is_op(n, *CONVOLUTIONS)]


def test_what_is_needed_anyway_stays() -> None:
    x, w = wide("x", (8, 16)), wide("w", (16, 16))
    product = call("nn.dense", x, w)
    total = call("sum", product, axis=(1,), keepdims=True)
    halves = call("nn.dense", var("h", (8, 16), "float16"), var("g", (16, 16), "float16"))
    for body in (
        call("subtract", product, total),
        call("sum", call("nn.relu", product), axis=(1,)),
        call("sum", call("multiply", product, wide("m", (1, 16))), axis=(1,)),
        call("sum", call("divide", wide("d", (8, 16)), product), axis=(1,)),
        call("sum", halves, axis=(1,)),
    ):
        assert changed(body).body is body


def test_taps_behind_all_data_meet_nothing() -> None:
    x, w = var("x", (2, 2, 1, 1, 2)), var("w", (3, 2, 1, 1, 4))
    conv = call("nn.conv3d", x, w, padding=(0, 0, 1, 0, 0, 4), dilation=(1, 1, 2), channels=3, kernel_size=(1, 1, 4))
    before = Function((x, w), call("mean", conv, axis=(0, 1, 4)))
    after = SumsBeforeProducts()(before)
    assert after is not before
    assert_same_meaning(before, after, 1e-6)
