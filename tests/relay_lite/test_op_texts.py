"""The expressions of operators print as those of search tasks do: the text is a task's identity."""

from __future__ import annotations

from typing import Any

import pytest

import relay_lite as relay
import te_lite as te
from relay_lite.ir.nodes import Call, Constant, Expr, Var
from relay_lite.ir.visit import post_order
from tests.te_lite.test_golden_tasks import golden


def tensors(out: Expr, target: str) -> list[te.Tensor]:
    """The placeholders p0, p1, ... of a graph without tuples, and its result."""
    made: dict[int, Any] = {}
    inputs = []
    for node in post_order(out):
        match node:
            case Var():
                inputs.append(te.placeholder(node.shape, node.dtype, name=f"p{len(inputs)}"))
                made[id(node)] = inputs[-1]
            case Constant(value=value):
                made[id(node)] = te.const(value.item(), str(value.dtype))
            case Call(op=op, args=args, attrs=attrs):
                assert op.compute is not None
                (made[id(node)],) = op.compute([made[id(a)] for a in args], attrs, target)
    return [*inputs, made[id(out)]]


def text(out: Expr, target: str = "c") -> str:
    return str(te.ComputeDAG(tensors(out, target)))


def f(*shape: int) -> relay.Var:
    return relay.var("x", shape)


def relu_of_shift(x: Expr, shape: tuple[int, ...]) -> Expr:
    return relay.nn.relu(relay.add(x, f(*shape)))


nn = relay.nn
TASKS: dict[str, tuple[str, Expr]] = {
    "resnet-18/NHWC/cuda conv": (
        "cuda",
        relu_of_shift(nn.conv2d(f(1, 56, 56, 64), f(3, 3, 64, 128), 2, 1, data_layout="NHWC", kernel_layout="HWIO"),
                      (1, 1, 1, 128)),
    ),
    "resnet-18/NHWC/cuda winograd": (
        "cuda",
        relu_of_shift(nn.contrib_conv2d_winograd_without_weight_transform(f(1, 14, 14, 256), f(4, 4, 256, 256), 2,
                                                                          padding=1), (1, 1, 1, 256)),
    ),
    "resnet-18/NHWC/llvm winograd": (
        "c",
        relu_of_shift(nn.contrib_conv2d_winograd_without_weight_transform(f(1, 14, 14, 256), f(6, 6, 256, 256), 4,
                                                                          padding=1), (1, 1, 1, 256)),
    ),
    "resnet-18/NHWC/cuda dense": ("cuda", relay.add(nn.dense(f(1, 512), f(1000, 512)), f(1, 1000))),
    "resnet-18/NHWC/cuda pool": (
        "cuda", relu_of_shift(nn.max_pool2d(f(1, 112, 112, 64), 3, 2, padding=1, layout="NHWC"), (1, 1, 1, 64))
    ),
    "resnet-18/NHWC/cuda global pool": ("cuda", nn.global_avg_pool2d(f(1, 7, 7, 512), "NHWC")),
    "resnet-18/NHWC/cuda softmax": ("cuda", nn.softmax(f(1, 1000))),
    "resnet-18/NCHW/cuda conv": (
        "cuda", relu_of_shift(nn.conv2d(f(1, 3, 224, 224), f(64, 3, 7, 7), 2, 3), (1, 64, 1, 1))
    ),
    "mobilenet/NHWC/cuda depthwise": (
        "cuda",
        relu_of_shift(nn.conv2d(f(1, 14, 14, 512), f(3, 3, 512, 1), 1, 1, 1, 512, data_layout="NHWC",
                                kernel_layout="HWOI"), (1, 1, 1, 512)),
    ),
    "dcgan/NCHW/cuda deconv": (
        "cuda", relay.tanh(nn.conv2d_transpose(f(1, 128, 32, 32), f(128, 3, 4, 4), 2, 1))
    ),
    "mlp/NCHW/cuda dense": ("cuda", relay.nn.relu(relay.add(nn.dense(f(1, 784), f(128, 784)), f(1, 128)))),
}  # fmt: skip


