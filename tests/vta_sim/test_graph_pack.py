"""Graph packing changes no bit, and gives the convolutions their tasks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
import te_lite as te
from relay_lite import reference
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Call, Expr, Function, Var
from relay_lite.ir.visit import post_order
from te_lite.meaning.reference import evaluate
from vta_sim.graph import conv_workloads, extract_from_program, graph_pack
from vta_sim.graph.packed_layout import Blocks
from vta_sim.graph.packed_operators import CONV

TUTORIAL = """
(1, 14, 14, 256, 512, 1, 1, 0, 0, 2, 2)
(1, 28, 28, 128, 256, 1, 1, 0, 0, 2, 2)
(1, 56, 56, 64, 128, 1, 1, 0, 0, 2, 2)
(1, 56, 56, 64, 64, 3, 3, 1, 1, 1, 1)
(1, 28, 28, 128, 128, 3, 3, 1, 1, 1, 1)
(1, 56, 56, 64, 128, 3, 3, 1, 1, 2, 2)
(1, 14, 14, 256, 256, 3, 3, 1, 1, 1, 1)
(1, 28, 28, 128, 256, 3, 3, 1, 1, 2, 2)
(1, 7, 7, 512, 512, 3, 3, 1, 1, 1, 1)
(1, 14, 14, 256, 512, 3, 3, 1, 1, 2, 2)
"""
FIRST = (
    "conv2d_packed.vta", ("TENSOR", (1, 16, 14, 14, 1, 16), "int8"), ("TENSOR", (32, 16, 1, 1, 16, 16), "int8"),
    (2, 2), (0, 0), (1, 1), "NCHW1n16c", "int32",
)  # fmt: skip


def ints(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "int8", limit: int = 127) -> np.ndarray:
    return rng.integers(-limit, limit + 1, shape).astype(dtype)


def between(body: Any, data: Var) -> Function:
    """A function whose part between the default markers is `body`, on int8 values."""
    inside = body(call("cast", relay.nn.max_pool2d(data), dtype="int8"))
    return Function((data,), relay.nn.global_avg_pool2d(call("cast", inside, dtype="float32")))


def same_bits(function: Function, batch: int, channels: int, seed: int = 0) -> Function:
    """Packed, it gives the same; returns the packed function."""
    packed = graph_pack(function, batch, channels, 8)
    data = ints(np.random.default_rng(seed), function.params[0].shape, "float32")
    want = reference.run(function, [data])
    assert np.ptp(want) > 0
    np.testing.assert_array_equal(reference.run(packed, [data]), want)
    return packed


# ------------------------------------------------------------------------------------------------------- layout


def test_packing_puts_every_number_where_the_layout_says() -> None:
    rng = np.random.default_rng(0)
    blocks = Blocks(2, 4)
    assert (blocks.data_layout, blocks.kernel_layout) == ("NCHW2n4c", "OIHW4o4i")
    data, weight, bias = ints(rng, (6, 8, 3, 5)), ints(rng, (7, 6, 3, 2)), ints(rng, (7, 1, 1), "int32")
    x = relay.var("x", data.shape, "int8")
    packed = reference.run(Function((x,), blocks.pack(x)), [data])
    for n, c, h, w in np.ndindex(*data.shape):
        assert packed[n // 2, c // 4, h, w, n % 2, c % 4] == data[n, c, h, w]
    y = relay.var("y", packed.shape, "int8")
    for channels in (8, 5):
        back = reference.run(Function((y,), blocks.unpack(y, (6, channels, 3, 5))), [packed])
        np.testing.assert_array_equal(back, data[:, :channels])
    made = blocks.pack_weight(weight)
    assert made.shape == (2, 2, 3, 2, 4, 4) and np.abs(made.astype(int)).sum() == np.abs(weight.astype(int)).sum()
    for o, i, h, w in np.ndindex(*weight.shape):
        assert made[o // 4, i // 4, h, w, o % 4, i % 4] == weight[o, i, h, w]
    spread = blocks.pack_channels(bias)
    assert spread.shape == (1, 2, 1, 1, 2, 4) and spread[0, 1, 0, 0, :, 3].tolist() == [0, 0]
    for c, n in np.ndindex(7, 2):
        assert spread[0, c // 4, 0, 0, n, c % 4] == bias[c, 0, 0]


@pytest.mark.parametrize(
    ("strides", "padding", "kernel"), [((1, 1), (1, 1), 3), ((2, 2), (0, 0), 1), ((2, 1), (2, 0), 3)]
)
def test_the_packed_convolution_is_the_plain_one(strides: Any, padding: Any, kernel: int) -> None:
    rng = np.random.default_rng(kernel)
    blocks = Blocks(2, 4)
    data, weight = ints(rng, (4, 8, 7, 9)), ints(rng, (12, 8, kernel, kernel), limit=128 - 1)
    data[0], weight[0] = -128, -128
    x = relay.var("x", data.shape, "int8")
    kernel_of = relay.const(weight)
    plain = relay.nn.conv2d(x, kernel_of, strides=strides, padding=padding, out_dtype="int32")
    conv = call(
        CONV,
        blocks.pack(x), relay.const(blocks.pack_weight(weight)), strides=strides, padding=padding,
        data_layout=blocks.data_layout, kernel_layout=blocks.kernel_layout,
    )  # fmt: skip
    want = reference.run(Function((x,), plain), [data])
    got = reference.run(Function((x,), blocks.unpack(conv, plain.shape)), [data])
    np.testing.assert_array_equal(got, want)


def test_the_packed_convolution_wraps_around() -> None:
    shape, kernel = (1, 8193, 1, 1, 1, 16), (1, 8193, 1, 1, 16, 16)
    conv = call(CONV, relay.var("x", shape, "int8"), relay.var("w", kernel, "int8"))
    got = conv.op.numpy([np.full(shape, -128, "int8"), np.full(kernel, -128, "int8")], conv.attrs)
    assert (got == 8193 * 16 * 128 * 128 - (1 << 32)).all()


def test_the_tensor_expression_of_the_packed_convolution_is_its_meaning() -> None:
    rng = np.random.default_rng(2)
    data, weight = ints(rng, (2, 2, 5, 7, 1, 4)), ints(rng, (3, 2, 3, 3, 4, 4))
    attrs = {"strides": (2, 1), "padding": (1, 0), "data_layout": "NCHW1n4c", "kernel_layout": "OIHW4o4i"}
    conv = call(CONV, relay.const(data), relay.const(weight), **attrs)
    x, w = te.placeholder(data.shape, "int8"), te.placeholder(weight.shape, "int8")
    assert conv.op.compute is not None
    (out,) = conv.op.compute([x, w], conv.attrs, "c")
    got = evaluate([x, w, out], {x: data, w: weight})[out]
    np.testing.assert_array_equal(got, conv.op.numpy([data, weight], conv.attrs))


# -------------------------------------------------------------------------------------------------------- pass


@pytest.mark.parametrize(("batch", "block"), [(1, 16), (2, 8), (1, 4)])
def test_a_network_keeps_its_bits(batch: int, block: int) -> None:
    """Channel counts that fill no block, strides, a residual sum, constants of all kinds, padding."""
    rng = np.random.default_rng(block)

    def weight(*shape: int) -> Expr:
        return relay.const(ints(rng, shape))

    def small(x: Expr) -> Expr:
        return call("cast", call("clip", relay.right_shift(x, 9), a_min=-127.0, a_max=127.0), dtype="int8")

    def body(x: Expr) -> Expr:
        a = relay.nn.conv2d(x, weight(21, 16, 3, 3), padding=(2, 1), out_dtype="int32")
        a = relay.nn.relu(relay.add(a, relay.const(ints(rng, (21, 1, 1), "int32", 9999))))
        left = small(a)
        b = relay.nn.conv2d(left, weight(21, 21, 3, 3), padding=1, out_dtype="int32")
        b = relay.nn.bias_add(b, relay.const(ints(rng, (21,), "int32", 9999)))
        c = relay.add(call("cast", small(b), dtype="int32"), call("cast", left, dtype="int32"))
        c = relay.multiply(c, relay.const(ints(rng, (1, 21, 1, 1), "int32", 3)))
        c = call("annotation.stop_fusion", call("cast", relay.maximum(c, -100), dtype="int8"))
        c = relay.nn.pad(c, ((0, 0), (0, 0), (1, 2), (0, 3)))
        return relay.nn.conv2d(c, weight(5, 21, 1, 1), strides=(2, 2), out_dtype="int32")

    packed = same_bits(between(body, relay.var("data", (2, 16, 7, 5))), batch, block)
    names = [n.op.name for n in post_order(packed.body) if isinstance(n, Call)]
    assert names.count(CONV) == 3 and "nn.conv2d" not in names and "strided_slice" in names


def test_the_start_and_stop_can_be_named_by_place() -> None:
    x = relay.var("data", (1, 4, 6, 6))
    once = relay.nn.relu(relay.nn.max_pool2d(relay.nn.relu(relay.nn.max_pool2d(relay.nn.relu(x)))))
    net = Function((x,), relay.nn.global_avg_pool2d(relay.nn.global_avg_pool2d(once)))

    def rank_of_relus(**place: Any) -> list[int]:
        body = graph_pack(net, 1, 4, 8, **place).body
        return [len(n.shape) for n in post_order(body) if isinstance(n, Call) and n.op.name == "nn.relu"]

    with pytest.raises(GraphError, match=r"max_pool2d.* has no packed form"):
        rank_of_relus()
    with pytest.raises(GraphError, match=r"no start operator nn\.max_pool2d at place 2"):
        rank_of_relus(start_name_idx=2)
    assert rank_of_relus(start_name_idx=3) == [4, 4, 6]
    assert rank_of_relus(start_name="nn.relu", stop_name="nn.max_pool2d") == [4, 4, 4]
    assert rank_of_relus(stop_name="nn.relu") == [4, 4, 4]
    with pytest.raises(GraphError, match=r"global_avg_pool2d.* has no packed form"):
        rank_of_relus(start_name_idx=3, stop_name_idx=6)


# Each: what is between the markers, and what the sentence must say.
REFUSED: dict[str, tuple[Any, str]] = {
    "softmax": (lambda x: relay.nn.softmax(call("cast", x, dtype="float32")), "has no packed form"),
    "float": (lambda x: relay.nn.conv2d(x, relay.const(np.ones((4, 4, 1, 1), "int8"))), "is the network quantised"),
    "groups": (lambda x: relay.nn.conv2d(x, relay.const(np.ones((4, 2, 1, 1), "int8")), groups=2, out_dtype="int32"),
               "groups and dilation"),
    "padding": (lambda x: relay.nn.conv2d(x, relay.const(np.ones((4, 4, 1, 1), "int8")), padding=(0, 0, 1, 1),
                                          out_dtype="int32"), "must be symmetric"),
    "constant": (lambda x: relay.add(x, relay.const(np.ones((6, 6), "int8"))), "scalar or lie along the channels"),
    "channels": (lambda x: relay.nn.pad(x, ((0, 0), (1, 0), (0, 0), (0, 0))), "only height and width"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_packed_form_is_refused(case: str) -> None:
    body, sentence = REFUSED[case]
    with pytest.raises(GraphError, match=sentence):
        graph_pack(between(body, relay.var("data", (1, 4, 6, 6))), 1, 4, 8)


def test_impossible_requests_are_refused() -> None:
    net = between(lambda x: x, relay.var("data", (1, 6, 4, 4)))
    for wrong, sentence in (
        ({"weight_bits": 4}, "weights have 8 bits"), ({"cfactor": 4}, "multiples of 1 and 4"),
        ({"stop_name": "nn.dense"}, "no stop operator nn.dense"), ({"bfactor": 2}, "multiples of 2"),
    ):  # fmt: skip
        with pytest.raises(GraphError, match=re.escape(sentence)):
            graph_pack(net, **{"bfactor": 1, "cfactor": 2, "weight_bits": 8, **wrong})  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------- ResNet


def packed_resnet() -> Function:
    """ResNet-18 v1 for images of 224, packed; the weights are zeros, for only shapes matter."""
    net = relay.testing.resnet_v1.get_net(1, 10)
    params = {v.name: np.full(v.shape, v.name.endswith("var"), "float32") for v in net.params if v.name != "data"}
    return graph_pack(relay.quantize.quantize(IRModule({"main": net}), params), 1, 16, 8)


def test_resnet_has_the_ten_tasks_of_the_tutorial() -> None:
    graph = packed_resnet()
    workloads = conv_workloads(graph)
    assert next(iter(workloads)) == FIRST
    assert list(workloads.values()) == [1, 1, 1, 4, 3, 1, 3, 1, 3, 1]
    lines = []
    for _, (_, inp, _), (_, wgt, _), strides, pads, _, layout, out_dtype in workloads:
        assert (layout, out_dtype) == ("NCHW1n16c", "int32")
        lines.append(
            str((inp[0] * inp[4], inp[2], inp[3], inp[1] * inp[5], wgt[0] * wgt[4], *wgt[2:4], *pads, *strides))
        )
    assert lines == TUTORIAL.split("\n")[1:-1]
    nn_conv2d = relay.op.get("nn.conv2d")
    tasks = extract_from_program(IRModule.from_expr(graph), params={}, target="vta", ops=(nn_conv2d,))
    assert [t.workload for t in tasks] == list(workloads)
    assert [len(t.config_space) for t in tasks] == [480, 1280, 1728, 2304, 2304, 1728, 1600, 1280, 576, 480]
    assert sum(t.flop * n for t, n in zip(tasks, workloads.values(), strict=True)) == pytest.approx(3.391e9, rel=1e-4)
    assert extract_from_program(graph, ops=(relay.op.get("nn.dense"),)) == []
