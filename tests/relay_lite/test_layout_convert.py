"""ConvertLayout keeps the meaning of every graph, and puts transforms where they must be and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from relay_lite import transform
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call, var
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Call, Expr, Function, Tuple
from tests.relay_lite import layout_graphs
from tests.relay_lite.layout_graphs import LAYERS, LAYOUTS, chain, transforms
from tests.relay_lite.pass_graphs import Layers, assert_same_meaning, calls, function, ops, random_network, relu

OTHER = {"NCHW": "NHWC", "NHWC": "NCHW"}


def convert(graph: Function, layout: str, **more: list[str]) -> Function:
    return transform.ConvertLayout({"nn.conv2d": [layout, "default"], **more})(graph)


def folded(graph: Function) -> Function:
    return transform.FoldConstant()(graph)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_between_convolutions_keeps_its_meaning(layer: str, layout: str) -> None:
    for seed in range(6):
        graph = chain(layout, [LAYERS[layer]], np.random.default_rng(seed))
        new = convert(graph, OTHER[layout])
        assert_same_meaning(graph, new)
        assert all(c.attrs["data_layout"] == OTHER[layout] for c in calls(new, "nn.conv2d"))


@pytest.mark.parametrize("seed", range(30))
def test_random_chains_keep_their_meaning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    names = rng.choice([n for n in LAYERS if n != "cut"], 5)
    graph = chain(str(rng.choice(list(LAYOUTS))), [LAYERS[n] for n in names], rng)
    layout = calls(graph, "nn.conv2d")[0].attrs["data_layout"]
    assert_same_meaning(graph, convert(graph, OTHER[layout]))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(8))
def test_random_networks_keep_their_meaning_there_and_back(seed: int, layout: str) -> None:
    graph = random_network(np.random.default_rng(seed), 12, layout)
    there = convert(graph, OTHER[layout])
    assert_same_meaning(graph, there)
    assert_same_meaning(graph, convert(there, layout))


@pytest.mark.parametrize("layer", [n for n in LAYERS if n not in ("reshape", "drop", "squeeze", "transpose")])
def test_layouts_flow_through_the_layer(layer: str) -> None:
    """The data change their layout on the way in and on the way out, constants wherever; nothing else does."""
    for seed in range(6):
        graph = folded(convert(chain("NCHW", [LAYERS[layer]], np.random.default_rng(seed)), "NHWC"))
        assert transforms(graph) == [("NCHW", "NHWC"), ("NHWC", "NCHW")]


def test_a_chain_by_hand() -> None:
    make = Layers(np.random.default_rng(0), "NCHW")
    x = make.input(1, 3, 8, 8)
    graph = function(make.pool(relu(make.bias(make.conv(x, 4)))))
    got = convert(graph, "NHWC")
    kernel, bias = calls(graph, "nn.conv2d")[0].args[1], calls(graph, "nn.bias_add")[0].args[1]
    data = call("layout_transform", graph.params[0], src_layout="NCHW", dst_layout="NHWC")
    weight = call("layout_transform", kernel, src_layout="OIHW", dst_layout="HWIO")
    conv = call("nn.conv2d", data, weight, padding=(1, 1, 1, 1), channels=4, kernel_size=(3, 3),
                data_layout="NHWC", kernel_layout="HWIO")  # fmt: skip
    plus = call("nn.bias_add", conv, bias, axis=3)
    pool = call("nn.max_pool2d", relu(plus), pool_size=(2, 2), strides=(1, 1), layout="NHWC")
    want = call("layout_transform", pool, src_layout="NHWC", dst_layout="NCHW")
    assert same(got.body, want)


def same(a: Expr, b: Expr) -> bool:
    """Equal operators, attributes and leaves; leaves are compared by identity."""
    if not (isinstance(a, Call) and isinstance(b, Call)):
        return a is b
    alike = a.op is b.op and dict(a.attrs) == dict(b.attrs)
    return alike and all(same(x, y) for x, y in zip(a.args, b.args, strict=True))


def test_a_shared_tensor_is_transformed_once() -> None:
    make = Layers(np.random.default_rng(0), "NCHW")
    x = make.input(1, 3, 8, 8)
    y = relu(x)
    graph = folded(convert(function(call("add", make.conv(y, 4), make.conv(y, 4))), "NHWC"))
    assert transforms(graph) == [("NCHW", "NHWC"), ("NHWC", "NCHW")]


@pytest.mark.parametrize("layout, kernel", [("NHWC", "HWOI"), ("NCHW", "OIHW")])
def test_depthwise_kernels_keep_a_filter_per_channel(layout: str, kernel: str) -> None:
    make = Layers(np.random.default_rng(0), OTHER[layout])
    graph = function(make.conv(make.conv(make.input(*LAYOUTS[OTHER[layout]]), 6), 0, depthwise=True))
    new = convert(graph, layout)
    assert [c.attrs["kernel_layout"] for c in calls(new, "nn.conv2d")] == [kernel.replace("HWOI", "HWIO"), kernel]
    assert_same_meaning(graph, new)


def test_kernel_layouts_can_be_named() -> None:
    graph = chain("NCHW", [], np.random.default_rng(0))
    new = transform.ConvertLayout({"nn.conv2d": ["NHWC", "OHWI"]})(graph)
    assert {c.attrs["kernel_layout"] for c in calls(new, "nn.conv2d")} == {"OHWI"}
    assert_same_meaning(graph, new)


def test_pools_are_converted_by_themselves() -> None:
    make = Layers(np.random.default_rng(0), "NCHW")
    graph = function(make.pool(make.input(1, 3, 8, 8)))
    new = transform.ConvertLayout({"nn.max_pool2d": ["NHWC"]})(graph)
    assert calls(new, "nn.max_pool2d")[0].attrs["layout"] == "NHWC"
    assert_same_meaning(graph, new)


def test_operands_of_other_letters_are_not_mixed_up() -> None:
    """A dense result is NC for its producer and WC for the sum: its axes must not be moved by their letters."""
    make = Layers(np.random.default_rng(0), "NHWC")
    x = make.conv(make.input(1, 3, 4, 2), 5)
    wide = make.dense(var("rows", (4, 7), "float64"), 5)
    graph = function(make.conv(call("add", x, wide), 3))
    assert_same_meaning(graph, convert(graph, "NCHW"))


def test_inputs_that_a_reader_calls_otherwise_are_put_back() -> None:
    """One convolution reads NCHW data as if they were NHWC."""
    make = Layers(np.random.default_rng(0), "NCHW")
    first = make.conv(make.input(1, 3, 6, 6), 6)
    other = Layers(np.random.default_rng(1), "NHWC")
    graph = function(Tuple((other.conv(first, 4), relu(first))))
    for layout in OTHER:
        assert_same_meaning(graph, convert(graph, layout))


def test_a_graph_in_the_layout_stays_the_same_object() -> None:
    graph = chain("NHWC", [LAYERS["pool"], LAYERS["split"], LAYERS["transpose"]], np.random.default_rng(0))
    assert convert(graph, "NHWC") is graph
    assert ops(transform.AlterOpLayout("c")(graph)) == ops(graph)


def test_it_works_on_modules_in_a_sequence() -> None:
    graph = chain("NCHW", [LAYERS["pool"]], np.random.default_rng(0))
    desired = {"nn.conv2d": ["NHWC", "default"], "nn.avg_pool2d": ["NHWC"]}
    with transform.PassContext(opt_level=3):
        module = transform.Sequential([transform.ConvertLayout(desired)])(IRModule.from_expr(graph))
    assert {c.attrs["data_layout"] for c in calls(module["main"], "nn.conv2d")} == {"NHWC"}
    assert calls(module["main"], "nn.avg_pool2d")[0].attrs["layout"] == "NHWC"


@pytest.mark.parametrize(
    "desired, said",
    [
        ({"nn.softmax": ["NC"]}, "operators with layouts are"),
        ({"nn.conv2d": ["NHWC"]}, "2 layouts are needed"),
        ({"nn.max_pool2d": "NHWC"}, "1 layouts are needed"),
        ({"nn.conv2d": ["NWC", "default"]}, "a layout of the letters of NCHW is needed"),
        ({"nn.conv2d": ["NHWC", "HWIC"]}, "a layout of the letters of OIHW is needed"),
    ],
)
def test_what_cannot_be_converted_is_refused(desired: dict[str, list[str]], said: str) -> None:
    graph = chain("NCHW", [layout_graphs.pool], np.random.default_rng(0))
    with pytest.raises(GraphError, match=said):
        transform.ConvertLayout(desired)(graph)
