"""Convolutions of 1 x 1 on one axis of pixels: the meaning stays, and kernels stay as many."""

from __future__ import annotations

import numpy as np
import pytest

from relay_lite import reference
from relay_lite.compiler.optimize import optimize
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Constant, Expr, Function, FunctionCall
from relay_lite.ir.text import as_text
from relay_lite.ir.types import TensorType
from relay_lite.ir.visit import post_order
from relay_lite.runtime.assemble import reshaped_params
from relay_lite.transform import FlattenPointwise, PassContext, ToMixedPrecision
from tests.relay_lite.pass_graphs import Layers, calls, relu


def units(batch: int = 2, seed: int = 3) -> Function:
    """A picture through a bottleneck whose shortcut is convolved, with a stride, and one whose shortcut is not."""
    make = Layers(np.random.default_rng(seed), "NHWC", "float32")
    x = make.input(batch, 6, 7, 16)

    def biased(x: Expr, channels: int, window: int = 1, strides: int = 1) -> Expr:
        weight = make.draw(window, window, x.shape[3], channels)
        made = call("nn.conv2d", x, weight, strides=(strides, strides), padding=(window // 2,) * 2, channels=channels,
                    kernel_size=(window, window), data_layout="NHWC", kernel_layout="HWIO")  # fmt: skip
        return make.bias(made) if window > 1 or strides > 1 else call("add", made, make.draw(1, 1, 1, channels))

    def unit(x: Expr, strides: int) -> Expr:
        body = biased(relu(biased(relu(biased(x, 8)), 8, 3, strides)), 24)
        return relu(call("add", body, biased(x, 24, 1, strides) if x.shape != body.shape else x))

    return Function((x,), call("mean", unit(unit(unit(x, 1), 2), 1), axis=(1, 2)))


def kernels(fused: Function) -> list[FunctionCall]:
    found = [n for n in post_order(fused.body) if isinstance(n, FunctionCall)]
    return [n for n in found if reshaped_params(n.function) is None]


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "tf32"])
def test_networks_of_tensor_cores(precision: str) -> None:
    """Every 1 x 1 convolution of stride 1 has rows of all images; kernels are as many, and what they give as large."""
    graph = units()
    target = "cuda -precision=tf32" if precision == "tf32" else "cuda"
    with PassContext(opt_level=3):
        mixed = graph if precision == "tf32" else ToMixedPrecision(precision)(graph)
        fused = optimize(mixed, {}, target)
    with PassContext(opt_level=3, disabled_pass=["FlattenPointwise"]):
        plain = optimize(mixed, {}, target)
    shapes = [c.args[0].shape for k in kernels(fused) for c in calls(k.function, "nn.conv2d")]
    rows = [(24, 8), (24, 8), (24, 24), (84, 8), (84, 16), (84, 16), (84, 24)]
    assert sorted(s for s in shapes if s[0] == 1) == [(1, 1, *row) for row in rows]
    given = [n.type for n in kernels(fused)]
    assert len(given) == len(kernels(plain))
    halves = [t for t in given[:-2] if isinstance(t, TensorType) and t.dtype == precision]
    assert len(halves) == (0 if precision == "tf32" else len(given) - 2)
    inputs = {"data": np.random.default_rng(0).standard_normal((2, 6, 7, 16)).astype("float32")}
    np.testing.assert_allclose(reference.run(fused, inputs), reference.run(plain, inputs), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("precision", ["float16", "tf32"])
def test_a_sum_in_the_kernel_of_a_window_stays_there(precision: str, turned: bool) -> None:
    """A shortcut of 1 x 1 beside a window of 3 x 3, as in ResNet-18: two kernels, and the casts of the input."""
    make = Layers(np.random.default_rng(0), "NHWC", "float32")
    x = make.input(2, 6, 7, 16)
    parts = make.bias(make.conv(x, 24)), make.bias(make.conv(x, 24, 1))
    graph = Function((x,), relu(call("add", *(parts[::-1] if turned else parts))))
    with PassContext(opt_level=3):
        mixed = graph if precision == "tf32" else ToMixedPrecision(precision)(graph)
        fused = optimize(mixed, {}, "cuda -precision=tf32" if precision == "tf32" else "cuda")
    assert len(kernels(fused)) == (2 if precision == "tf32" else 3)


@pytest.mark.parametrize("target", ["c", "cuda"])
def test_strict_networks_stay(target: str) -> None:
    graph = units()
    assert as_text(FlattenPointwise(target)(graph)) == as_text(graph)


@pytest.mark.parametrize("op", ["nn.bias_add", "nn.prelu"])
def test_what_has_an_argument_for_each_channel_follows(op: str) -> None:
    make = Layers(np.random.default_rng(0), "NHWC", "float16")
    x = make.input(2, 5, 7, 8)
    conv = call("nn.conv2d", x, make.draw(1, 1, 8, 4), data_layout="NHWC", kernel_layout="HWIO")
    graph = Function((x,), call(op, conv, make.draw(4), axis=3))
    made = FlattenPointwise("cuda")(graph)
    assert [n.shape for n in calls(made, op)] == [(1, 1, 70, 4)]
    inputs = {"data": np.random.default_rng(1).standard_normal(x.shape).astype("float16")}
    assert np.array_equal(reference.run(made, inputs), reference.run(graph, inputs))


def test_what_does_not_suit_stays() -> None:
    """One row of one image, a window, a stride, groups; and a sum with rows of its own is read where it lies."""
    make = Layers(np.random.default_rng(0), "NHWC", "float16")
    for size, window, attrs in (
        ((1, 1, 7, 8), (1, 1, 8, 4), {}),
        ((2, 5, 7, 8), (3, 3, 8, 4), {}),
        ((2, 5, 7, 8), (1, 1, 8, 4), {"strides": (2, 2)}),
        ((2, 5, 7, 8), (1, 1, 8, 4), {"padding": (1, 1, 1, 1)}),
        ((2, 5, 7, 8), (1, 1, 2, 4), {"groups": 4}),
    ):
        x = make.input(*size)
        conv = call("nn.conv2d", x, make.draw(*window), data_layout="NHWC", kernel_layout="HWIO", **attrs)
        assert as_text(FlattenPointwise("cuda")(Function((x,), conv))) == as_text(Function((x,), conv))
    x = make.input(2, 5, 7, 8)
    conv = call("nn.conv2d", x, make.draw(1, 1, 8, 4), data_layout="NHWC", kernel_layout="HWIO")
    of_rows = Constant(np.arange(5, dtype="float16").reshape(5, 1, 1))
    (added,) = calls(FlattenPointwise("cuda")(Function((x,), call("add", conv, of_rows))), "add")
    assert added.shape == (2, 5, 7, 4)
