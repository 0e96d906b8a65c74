"""A network in NHWC is the network in NCHW: the same weights, their axes turned, give the same values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from relay_lite import reference
from relay_lite.testing import (
    dcgan,
    densenet,
    dqn,
    inception_v3,
    mobilenet,
    mobilenet_v2,
    resnet,
    resnet_3d,
    squeezenet,
    vgg,
    vit,
)
from relay_lite.testing.init import Workload
from relay_lite.testing.live import before_softmax, live_params

_TURN = {4: (2, 3, 1, 0), 5: (2, 3, 4, 1, 0)}
_LAST = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


def turned(name: str, value: np.ndarray) -> np.ndarray:
    """A weight of an NCHW network as the NHWC network wants it."""
    if value.ndim < 4:
        return value
    depthwise = "depthwise" in name or (name.startswith("separable_conv_block") and "conv2" not in name)
    return value.transpose((2, 3, 0, 1) if depthwise else _TURN[value.ndim])


def agree(first: Workload, last: Workload, fixed: str = "") -> None:
    """Both networks give the same for two pictures, and not the same for both pictures.

    A norm with `fixed` in its name works on another axis in the second network; its vectors are constant there.
    """
    rng = np.random.default_rng(7)
    graph, params = first[0], live_params(first[0], first[1], rng, fixed)
    shape = next(v.shape for v in graph["main"].params if v.name == "data")
    image = rng.uniform(-1, 1, shape).astype("float32")
    expected = np.asarray(reference.run(before_softmax(graph), {"data": image}, params))
    keep = {name for name in params if fixed and fixed in name and not name.endswith("weight")}
    mirrored = {name: last[1][name] if name in keep else turned(name, value) for name, value in params.items()}
    got = np.asarray(reference.run(before_softmax(last[0]), {"data": image.transpose(_LAST[image.ndim])}, mirrored))
    assert expected.shape == got.shape == (2, 7)
    assert np.abs(expected[0] - expected[1]).max() > 1e-3 * np.abs(expected).max()
    np.testing.assert_allclose(got, expected, atol=1e-5 * np.abs(expected).max())


Build = Callable[[str, tuple[int, int]], Workload]


def _image(layout: str, size: tuple[int, int], channels: int = 3) -> tuple[int, ...]:
    return (channels, *size) if layout == "NCHW" else (*size, channels)


VIT = {"hidden": 24, "num_heads": 3, "num_layers": 1, "patch": 8}
CASES: dict[str, tuple[Build, tuple[int, int], str]] = {
    "resnet-18": (lambda x, s: resnet.get_workload(2, 7, 18, _image(x, s), x), (40, 33), ""),
    "resnet-50": (lambda x, s: resnet.get_workload(2, 7, 50, _image(x, s), x), (31, 40), ""),
    "resnet-20": (lambda x, s: resnet.get_workload(2, 7, 20, _image(x, s), x), (19, 22), ""),
    "mobilenet": (lambda x, s: mobilenet.get_workload(2, 7, _image(x, s), layout=x), (33, 40), "conv_block_1_bn"),
    "squeezenet": (lambda x, s: squeezenet.get_workload(2, 7, "1.1", _image(x, s), layout=x), (37, 45), ""),
    "inception": (lambda x, s: inception_v3.get_workload(2, 7, _image(x, s), layout=x), (75, 83), ""),
    "densenet": (lambda x, s: densenet.get_workload(121, 7, 2, _image(x, s), layout=x), (33, 37), ""),
    "vgg": (lambda x, s: vgg.get_workload(2, 7, _image(x, s), batch_norm=True, layout=x), (32, 39), ""),
    "dqn": (lambda x, s: dqn.get_workload(2, 7, _image(x, s, 4), layout=x), (36, 39), ""),
    "mobilenet v2": (lambda x, s: mobilenet_v2.get_workload(2, 7, _image(x, s), layout=x), (33, 40), ""),
    "vit": (lambda x, s: vit.get_workload(2, 7, _image(x, s), layout=x, **VIT), (16, 24), ""),
}


MARKS = dict.fromkeys(("mobilenet v2",), pytest.mark.long) | dict.fromkeys(
    ("densenet", "inception", "resnet-50", "resnet-20", "vgg"), pytest.mark.slow
)


@pytest.mark.parametrize("name", [pytest.param(n, marks=MARKS.get(n, ())) for n in CASES])
def test_layouts_agree(name: str) -> None:
    build, size, fixed = CASES[name]
    agree(build("NCHW", size), build("NHWC", size), fixed)


@pytest.mark.long
def test_clips_agree() -> None:
    clips = resnet_3d.get_workload(2, 7, 18, (3, 4, 36, 34)), resnet_3d.get_workload(2, 7, 18, (4, 36, 34, 3), "NDHWC")
    agree(*clips, fixed="bn")


def test_pictures_of_a_generator_agree() -> None:
    rng = np.random.default_rng(9)
    graph, params = dcgan.get_workload(2, (3, 32, 48), ngf=8)
    params = live_params(graph, params, rng)
    last, _ = dcgan.get_workload(2, (32, 48, 3), ngf=8, layout="NHWC")
    code = rng.uniform(-1, 1, (2, 100)).astype("float32")
    expected = reference.run(graph, {"data": code}, params)
    rows = params["dense_weight"].reshape(64, 2, 3, 100).transpose(1, 2, 0, 3).reshape(-1, 100)
    mirrored = {name: turned(name, value) for name, value in params.items()} | {"dense_weight": rows}
    got = reference.run(last, {"data": code}, mirrored)
    assert expected.shape == (2, 3, 32, 48) and np.abs(expected).max() > 1e-2
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), expected, atol=1e-5 * np.abs(expected).max())
