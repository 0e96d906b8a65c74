"""Weights are NumPy's legacy numbers, in the order of the parameters."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Function
from relay_lite.ir.visit import free_vars
from relay_lite.testing import create_workload, init, mlp, mobilenet, resnet
from tests.nonempty import nonempty


def resnet18_weights() -> list[str]:
    """The order of the convolutions and the dense layer, by hand."""
    names = ["conv0"]
    for stage in "1234":
        names += [f"stage{stage}_unit1_{part}" for part in ("conv1", "conv2", "sc")]
        names += [f"stage{stage}_unit2_{part}" for part in ("conv1", "conv2")]
    return [f"{name}_weight" for name in [*names, "fc1"]]


def xavier(shape: tuple[int, ...]) -> float:
    window = int(np.prod(shape[2:]))
    return sqrt(3 / ((shape[0] + shape[1]) * window / 2))


@pytest.mark.parametrize(("layout", "image"), [("NHWC", (40, 40, 3)), ("NCHW", (3, 40, 40))])
def test_the_numbers_of_numpy_random_seed(layout: str, image: tuple[int, ...]) -> None:
    """One stream for all weights; a weight in HWIO is drawn as if its axes were OIHW."""
    _, params = resnet.get_workload(image_shape=image, layout=layout, num_classes=11)
    assert [name for name in params if name.endswith("weight")] == resnet18_weights()
    state = np.random.get_state()
    np.random.seed(0)
    for name in resnet18_weights():
        shape = params[name].shape
        drawn = np.random.uniform(-xavier(shape), xavier(shape), shape)
        assert np.array_equal(params[name], drawn.astype("float32")), name
    np.random.set_state(state)


def test_the_parameters_of_a_unit_are_in_order() -> None:
    net = resnet.get_net(1, 1000, 18)
    names = [v.name for v in net.params]
    norm = ["gamma", "beta", "moving_mean", "moving_var"]
    unit = [f"bn1_{n}" for n in norm] + ["conv1_weight"] + [f"bn2_{n}" for n in norm] + ["conv2_weight", "sc_weight"]
    start = names.index("stage1_unit1_bn1_gamma")
    assert names[start : start + len(unit)] == [f"stage1_unit1_{name}" for name in unit]
    assert names[:6] == ["data", *(f"bn_data_{n}" for n in norm), "conv0_weight"]
    assert names[-2:] == ["fc1_weight", "fc1_bias"]


def test_golden_numbers() -> None:
    _, params = mlp.get_workload(1)
    bound = sqrt(3 / ((128 + 784) / 2))
    first = np.array([0.5488135039273248, 0.7151893663724195, 0.6027633760716439])
    assert np.array_equal(params["fc1_weight"].ravel()[:3], (-bound + 2 * bound * first).astype("float32"))
    assert not np.array_equal(create_workload(mlp.get_net(1), seed=1)[1]["fc1_weight"], params["fc1_weight"])


def test_what_is_not_a_weight_leaves_the_signal_alone() -> None:
    _, params = mobilenet.get_workload(image_shape=(3, 32, 32), num_classes=10)
    for name, value in nonempty(params.items()):
        suffix = name.rsplit("_", 1)[1]
        if suffix != "weight":
            assert (value == {"gamma": 1, "beta": 0, "mean": 0, "var": 1, "bias": 0}[suffix]).all()
        assert value.dtype == np.float32


def test_a_large_weight_is_one_stream() -> None:
    """Drawing in parts gives what one call gives, for both distributions."""
    shape = (3, (1 << 20) + 7)
    for kind, draw in (
        ("uniform", lambda r, s: r.uniform(-s, s, shape)),
        ("gaussian", lambda r, s: r.normal(0, s, shape)),
    ):
        array = np.full(shape, np.nan, np.float32)
        fill = init.Xavier(kind)
        fill("w_weight", array, np.random.RandomState(3))
        drawn = draw(np.random.RandomState(3), fill.scale("w_weight", shape))
        assert np.array_equal(array, drawn.astype(np.float32))


@pytest.mark.parametrize(("factor", "fan"), [("in", 5 * 6), ("out", 7 * 6), ("avg", 6 * 6)])
def test_xavier_fans(factor: str, fan: int) -> None:
    fill = init.Xavier(factor_type=factor, magnitude=2)
    assert fill.scale("a_weight", (7, 5, 3, 2)) == pytest.approx(sqrt(2 / fan))
    assert fill.scale("a_depthwise_weight", (7, 5, 3, 2)) == pytest.approx(sqrt(2 / 6))


def test_constant() -> None:
    _, params = create_workload(mlp.get_net(1), init.Constant())
    assert (params["fc3_weight"] == np.float32(1 / 640)).all()


def test_refusals() -> None:
    x = var("data", (2, 3))
    odd = call("add", x, var("offset", (2, 3)))
    with pytest.raises(GraphError, match="must end in weight"):
        create_workload(odd)
    with pytest.raises(GraphError, match="rank 2 or more"):
        create_workload(call("add", x, var("a_weight", (3,))))
    twice = call("add", var("a_weight", (2, 3)), var("a_weight", (2, 3)))
    with pytest.raises(GraphError, match="unique"):
        create_workload(Function(free_vars(twice), twice))
