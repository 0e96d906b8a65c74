"""AlterOpLayout: small operands get the rank of the large one, and winograd stands where a target prefers it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relay_lite import transform
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Call, Constant, Expr, Function, Tuple
from relay_lite.transform.alter_op_layout import winograd_tile
from tests.relay_lite.layout_graphs import LAYOUTS, transforms
from tests.relay_lite.pass_graphs import Layers, assert_same_meaning, calls, function, ops, random_network, relu

WINOGRAD = "nn.contrib_conv2d_winograd_without_weight_transform"


def altered(graph: Function, target: str = "c") -> Function:
    return transform.FoldConstant()(transform.AlterOpLayout(target)(graph))


def operand(graph: Function, name: str = "add") -> tuple[int, ...]:
    """The shape of the second argument of the only call of an operator."""
    (node,) = calls(graph, name)
    return node.args[1].shape


# ---------------------------------------------------------------------------------------------- the rank rule


@pytest.mark.parametrize("layout, shape, raised", [
    ("NHWC", (4,), (1, 1, 1, 4)),
    ("NHWC", (6, 1), (1, 1, 6, 1)),
    ("NHWC", (8, 1, 4), (1, 8, 1, 4)),
    ("NHWC", (1, 1, 1, 4), (1, 1, 1, 4)),
    ("NHWC", (), ()),
    ("NHWC", (1,), (1,)),
    ("NHWC", (1, 1, 1), (1, 1, 1)),
    ("NCHW", (4, 1, 1), (1, 4, 1, 1)),
    ("NCHW", (6,), (1, 1, 1, 6)),
])  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_operands_of_convolution_results_get_full_rank(
    layout: str, shape: tuple[int, ...], raised: tuple[int, ...], first: bool
) -> None:
    make = Layers(np.random.default_rng(0), layout)
    conv = make.conv(make.input(*LAYOUTS[layout]), 4)
    small = make.draw(*shape)
    args = (small, conv) if first else (conv, small)
    graph = function(relu(call("add", *args)))
    new = altered(graph)
    (node,) = calls(new, "add")
    assert node.args[0 if first else 1].shape == raised
    assert transforms(new) == []
    assert_same_meaning(graph, new)


def test_the_rank_is_raised_by_expand_dims_at_the_front() -> None:
    make = Layers(np.random.default_rng(0), "NHWC")
    bias = var("bias", (4,), "float64")
    graph = function(call("add", make.conv(make.input(1, 5, 5, 3), 4), bias))
    (node,) = calls(transform.AlterOpLayout("c")(graph), "add")
    raised = node.args[1]
    assert isinstance(raised, Call) and raised.op.name == "expand_dims"
    assert dict(raised.attrs) == {"axis": 0, "num_newaxis": 3} and raised.args == (bias,)


def test_layouts_are_born_at_dense_and_pools_too() -> None:
    make = Layers(np.random.default_rng(0), "NHWC")
    dense = function(call("add", make.dense(var("data", (3, 7), "float64"), 5), make.draw(5)))
    assert operand(altered(dense)) == (1, 5)
    pool = function(call("add", make.pool(make.input(1, 6, 6, 4)), make.draw(4)))
    assert operand(altered(pool)) == (1, 1, 1, 4)


def test_layouts_flow_through_what_stands_between() -> None:
    make = Layers(np.random.default_rng(0), "NCHW")
    conv = make.conv(make.input(2, 3, 6, 6), 4)
    x = call(
        "concatenate",
        Tuple((relu(conv), make.pool(call("nn.pad", conv, pad_width=((0, 0), (0, 0), (0, 1), (0, 1)))))),
        axis=1,
    )
    assert operand(altered(function(call("add", x, make.draw(8, 1, 1))))) == (1, 8, 1, 1)
    turned = call("transpose", conv, axes=(0, 2, 3, 1))
    assert operand(altered(function(call("add", turned, make.draw(4))))) == (1, 1, 1, 4)


@pytest.mark.parametrize("where", ["before", "reshape"])
def test_what_has_no_known_layout_is_left_alone(where: str) -> None:
    make = Layers(np.random.default_rng(0), "NHWC")
    data = make.input(1, 6, 6, 3)
    shift = make.draw(3)
    if where == "before":
        graph = function(make.conv(call("add", data, shift), 4))
    else:
        graph = function(call("add", call("reshape", make.conv(data, 3), newshape=(1, 36, 3)), shift))
    new = transform.AlterOpLayout("c")(graph)
    assert new is graph and operand(new) == (3,)


def test_batch_norm_over_another_axis() -> None:
    """The first convolution of MobileNet in NHWC is normalised over its rows."""
    make = Layers(np.random.default_rng(0), "NHWC")
    conv = make.conv(make.input(1, 6, 6, 3), 4)
    graph = function(relu(call("add", call("multiply", conv, make.draw(6, 1, 1)), make.draw(6, 1, 1))))
    new = altered(graph)
    assert operand(new, "add") == operand(new, "multiply") == (1, 6, 1, 1)
    assert_same_meaning(graph, new)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", range(8))
def test_random_networks_keep_their_meaning(seed: int, layout: str) -> None:
    graph = random_network(np.random.default_rng(100 + seed), 12, layout)
    for target in ("c", "cuda"):
        assert_same_meaning(graph, altered(graph, target), 1e-8)


# ------------------------------------------------------------------------------------------------- winograd


def conv(height: int, ci: int, co: int, **attrs: Any) -> Call:
    made = {"padding": (1, 1, 1, 1), "data_layout": "NHWC", "kernel_layout": "HWIO", "size": 3, **attrs}
    size = made.pop("size")
    dtype = made.pop("dtype", "float32")
    data, kernel = var("data", (1, height, height, ci), dtype), var("kernel", (size, size, ci, co), dtype)
    return call("nn.conv2d", data, kernel, **made)


@pytest.mark.parametrize("node, c, cuda", [
    (conv(56, 64, 64), 4, 4),
    (conv(28, 128, 128), 4, 2),
    (conv(14, 256, 256), 2, 2),
    (conv(28, 512, 512), 4, 2),
    (conv(7, 512, 512), None, 2),
    (conv(56, 3, 64), None, 4),
    (conv(56, 15, 64), None, 4),
    (conv(56, 16, 31), None, 4),
    (conv(56, 16, 32), 4, 4),
    (conv(16, 32, 511, padding=(0, 0, 0, 0)), 2, 4),
    (conv(14, 32, 100, padding=(2, 1, 0, 1)), 4, 2),
    (conv(8, 3, 128, strides=(2, 2)), None, None),
    (conv(8, 3, 128, strides=(1, 2)), None, None),
    (conv(8, 3, 128, dilation=(2, 2)), None, None),
    (conv(8, 3, 128, size=1), None, None),
    (conv(8, 3, 128, size=5), None, None),
    (conv(8, 3, 128, dtype="int8"), None, None),
    (conv(56, 64, 128, dtype="float64"), 4, 4),
])  # fmt: skip
def test_where_winograd_is_chosen(node: Call, c: int | None, cuda: int | None) -> None:
    assert (winograd_tile(node, "c"), winograd_tile(node, "cuda")) == (c, cuda)


def test_winograd_is_for_plain_convolutions_in_nhwc() -> None:
    make = Layers(np.random.default_rng(0), "NCHW")
    assert winograd_tile(make.conv(make.input(1, 3, 8, 8), 128), "cuda") is None
    make = Layers(np.random.default_rng(0), "NHWC")
    assert winograd_tile(make.conv(make.input(1, 8, 8, 128), 0, depthwise=True), "cuda") is None


@pytest.mark.parametrize("target, height, m", [("cuda", 8, 4), ("cuda", 7, 2), ("cuda", 6, 2), ("c", 12, 4)])
def test_winograd_keeps_the_meaning_and_its_weight_is_folded(target: str, height: int, m: int) -> None:
    make = Layers(np.random.default_rng(0), "NHWC")
    graph = function(relu(call("add", make.conv(make.input(2, height, height, 16), 70), make.draw(70))))
    new = altered(graph, target)
    (node,) = calls(new, WINOGRAD)
    weight = node.args[1]
    assert isinstance(weight, Constant) and weight.shape == (m + 2, m + 2, 70, 16)
    assert node.attrs["tile_size"] == m and node.attrs["channels"] == 70
    assert operand(new) == (1, 1, 1, 70)
    assert ops(new) == {WINOGRAD: 1, "add": 1, "nn.relu": 1}
    assert_same_meaning(graph, new, 1e-12)


def test_winograd_after_a_conversion() -> None:
    """A network in NCHW is converted to NHWC, and its convolutions are then computed by winograd."""
    make = Layers(np.random.default_rng(0), "NCHW")
    x: Expr = make.conv(make.input(1, 3, 8, 8), 66)
    graph = function(make.conv(make.pool(make.bn(x)), 6))
    nhwc = transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(graph)
    new = altered(nhwc, "cuda")
    assert ops(new)[WINOGRAD] == 2 and transforms(new) == [("NCHW", "NHWC"), ("NHWC", "NCHW")]
    assert_same_meaning(graph, new, 1e-9)


# ------------------------------------------------------------------------------------------------- products


@pytest.mark.parametrize(("rows", "constant", "cuda"), [(32, True, True), (31, True, False), (197, False, False)])
def test_constant_weights_of_products_are_turned_on_a_gpu(rows: int, constant: bool, cuda: bool) -> None:
    rng = np.random.default_rng(0)
    weight = Constant(rng.uniform(-1, 1, (7, 5))) if constant else var("w", (7, 5), "float64")
    product = call("nn.dense", var("x", (rows, 5), "float64"), weight, units=7)
    graph = function(relu(call("add", product, Constant(rng.uniform(-1, 1, 7)))))
    assert ops(altered(graph)) == {"nn.dense": 1, "add": 1, "nn.relu": 1}
    new = altered(graph, "cuda")
    assert ops(new) == {"nn.matmul" if cuda else "nn.dense": 1, "add": 1, "nn.relu": 1}
    if cuda:
        (node,) = calls(new, "nn.matmul")
        assert isinstance(node.args[1], Constant) and node.args[1].shape == (5, 7) and operand(new) == (1, 7)
    assert_same_meaning(graph, new, 1e-12)


@pytest.mark.parametrize(("dtype", "total"), [("int8", "int32"), ("float8_e4m3fn", "float32")])
def test_weights_of_bytes_stay_along_their_terms(dtype: str, total: str) -> None:
    weight = Constant(np.arange(35).reshape(7, 5).astype(dtype))
    graph = function(call("nn.dense", var("x", (64, 5), dtype), weight, units=7, out_dtype=total))
    assert ops(altered(graph, "cuda")) == {"nn.dense": 1}


# ----------------------------------------------------------------------------------------------- legal forms


@pytest.mark.parametrize("kernel_layout", ["IOHW", "HWIO", "HWOI"])
@pytest.mark.parametrize("data_layout", LAYOUTS)
def test_transposed_convolutions_are_legal_in_nchw(data_layout: str, kernel_layout: str) -> None:
    rng = np.random.default_rng(0)
    data = var("data", LAYOUTS[data_layout], "float64")
    extents = {"I": 3, "O": 5, "H": 4, "W": 3}
    kernel = Constant(rng.uniform(-1, 1, [extents[k] for k in kernel_layout]))
    attrs = {"strides": (2, 3), "padding": (1, 0, 0, 1), "output_padding": (1, 2)}
    graph = function(relu(call("nn.conv2d_transpose", data, kernel, data_layout=data_layout,
                               kernel_layout=kernel_layout, channels=5, kernel_size=(4, 3), **attrs)))  # fmt: skip
    new = transform.FoldConstant()(transform.Legalize()(graph))
    (node,) = calls(new, "nn.conv2d_transpose")
    layouts = (node.attrs["data_layout"], node.attrs["kernel_layout"])
    assert layouts == ("NCHW", "IOHW")
    assert ops(new)["transpose"] == (0 if data_layout == "NCHW" else 2)
    assert_same_meaning(graph, new)
