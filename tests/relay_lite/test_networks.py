"""Every network has the parameters, the work and the shapes that its paper, or the specification, counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from relay_lite import testing
from relay_lite.ir.errors import GraphError
from relay_lite.ir.nodes import Call, Function, Var
from relay_lite.ir.types import TensorType
from relay_lite.ir.visit import post_order
from relay_lite.testing import (
    NETWORKS,
    bert,
    dcgan,
    densenet,
    dqn,
    gpt2,
    inception_v3,
    init,
    llama,
    lstm,
    mlp,
    mobilenet,
    mobilenet_v2,
    resnet,
    resnet_3d,
    squeezenet,
    vgg,
    vit,
)

PICTURE, CLIP = (224, 224, 3), (16, 112, 112, 3)


def parameters(net: Function) -> tuple[int, int]:
    """How many tensors and elements, without the input."""
    sizes = [prod(v.shape) for v in net.params if v.name != "data"]
    return len(sizes), sum(sizes)


def calls(net: Function, name: str) -> list[Call]:
    return [e for e in post_order(net.body) if isinstance(e, Call) and e.op.name == name]


def gigaflops(net: Function, *names: str) -> float:
    """The work of the operators `nn.{name}`: two for each product."""
    total = 0
    for name in names:
        for call in calls(net, f"nn.{name}"):
            data, weight = (prod(a.shape) for a in call.args)
            match name:
                case "conv2d_transpose":
                    total += 2 * data * weight // call.args[0].shape[call.attrs["data_layout"].index("C")]
                case "conv2d" | "conv3d":
                    total += 2 * prod(call.shape) * weight // call.shape[call.attrs["data_layout"].index("C")]
                case "dense":
                    total += 2 * prod(call.shape) * call.args[1].shape[1]
                case _:
                    total += 2 * prod(call.shape) * call.args[0].shape[2]
    return total / 1e9


@pytest.mark.parametrize(
    ("depth", "convs", "tensors", "elements", "work"),
    [
        (18, 21, 99, 11_699_892, 3.654),
        (34, 37, 179, 21_815_476, 7.353),
        (50, 53, 259, 25_595_060, 7.716),
    ],
)
@pytest.mark.parametrize(("layout", "image"), [("NHWC", PICTURE), ("NCHW", (3, 224, 224))])
def test_resnet(
    depth: int, convs: int, tensors: int, elements: int, work: float, layout: str, image: tuple[int, ...]
) -> None:
    net = resnet.get_net(1, 1000, depth, image, layout)
    assert len(calls(net, "nn.conv2d")) == convs
    assert parameters(net) == (tensors, elements)
    assert gigaflops(net, "conv2d", "dense") == pytest.approx(work, abs=5e-4)


def test_resnet_shapes_by_stage() -> None:
    net = resnet.get_net(2, 1000, 18, PICTURE, "NHWC")
    sides = [c.shape[1] for c in calls(net, "nn.conv2d")]
    assert sides == [112] + [56] * 5 + [28] * 5 + [14] * 5 + [7] * 5
    (pool,) = calls(net, "nn.max_pool2d")
    assert pool.shape == (2, 56, 56, 64)
    assert net.body.type == TensorType((2, 1000))


@pytest.mark.parametrize(("depth", "units"), [(101, 33), (152, 50), (200, 66), (269, 89)])
def test_deep_resnets_are_stacks_of_three_convolutions(depth: int, units: int) -> None:
    net = resnet.get_net(1, 1000, depth)
    assert len(calls(net, "nn.conv2d")) == 1 + 3 * units + 4
    assert depth == 3 * units + 2


@pytest.mark.parametrize(
    ("depth", "side", "convs", "widest"), [(20, 28, 22, 64), (164, 28, 166, 256), (18, 32, 21, 512)]
)
def test_small_images(depth: int, side: int, convs: int, widest: int) -> None:
    """Up to height 28 there are three stages; up to 32 the stem is one 3x3 convolution."""
    net = resnet.get_net(3, 10, depth, (side, side, 3), "NHWC")
    found = calls(net, "nn.conv2d")
    assert (len(found), found[-1].shape[-1], found[0].attrs["kernel_size"]) == (convs, widest, (3, 3))
    assert found[0].shape[1:3] == (side, side)
    assert not calls(net, "nn.max_pool2d")


@pytest.mark.parametrize(("layout", "image"), [("NDHWC", CLIP), ("NCDHW", (3, 16, 112, 112))])
def test_resnet_3d(layout: str, image: tuple[int, ...]) -> None:
    net = resnet_3d.get_net(1, 1000, 18, image, layout)
    spatial = slice(1, 4) if layout == "NDHWC" else slice(2, 5)
    shapes = [c.shape[spatial] for c in calls(net, "nn.conv3d")]
    sizes = [(16, 56, 56)] * 6 + [(8, 28, 28)] * 5 + [(4, 14, 14)] * 5 + [(2, 7, 7)] * 5
    assert shapes == sizes
    assert not calls(net, "nn.max_pool3d")
    assert all(c.attrs["axis"] == 1 for c in calls(net, "nn.batch_norm"))
    assert net.body.type == TensorType((1, 1000))


def test_mobilenet() -> None:
    first, last = mobilenet.get_net(), mobilenet.get_net(image_shape=PICTURE, layout="NHWC")
    assert parameters(first) == (137, 4_253_864)
    assert parameters(last) == (137, 4_253_864 + 4 * (112 - 32))
    for net in (first, last):
        assert gigaflops(net, "conv2d") == pytest.approx(1.135, abs=5e-4)
    sides = [c.shape[2] for c in calls(last, "nn.conv2d")]
    assert sides == [112] * 3 + [56] * 4 + [28] * 4 + [14] * 12 + [7] * 4
    depthwise = [c.args[1].shape for c in calls(last, "nn.conv2d") if c.attrs["groups"] > 1]
    assert len(depthwise) == 13 and depthwise[0] == (3, 3, 32, 1)
    shallow = mobilenet.get_net(is_shallow=True, alpha=0.5, num_classes=10)
    assert [c.shape[1:] for c in calls(shallow, "nn.conv2d")][-1] == (512, 4, 4)
    assert len(calls(shallow, "nn.conv2d")) == 1 + 2 * 8


@pytest.mark.parametrize(
    ("version", "elements", "pooled"), [("1.0", 1_248_424, [96, 256, 512]), ("1.1", 1_235_496, [64, 128, 256])]
)
def test_squeezenet(version: str, elements: int, pooled: list[int]) -> None:
    net = squeezenet.get_net(1, (3, 224, 224), 1000, version)
    assert parameters(net) == (52, elements)
    assert [c.shape[1] for c in calls(net, "nn.max_pool2d")] == pooled
    if version == "1.1":
        assert gigaflops(net, "conv2d") == pytest.approx(0.699, abs=5e-4)
        assert [c.shape[2] for c in calls(net, "nn.max_pool2d")] == [55, 27, 13]


def test_inception() -> None:
    net = inception_v3.get_net(1, 1000, (3, 299, 299), "float32")
    assert parameters(net) == (472, 23_869_000)
    assert gigaflops(net, "conv2d", "dense") == pytest.approx(11.426, abs=5e-4)
    kernels = {str(c.args[1]): c.attrs["kernel_size"] for c in calls(net, "nn.conv2d")}
    for block in "4567":
        tower = [kernels[f"%mixed_{block}_tower_1_conv{part}_conv1_weight"] for part in ("", "_1", "_2", "_3", "_4")]
        assert tower == [(1, 1), (7, 1), (1, 7), (7, 1), (1, 7)]
    pools = [c.op.name[3:6] for c in post_order(net.body) if isinstance(c, Call) and "pool" in c.op.name]
    assert pools == ["max"] * 2 + ["avg"] * 3 + ["max"] + ["avg"] * 4 + ["max", "avg", "max", "avg"]
    channels = [c.shape[1:3] for c in calls(net, "concatenate")]
    assert channels == [(256, 35), *[(288, 35)] * 2, *[(768, 17)] * 5, (1280, 8), *[(2048, 8)] * 2]


@pytest.mark.parametrize(
    ("depth", "elements", "norms"),
    [(11, 132_863_336, 2752), (13, 133_047_848, 2944), (16, 138_357_544, 4224), (19, 143_667_240, 5504)],
)
def test_vgg(depth: int, elements: int, norms: int) -> None:
    net = vgg.get_net(1, PICTURE, 1000, "float32", depth, layout="NHWC")
    assert parameters(net) == (2 * depth, elements)
    normed = vgg.get_net(1, (3, 224, 224), 1000, "float32", depth, batch_norm=True)
    assert parameters(normed) == (2 * depth + 4 * (depth - 3), elements + 4 * norms)
    if depth == 16:
        assert gigaflops(net, "conv2d", "dense") == pytest.approx(30.94, abs=0.01)


@pytest.mark.parametrize(("depth", "final"), [(121, 512), (161, 24 * 48), (169, 1024), (201, 1024)])
def test_densenet(depth: int, final: int) -> None:
    net = densenet.get_net(depth)
    assert len(calls(net, "nn.conv2d")) == depth - 1
    dense, pools = calls(net, "nn.dense")[0], calls(net, "nn.avg_pool2d")
    assert dense.args[1].shape == (1000, final)
    assert [p.shape[2] for p in pools] == [28, 14, 7, 1]
    if depth == 121:
        assert [p.shape[1] for p in pools] == [128, 256, 512, 512]
    assert net.body.type == TensorType((4, 1000))


def test_dcgan() -> None:
    for layout, shape in (("NCHW", (3, 64, 64)), ("NHWC", (64, 64, 3))):
        net = dcgan.get_net(5, oshape=shape, layout=layout)
        elements = 100 * 16384 + 16 * (1024 * 512 + 512 * 256 + 256 * 128 + 128 * 3) + 4 * (512 + 256 + 128)
        assert parameters(net) == (17, elements)
        assert gigaflops(net, "dense", "conv2d_transpose") == pytest.approx(5 * 0.822, rel=0.01)
        assert net.body.type == TensorType((5, *shape))


def test_small_ones() -> None:
    assert parameters(mlp.get_net(1)) == (6, 784 * 128 + 128 + 128 * 64 + 64 + 64 * 10 + 10)
    assert parameters(dqn.get_net(1)) == (10, 1_693_362)
    assert dqn.get_net(7, image_shape=(84, 84, 4), layout="NHWC").body.type == TensorType((7, 18))
    assert parameters(lstm.get_net(3, 5)) == (12, 3 * 2 * (4 * 5 * 5 + 4 * 5))


def test_bert() -> None:
    net = bert.get_net()
    layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    assert parameters(net) == (12 * 16, 12 * layer)
    assert 12 * layer == 85_054_464
    assert gigaflops(net, "dense", "batch_matmul") == pytest.approx(22.35, abs=0.01)
    whole = bert.get_net(batch_size=2, vocab_size=30522)
    inputs = {v.name: (v.shape, v.dtype) for v in whole.params if v.name in bert.INPUTS}
    ids = ((2, 128), "int32")
    assert inputs == {"data": ids, "segments": ids, "mask": ((2, 128), "float32")}
    assert whole.body.type == TensorType((2, 128, 768))


@pytest.mark.parametrize(
    ("net", "elements", "work"),
    [
        (mobilenet_v2.get_net, 3_504_872, 0.30),
        (vit.get_net, 86_567_656, 17.56),
        (partial(vit.get_net, hidden=192, num_heads=3), 5_717_416, None),
        (gpt2.get_net, 124_439_808, None),
        (llama.get_net, 134_515_008, None),
    ],
)
def test_published_figures(net: Callable[[], Function], elements: int, work: float | None) -> None:
    """The parameters that are learnt, and 1e9 products, as torchvision, timm (DeiT) and transformers count them."""
    made = net()
    learnt = [v for v in made.params if v.name != "data" and "_moving_" not in v.name]
    assert sum(prod(v.shape) for v in learnt) == elements
    if work is not None:
        assert gigaflops(made, "conv2d", "dense", "batch_matmul") / 2 == pytest.approx(work, abs=6e-3)


NAMES = ["resnet-18", "resnet-34", "resnet-50", "resnet3d-18", "mobilenet", "squeezenet_v1.1", "inception_v3", "vgg-16"]
NAMES += ["densenet-121", "dcgan", "mlp", "bert-base", "squeezenet_v1.0", "lstm", "dqn"]
SMALL: dict[str, dict[str, Any]] = {
    "bert-base": {"seq_len": 8, "num_layers": 1, "hidden": 24, "num_heads": 3, "ffn": 40},
    "vit_b_16": {"image_shape": (32, 48, 3), "num_layers": 1, "hidden": 24, "num_heads": 3},
    "deit_tiny": {"image_shape": (32, 16, 3), "num_layers": 1},
    "gpt2": {"seq_len": 8, "num_layers": 1, "hidden": 24, "num_heads": 3, "vocab_size": 50, "max_positions": 9},
    "llama-135m": {"seq_len": 8, "num_layers": 1, "hidden": 24, "num_heads": 6, "num_key_heads": 3, "ffn": 40,
                   "vocab_size": 50},
}  # fmt: skip
NAMES += ["mobilenet_v2", *list(SMALL)[1:]]


def small(name: str) -> dict[str, Any]:
    """Options that make a network cheap."""
    sides = {"inception_v3": 75, "dcgan": 16, "dqn": 36, "resnet-18": 40}.get(name, 32)
    match name:
        case "mlp" | "lstm":
            return {}
        case _ if name in SMALL:
            return SMALL[name]
        case "resnet3d-18":
            return {"image_shape": (4, sides, sides, 3)}
        case _:
            return {"image_shape": (sides, sides, 4 if name == "dqn" else 3)}


@pytest.mark.parametrize("name", NAMES)
def test_by_name(name: str) -> None:
    """Every name works with the default layout, and its parameters are those of the function."""
    graph, params = testing.get_workload(name, batch_size=2, **small(name))
    main = graph["main"]
    assert [v.name for v in main.params if v.name not in params] == ["data"]
    assert all(params[v.name].shape == v.shape for v in main.params if v.name in params)
    data = next(v for v in main.params if v.name == "data")
    assert data.shape[0] == 2 and main.body.shape[0] == 2
    if "image_shape" in small(name) and name != "dcgan":
        assert data.shape[1:] == small(name)["image_shape"]


def test_every_name_is_documented() -> None:
    """In full, or as the first of a family with its depth behind."""
    text = (Path(__file__).parents[2] / "docs" / "networks.md").read_text()
    for name in NETWORKS:
        family, _, depth = name.rpartition("-")
        assert f"`{name}`" in text or (f"`{family}-" in text and f"`-{depth}`" in text), name


@pytest.mark.parametrize("name", NAMES)
def test_half_floats(name: str) -> None:
    """Every network is defined for float16, all of it, but for tokens."""
    with patch.object(init.Xavier, "weight", lambda self, name, array, rng: None):
        graph, params = testing.get_workload(name, dtype="float16", **small(name))
    assert {str(value.dtype) for value in params.values()} == {"float16"} and graph["main"].body.dtype == "float16"


def test_the_layout_is_the_one_that_is_asked_for() -> None:
    def data(name: str, **options: Any) -> Var:
        graph, _ = testing.get_workload(name, **options)
        return next(v for v in graph["main"].params if v.name == "data")

    assert data("squeezenet_v1.1").shape == (1, 224, 224, 3)
    assert data("squeezenet_v1.1", layout="NCHW").shape == (1, 3, 224, 224)
    assert data("resnet3d-18", layout="NCHW").shape == (1, 3, 16, 112, 112)
    assert data("resnet3d-18", layout="NDHWC").shape == (1, *CLIP)
    assert data("dcgan", layout="NCHW").shape == (1, 100)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet18", {}, "network: did you mean resnet-18\\? networks are resnet-18, .* got name='resnet18'"),
        ("abacus", {}, "network: networks are resnet-18, .* got name='abacus'"),
        ("resnet-18", {"layout": "NWHC"}, "layouts are NHWC and NCHW"),
        ("resnet-18", {"layout": "NDHWC"}, "layouts are NHWC and NCHW"),
        ("resnet-18", {"image_shape": (28, 28, 3)}, "6n \\+ 2 layers"),
        ("resnet-18", {"image_shape": (28, 28)}, "an image has the axes HWC"),
        ("inception_v3", {"image_shape": (74, 75, 3)}, "at least 75"),
        ("squeezenet_v1.1", {"image_shape": (28, 64, 3)}, "at least 29"),
        ("vgg-16", {"image_shape": (31, 32, 3)}, "at least 32"),
        ("densenet-121", {"image_shape": (28, 32, 3)}, "at least 29"),
        ("dcgan", {"image_shape": (24, 32, 3)}, "multiples of 16"),
        ("bert-base", {"image_shape": (224, 224, 3)}, "no image"),
        ("bert-base", {"num_heads": 5}, "divides"),
        ("gpt2", {"seq_len": 1025}, "at most 1024 tokens"),
        ("llama-135m", {"num_key_heads": 4}, "key heads divides"),
        ("llama-135m", {"num_heads": 64, "num_key_heads": 64}, "even width"),
        ("vit_b_16", {"image_shape": (40, 32, 3)}, "multiples of 16"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        testing.get_workload(name, **options)


@pytest.mark.parametrize(
    ("build", "side"),
    [
        (lambda s: inception_v3.get_net(1, 3, (3, s, s), "float32"), 75),
        (lambda s: squeezenet.get_net(1, (3, s, s), 3, "1.1"), 29),
        (lambda s: squeezenet.get_net(1, (3, s, s), 3, "1.0"), 29),
        (lambda s: vgg.get_net(1, (3, s, s), 3, "float32"), 32),
        (lambda s: densenet.get_net(121, 3, 1, (3, s, s)), 29),
        (lambda s: dqn.get_net(1, 3, (4, s, s)), 36),
    ],
    ids=["inception", "squeezenet-1.1", "squeezenet-1.0", "vgg", "densenet", "dqn"],
)
def test_the_smallest_image_is_the_smallest(build: Callable[[int], Function], side: int) -> None:
    assert build(side).body.shape[1] == 3
    with pytest.raises(GraphError, match=f"at least {side}"):
        build(side - 1)
