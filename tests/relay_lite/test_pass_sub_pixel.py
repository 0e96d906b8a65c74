"""`SubPixelConvolutions`: the values of transposed convolutions stay, and products by zero go."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relay_lite import reference
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Call, Function
from relay_lite.ir.visit import is_op, post_order
from relay_lite.transform import PassContext
from relay_lite.transform.sub_pixel import NAMES, SubPixelConvolutions


@st.composite
def convolutions(draw: st.DrawFn) -> Call:
    n = draw(st.integers(1, 3))
    several = lambda low, high: tuple(draw(st.lists(st.integers(low, high), min_size=n, max_size=n)))  # noqa: E731
    size, kernel, strides = several(1, 6), several(1, 6), several(1, 4)
    groups = draw(st.sampled_from([1, 2])) if n == 2 else 1
    extra = tuple([draw(st.integers(0, s - 1)) for s in strides])
    sides = zip(kernel * 2, strict=True)
    padding = tuple([draw(st.integers(0, k - 1)) for (k,) in sides])
    rows = zip(size, kernel, strides, padding[:n], padding[n:], extra, strict=True)
    out = [(m - 1) * s + k - b - a + e for m, k, s, b, a, e in rows]
    if min(out) < 1:
        padding = (0,) * (2 * n)
    data = var("x", (draw(st.integers(1, 2)), 2 * groups, *size))
    weight = var("w", (2 * groups, 3, *kernel))
    return call(
        f"nn.conv{n}d_transpose", data, weight, strides=strides, padding=padding, output_padding=extra, groups=groups,
        channels=3 * groups, kernel_size=kernel,
    )  # fmt: skip


def changed(conv: Call) -> Function:
    data, weight = conv.args
    with PassContext(opt_level=3):
        return SubPixelConvolutions()(Function((data, weight), conv))  # type: ignore[arg-type]


def products(function: Function) -> int:
    """Multiplications of convolutions, those by zeros that are put into the data included."""
    total = 0
    for node in post_order(function.body):
        if is_op(node, *NAMES, "nn.conv1d", "nn.conv2d", "nn.conv3d"):
            terms = node.args[1].shape[1] if not is_op(node, *NAMES) else node.args[1].shape[0] // node.attrs["groups"]
            total += prod(node.shape) * terms * prod(node.args[1].shape[2:])
    return total


@settings(deadline=None, max_examples=150)
@given(convolutions())
def test_values_stay_and_products_do_not_grow(conv: Call) -> None:
    function, rng = changed(conv), np.random.default_rng(0)
    inputs = {v.name: rng.uniform(-1, 1, v.var_type.shape).astype("float32") for v in function.params}
    want = reference.run(Function(function.params, conv), inputs)
    np.testing.assert_allclose(reference.run(function, inputs), want, rtol=0, atol=1e-5 * np.abs(want).max())
    assert function.body.type == conv.type


@pytest.mark.parametrize(("kernel", "stride", "share"), [(4, 2, 1 / 4), (3, 2, 4 / 9), (2, 2, 1 / 4), (5, 3, 4 / 25)])
def test_products_by_zero_go(kernel: int, stride: int, share: float) -> None:
    x, w = var("x", (1, 8, 32, 32)), var("w", (8, 4, kernel, kernel))
    conv = call("nn.conv2d_transpose", x, w, strides=(stride, stride), padding=(0, 0, 0, 0), channels=4,
                kernel_size=(kernel, kernel), output_padding=(0, 0))  # fmt: skip
    before, after = products(Function((x, w), conv)), products(changed(conv))
    assert share <= after / before < 1.2 * share


def test_others_stay() -> None:
    x, w = var("x", (1, 8, 9, 9)), var("w", (8, 4, 3, 3))
    plain = call("nn.conv2d_transpose", x, w, channels=4, kernel_size=(3, 3))
    narrow = call("nn.conv2d_transpose", x, var("w", (8, 4, 1, 1)), strides=(2, 2), channels=4, kernel_size=(1, 1))
    for conv in (plain, narrow):
        assert changed(conv).body is conv


def test_one_number_stands_for_all_axes() -> None:
    x, w, rng = var("x", (2, 4, 6, 5)), var("w", (4, 3, 4, 4)), np.random.default_rng(0)
    inputs = {v.name: rng.uniform(-1, 1, v.var_type.shape).astype("float32") for v in (x, w)}
    for amounts in ({"strides": 2, "padding": 1}, {"strides": (2,), "padding": (1,), "output_padding": 1}):
        conv = call("nn.conv2d_transpose", x, w, **amounts)
        function = changed(conv)
        assert function.body is not conv
        want = reference.run(Function((x, w), conv), inputs)
        np.testing.assert_allclose(reference.run(function, inputs), want, rtol=0, atol=1e-5 * np.abs(want).max())
