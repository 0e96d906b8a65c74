"""Small real networks of every family, written as exporters of each opset write them, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from relay_lite.ir.nodes import Call
from relay_lite.ir.visit import post_order
from tests.relay_lite.onnx_models import FAMILIES, Builder, attention, compare, layer_norm, operators, resnet18

OPSETS = range(11, 22)


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.one_in(5)
def test_a_family_computes_what_onnxruntime_does(family: str, opset: int) -> None:
    b = Builder(opset, seed=opset)
    out = FAMILIES[family](b)
    compare(b.model(out), b.feeds, tol=2e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_as_parameters_give_the_same(family: str) -> None:
    b = Builder(17)
    out = FAMILIES[family](b)
    module = compare(b.model(out), b.feeds, tol=2e-5, freeze_params=False)
    names = [v.name for v in module["main"].params]
    assert names[: len(b.feeds)] == list(b.feeds) and len(names) > len(b.feeds)


@pytest.mark.parametrize("opset", [13, 18])
def test_shapes_leave_no_trace(opset: int) -> None:
    """What exporters compute from shapes is constant: no integer is left but the tokens."""
    b = Builder(opset)
    ops = operators(compare(b.model(FAMILIES["bert"](b)), b.feeds, tol=2e-5))
    assert not {"concatenate", "squeeze", "broadcast_to", "strided_slice"} & set(ops)
    assert ops.count("take") == 2 and ops.count("cast") == 2


def test_a_network_has_the_operators_that_fuse() -> None:
    """Convolutions keep their biases beside them, and no identity, transposed weight or reshape is in between."""
    b = Builder(11)
    ops = operators(compare(b.model(FAMILIES["resnext"](b)), b.feeds))
    conv = ["nn.conv2d", "nn.bias_add"]
    assert ops == [*conv, "nn.relu", *conv, "nn.relu", *conv, "nn.relu", *conv, "add", "nn.relu",
                   "nn.global_avg_pool2d", "nn.batch_flatten", "nn.dense", "nn.bias_add"]  # fmt: skip


def test_every_batch_has_its_own_values() -> None:
    """The oracle sees a batch: swapping its rows swaps the result, and the rows differ."""
    b = Builder(13)
    model = b.model(FAMILIES["mobilenet_v3"](b))
    ((name, data),) = b.feeds.items()
    compare(model, {name: np.ascontiguousarray(data[::-1])})
    assert not np.allclose(data[0], data[1])


def test_resnet_18_of_real_size() -> None:
    b = Builder(17)
    ops = operators(compare(b.model(resnet18(b)), b.feeds, tol=1e-4))
    assert ops.count("nn.conv2d") == ops.count("nn.batch_norm") == 20 and ops.count("add") == 8


def test_what_follows_a_reshape() -> None:
    """Operators behind a reshape that groups rows, and behind one that splits the last axis."""
    for wide in ((2, 3, 4), (2, 3, 2, 2), (6, 2, 2)):
        b = Builder(18)
        x = b.add("Reshape", b.input((6, 4)), b.ints(*wide))
        c, n = wide[-1], len(wide)
        others = [b.input((c,)), b.input((1, c)), b.input(wide), b.input((*wide[:-1], 1)), b.input((1, *wide[1:])),
                  b.input((5, *wide)), b.input((1,) * (n + 1)), b.array(0.7, np.float32)]  # fmt: skip
        outs = [b.add(op, *pair) for other in others for op, pair in (("Mul", (x, other)), ("Sub", (other, x)))]
        outs += [b.add("Sub", x, b.add("Reshape", b.input((6, 4)), b.ints(*wide))), b.add("Tanh", x)]
        for axes in ([n - 1], [n - 2], [0, n - 1]):
            outs += [b.add("ReduceMean", x, b.ints(*axes), keepdims=keep) for keep in (0, 1)]
        outs += [b.add("LayerNormalization", x, b.around(1, c), b.around(0, c)), b.add("Softmax", x)]
        compare(b.model(*outs), b.feeds)


@pytest.mark.parametrize("opset", [13, 17])
def test_biases_stay_beside_their_products(opset: int) -> None:
    """The reshapes around a product of (batch, sequence, hidden) do not part it from bias, residual and norm."""
    b = Builder(opset)
    x = b.input((2, 5, 12))
    y = layer_norm(b, b.add("Add", attention(b, x, 12, 3, 5, None), x), 12)
    module = compare(b.model(y), b.feeds)
    reads = [
        (e.op.name, e.args[0].op.name)
        for e in post_order(module["main"].body)
        if isinstance(e, Call) and isinstance(e.args[0], Call)
    ]
    assert reads.count(("add", "nn.dense")) == 4
    assert ("add", "add") in reads and ("multiply", "nn.batch_matmul") in reads
    assert (("nn.layer_norm", "add") if opset == 17 else ("mean", "add")) in reads
    assert {("add", "reshape"), ("mean", "reshape"), ("nn.layer_norm", "reshape")}.isdisjoint(reads)