@pytest.mark.parametrize("name", TASKS)
def test_text_is_that_of_a_recorded_task(name: str) -> None:
    target, out = TASKS[name]
    assert text(out, target) in {entry["dag"] for entry in golden("network_tasks.json")[name.split()[0]]}


def stages(out: Expr) -> list[str]:
    """The stages after the placeholders, without their bodies."""
    return [line.split("(")[0] for line in text(out).splitlines() if "PLACEHOLDER" not in line]


def test_stages_of_mean_and_variance() -> None:
    x = f(2, 8)
    assert text(relay.mean(x, 1, True)).splitlines()[1:] == [
        "p0_red(ax0, ax1) += p0[ax0, k1]",
        "T_divide(ax0, ax1) = (p0_red[ax0, ax1]/8f)",
    ]
    assert stages(relay.variance(x, 1, True, with_mean=f(2, 1))) == [
        "T_subtract", "T_multiply", "T_multiply_red", "T_divide"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("out", "names"),
    [
        (nn.relu(f(3)), ["T_relu"]),
        (relay.clip(f(3), 0, 6), ["compute"]),
        (relay.sigmoid(f(3)), ["T_sigmoid"]),
        (nn.leaky_relu(f(3)), ["T_leaky_relu"]),
        (nn.prelu(f(2, 3), f(3)), ["T_prelu"]),
        (nn.bias_add(f(2, 3, 4), f(3)), ["T_expand_dims", "T_add"]),
        (nn.bias_add(f(2, 3), f(3)), ["T_add"]),
        (nn.batch_flatten(f(2, 3, 4)), ["compute"]),
        (nn.pad(f(3), ((1, 1),)), ["T_pad"]),
        (relay.layout_transform(f(1, 2, 3, 4), "NCHW", "NHWC"), ["T_layout_trans"]),
        (relay.transpose(f(3, 4)), ["T_transpose"]),
        (nn.log_softmax(f(3, 4)), ["T_softmax_maxelem", "compute", "compute"]),
        (nn.batch_matmul(f(2, 3, 4), f(2, 5, 4)), ["T_batch_matmul_NT"]),
        (nn.matmul(f(3, 4), f(4, 5)), ["T_matmul_NN"]),
        (nn.avg_pool2d(f(1, 2, 8, 8), 2, 2), ["pool_sum", "pool_avg"]),
        (nn.conv3d(f(1, 4, 4, 4, 2), f(1, 1, 1, 2, 3), data_layout="NDHWC", kernel_layout="DHWIO"),
         ["pad_temp", "conv3d_ndhwc"]),
        (nn.conv2d(f(1, 4, 6, 6), f(4, 2, 3, 3), groups=2), ["pad_temp", "group_conv2d_nchw"]),
        (nn.conv2d_transpose(f(1, 2, 4, 4), f(2, 3, 4, 4), 2, 1),
         ["data_dilate", "data_pad", "kernel_transform", "compute"]),
    ],
)  # fmt: skip
def test_names_of_stages(out: Expr, names: list[str]) -> None:
    assert stages(out) == names


def test_convolutions_whose_weight_may_be_stored_in_another_order() -> None:
    """Only those of TVM's own entry points say so; the generic convolution does not."""
    for data, weight, layouts, free in (
        ((1, 8, 8, 4), (3, 3, 4, 5), ("NHWC", "HWIO"), True),
        ((1, 8, 8, 4), (5, 4, 3, 3), ("NHWC", "OIHW"), False),
        ((1, 4, 8, 8), (5, 4, 3, 3), ("NCHW", "OIHW"), False),
    ):
        conv = nn.conv2d(f(*data), f(*weight), data_layout=layouts[0], kernel_layout=layouts[1])
        out = tensors(conv, "c")[-1]
        assert bool(out.op.attrs.get("layout_free_placeholders")) == free
