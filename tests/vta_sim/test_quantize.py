"""Quantised networks: the rules of fixed-point numbers, and a whole network against plain NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relay_lite as relay
from relay_lite import reference
from relay_lite.ir.errors import GraphError
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Call, Expr, Function
from relay_lite.ir.visit import free_vars, post_order
from relay_lite.quantize import fixed_point
from relay_lite.quantize.fixed_point import Fixed
from relay_lite.testing import resnet_v1
from tests.amount import some
from tests.nonempty import nonempty
from tests.relay_lite.op_case import check

from .networks import PlainResnet, images, quantized, resnet, with_int8


def value_of(e: Expr, **inputs: np.ndarray) -> Any:
    return reference.run(Function(free_vars(e), e), inputs)


def convs(function: Function) -> list[str]:
    """The dtypes of the data of all convolutions, in execution order."""
    calls = [n for n in post_order(function.body) if isinstance(n, Call) and n.op.name == "nn.conv2d"]
    return [c.args[0].dtype for c in calls]


# ------------------------------------------------------------------------------------------- fixed-point numbers


@pytest.mark.parametrize(("unit", "to"), [(-12, -4), (-5, -4), (-4, -4), (-2, -4), (-14, 1), (0, -1)])
def test_rescaling_rounds_to_the_nearest_and_ties_go_up(unit: int, to: int) -> None:
    rng = np.random.default_rng(unit + 99)
    limit = 1 << 20
    acc = np.concatenate([rng.integers(-limit, limit, 999), np.arange(-300, 300)]).astype("int32")
    x = relay.var("x", acc.shape, "int32")
    made = fixed_point.to_int8(Fixed(x, unit, limit), to)
    got = value_of(made.expr, x=acc)
    shift = to - unit
    want = [(2 * int(a) + (1 << shift)) // (2 << shift) if shift > 0 else int(a) << -shift for a in acc]
    assert got.dtype == "int8" and made.exponent == to
    np.testing.assert_array_equal(got, np.clip(want, -127, 127))


def test_floats_become_the_nearest_int8_number() -> None:
    rng = np.random.default_rng(3)
    data = np.concatenate([rng.uniform(-12, 12, 500), [0.0, 7.9375, 7.97, -8.0, 1e9, -1e9]]).astype("float32")
    made = fixed_point.from_float(relay.var("x", data.shape), -4)
    got = value_of(made.expr, x=data).astype("float64") / 16
    inside = np.abs(data) <= 127 / 16
    assert np.abs(got - data)[inside].max() <= 1 / 32
    np.testing.assert_array_equal(got[~inside], np.sign(data[~inside]) * 127 / 16)
    back = value_of(fixed_point.to_float(made), x=data)
    assert back.dtype == "float32"
    np.testing.assert_array_equal(back, got)


@pytest.mark.parametrize("top", [1e-30, 3e-5, 0.25, 0.2500001, 0.9, 1.0, 77.0])
def test_a_weight_has_a_power_of_two_as_its_largest_magnitude(top: float) -> None:
    values = np.float32(top) * np.random.default_rng(1).uniform(-1, 1, (8, 4, 3, 3)).astype("float32")
    values[0, 0, 0, 0] = -top
    weight, exponent = fixed_point.weight(values)
    whole = 2.0 ** (exponent + 7)
    assert whole / 2 < np.abs(values).max() <= whole
    error = np.abs(weight.value * 2.0**exponent - values.astype("float64"))
    clipped = np.abs(values) > 127 * 2.0**exponent
    assert error[~clipped].max() <= 2.0 ** (exponent - 1) and error.max() <= 2.0**exponent
    assert weight.value.min() >= -127


def test_a_weight_of_zeros_stays_zero() -> None:
    weight, exponent = fixed_point.weight(np.zeros((2, 2, 1, 1), "float32"))
    assert not weight.value.any() and exponent == -7


@pytest.mark.parametrize("unit", [-25, -14, -9, -3])
def test_a_bias_has_eight_bits_and_the_unit_of_the_accumulators(unit: int) -> None:
    values = np.random.default_rng(2).normal(0, 0.3, (64, 1, 1)).astype("float32")
    bias = fixed_point.bias(values, unit)
    own = max(unit, int(np.ceil(np.log2(np.abs(values).max()))) - 7)
    assert bias.value.dtype == "int32" and not (bias.value % (1 << own - unit)).any()
    error = np.abs(bias.value * 2.0**unit - values.astype("float64"))
    assert error.max() <= 2.0**own and np.median(error) <= 2.0 ** (own - 1)


def test_scales_too_far_apart_are_refused() -> None:
    with pytest.raises(GraphError, match=r"bias: its magnitude must stay below 2\*\*31"):
        fixed_point.bias(np.array([1.0], "float32"), -32)
    with pytest.raises(GraphError, match="rescaling"):
        fixed_point.to_int8(Fixed(relay.var("x", (1,), "int32"), 20, 1 << 20), -4)


@pytest.mark.parametrize("amount", [0, 1, 8, 30])
def test_shifts_are_floored_quotients_and_products_that_wrap(amount: int) -> None:
    low, high = -(1 << 31), (1 << 31) - 1
    data = np.array([low, low + 1, -257, -256, -1, 0, 1, 255, 1 << 20, high], "int32")
    x = relay.var("x", data.shape, "int32")
    (down,) = check(relay.right_shift(x, amount), {"x": data})
    assert down.tolist() == [int(v) // 2**amount for v in data]
    up = relay.left_shift(x, relay.const(amount)).op.numpy([data], {"amount": amount})
    assert up.tolist() == [(int(v) * 2**amount - low) % (1 << 32) + low for v in data]
    check(relay.left_shift(relay.var("x", (3,), "int32"), amount), {"x": np.array([-1, 0, 1], "int32")})


@pytest.mark.parametrize("amount", [-1, 31, 2.5, None])
def test_impossible_shifts_are_refused(amount: Any) -> None:
    with pytest.raises(GraphError, match="amount must be"):
        relay.right_shift(relay.var("x", (3,), "int32"), amount)
    with pytest.raises(GraphError, match="int32 is needed"):
        relay.left_shift(relay.var("x", (3,)), 1)
    with pytest.raises(GraphError, match="scalar constant"):
        relay.left_shift(relay.var("x", (3,), "int32"), relay.var("n", (), "int32"))


# ----------------------------------------------------------------------------------------------------- settings


def test_settings_nest_and_are_left() -> None:
    current = relay.quantize.QConfig.current
    assert (current().global_scale, current().skip_conv_layers) == (8.0, (0,))
    with relay.quantize.qconfig(global_scale=4.0, skip_conv_layers=None):
        assert current().exponent == -5 and current().skip_conv_layers == ()
        with pytest.raises(RuntimeError), relay.quantize.qconfig(skip_conv_layers=[1, 2]):
            assert current().exponent == -4 and current().skip_conv_layers == (1, 2)
            raise RuntimeError
        assert current().exponent == -5
    assert current().exponent == -4


@pytest.mark.parametrize("wrong", [{"global_scale": 5.0}, {"global_scale": 0.0}, {"global_scale": float("inf")},
                                   {"global_scale": -8.0}, {"skip_conv_layers": [-1]}])  # fmt: skip
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(GraphError):
        relay.quantize.qconfig(**wrong)


@pytest.mark.parametrize("skip", [None, [0], [1, 3], [0, 1, 2, 3]])
def test_the_named_convolutions_stay_float(skip: list[int] | None) -> None:
    x: Expr = relay.var("data", (1, 4, 6, 6))
    rng = np.random.default_rng(0)
    for _ in range(4):
        x = relay.nn.conv2d(x, relay.const(rng.normal(0, 0.3, (4, 4, 3, 3)).astype("float32")), padding=1)
    with relay.quantize.qconfig(skip_conv_layers=skip):
        made = relay.quantize.quantize(IRModule.from_expr(x))["main"]
    assert convs(made) == ["float32" if k in (skip or []) else "int8" for k in range(4)]
    assert made.body.dtype == "float32"


def test_a_weight_without_value_is_refused() -> None:
    net = relay.nn.conv2d(relay.var("data", (1, 4, 6, 6)), relay.var("w", (4, 4, 3, 3)))
    with relay.quantize.qconfig(skip_conv_layers=None), pytest.raises(GraphError, match="weight must be a constant"):
        relay.quantize.quantize(IRModule.from_expr(net))


# ---------------------------------------------------------------------------------------------------- networks


def small_net(rng: np.random.Generator) -> Function:
    """Everything that the walk knows: biases, an operator without integers, a residual sum, float + integers."""

    def weight(*shape: int) -> Expr:
        return relay.const(rng.normal(0, 0.15, shape).astype("float32"))

    data = relay.var("data", (2, 6, 9, 11))
    a = relay.nn.relu(relay.nn.bias_add(relay.nn.conv2d(data, weight(8, 6, 3, 3), padding=1), weight(8)))
    b = relay.nn.conv2d(relay.sigmoid(a), weight(8, 8, 1, 1))
    c = relay.nn.conv2d(relay.nn.conv2d(a, weight(8, 4, 3, 3), padding=1, groups=2), weight(8, 8, 3, 3), padding=1)
    d = relay.nn.relu(relay.add(b, c))
    e = relay.add(d, relay.tanh(a))
    body = relay.nn.dense(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(e)), weight(5, 8))
    return Function((data,), body)


def test_a_small_network_keeps_its_values() -> None:
    rng = np.random.default_rng(5)
    net = small_net(rng)
    data = rng.uniform(-1, 1, (2, 6, 9, 11)).astype("float32")
    want = reference.run(net, [data], dtype="float64")
    with relay.quantize.qconfig(global_scale=2.0, skip_conv_layers=None):
        made = relay.quantize.quantize(net)
    assert convs(made) == ["int8"] * 4
    np.testing.assert_allclose(reference.run(made, [data]), want, atol=0.02 * np.abs(want).max())


def test_compiled_integers_are_those_of_numpy() -> None:
    """The input is made of multiples of 1/16, so that nothing is rounded before the first int8 tensor."""
    rng = np.random.default_rng(6)
    x = relay.var("data", (1, 5, 7, 9))
    body: Expr = x
    for _ in range(2):
        conv = relay.nn.conv2d(body, relay.const(rng.normal(0, 0.2, (5, 5, 3, 3)).astype("float32")), padding=1)
        bias = relay.const(rng.normal(0, 0.2, (5, 1, 1)).astype("float32"))
        body = relay.nn.relu(relay.add(relay.add(conv, bias), body))
    with relay.quantize.qconfig(skip_conv_layers=None):
        made = relay.quantize.quantize(Function((x,), body))
    data = (rng.integers(-40, 40, x.shape) / 16).astype("float32")
    module = relay.graph_executor.GraphModule(relay.build(made, target="c")["default"](relay.device("c")))
    module.run(data=data)
    want = reference.run(made, [data])
    assert np.ptp(want) > 1
    np.testing.assert_array_equal(module.get_output(0).numpy(), want)


def test_resnet_is_the_published_network_on_integers() -> None:
    _, params = resnet()
    plain = PlainResnet(params)
    for image in nonempty(images(some(3, 1))):
        *int8, result = reference.run(with_int8(quantized()), {"data": image})
        want = plain.run(int8[0])
        assert len(int8) == len(want) == 1 + 19 + 8
        for got, tensor in nonempty(zip(int8, want, strict=True)):
            np.testing.assert_array_equal(got, tensor)
        assert int8[-1].std() > 3 and np.mean(np.abs(int8[-1]) == 127) < 0.05
        features = (int8[-1].astype("float64") / 16).mean((2, 3))
        logits = features @ params["fc_weight"].T + params["fc_bias"]
        np.testing.assert_allclose(result, logits, rtol=1e-5, atol=1e-5)


def test_resnet_on_integers_is_near_resnet_in_float() -> None:
    module, params = resnet()
    image = images(1)[0]
    want = reference.run(module, {"data": image}, params)
    got = reference.run(quantized(), {"data": image})
    assert np.abs(got - want).max() < 0.25 * np.ptp(want)
    assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.97


def test_resnet_34_has_its_units() -> None:
    module = IRModule({"main": resnet_v1.get_net(1, 10, 34, (3, 32, 32))})
    assert len(convs(module["main"])) == 1 + 2 * 16 + 3
    with pytest.raises(GraphError, match="depths are 18, 34"):
        resnet_v1.get_net(1, 10, 50)


@pytest.mark.parametrize("end", ["nn.global_avg_pool2d", "nn.dense"])
def test_nothing_is_quantised_behind_the_end(end: str) -> None:
    rng = np.random.default_rng(0)
    x = relay.var("data", (1, 4, 6, 6))
    weight = relay.const(rng.normal(0, 0.3, (4, 4, 1, 1)).astype("float32"))
    body: Expr = relay.nn.conv2d(relay.nn.conv2d(x, weight), weight)
    if end == "nn.dense":
        flat = relay.nn.dense(relay.nn.batch_flatten(body), relay.const(np.ones((16, 144), "float32")))
        body = relay.reshape(flat, (1, 4, 2, 2))
    else:
        body = relay.nn.global_avg_pool2d(body)
    with relay.quantize.qconfig(skip_conv_layers=None):
        made = relay.quantize.quantize(Function((x,), relay.nn.conv2d(body, weight)))
    assert convs(made) == ["int8", "int8", "float32"]
