"""The search tasks of whole networks, each built by hand: their text, FLOPs and key are those that are recorded.

Epilogues are spelled by letter: `r` adds another tensor of the output's shape, `b` adds one value a channel, `s`
multiplies by one, `B` and `S` do the same with one value a row, `+` is relu and `t` tanh.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import te_lite as te
from benchmarks.workloads import OPERATORS, WORKLOADS
from te_lite import topi
from tests.nonempty import nonempty

GOLDEN = Path(__file__).parents[1] / "golden"
Tensors = list[te.Tensor]


class Task:
    """Collects the inputs of a task, named in order of use."""

    def __init__(self) -> None:
        self.inputs: Tensors = []

    def input(self, *shape: int) -> te.Tensor:
        self.inputs.append(te.placeholder(shape, name=f"p{len(self.inputs)}"))
        return self.inputs[-1]

    def finish(self, out: te.Tensor, epilogue: str = "", channels_last: bool = True) -> Tensors:
        n, ndim = out.shape, out.ndim
        channel = [1, 1, 1, n[-1]] if channels_last else [1, n[1], 1, 1]
        for letter in epilogue:
            match letter:
                case "r":
                    out = topi.add(out, self.input(*n))
                case "b" | "s":
                    out = (topi.add if letter == "b" else topi.multiply)(out, self.input(*channel[-ndim:]))
                case "B" | "S":
                    out = (topi.add if letter == "B" else topi.multiply)(out, self.input(1, n[1], 1, 1))
                case "+":
                    out = topi.cpp.relu(out)
                case "t":
                    out = topi.cpp.tanh(out)
        return [*self.inputs, out]


def winograd(m: int, size: int, channels: int, epilogue: str) -> Tensors:
    t = Task()
    data, weight = t.input(1, size, size, channels), t.input(m + 2, m + 2, channels, channels)
    conv = topi.nn.conv2d_winograd_nhwc_without_weight_transform(data, weight, 1, 1, 1, tile_size=m)
    return t.finish(conv, epilogue)


def conv_nhwc(size: int, ci: int, co: int, kernel: int, stride: int, padding: int, epilogue: str) -> Tensors:
    t = Task()
    data, weight = t.input(1, size, size, ci), t.input(kernel, kernel, ci, co)
    return t.finish(topi.nn.conv2d_nhwc(data, weight, stride, padding, 1), epilogue)


def conv_nchw(size: int, ci: int, co: int, kernel: int, stride: int, padding: int, epilogue: str) -> Tensors:
    t = Task()
    data, weight = t.input(1, ci, size, size), t.input(co, ci, kernel, kernel)
    return t.finish(topi.nn.conv2d_nchw(data, weight, stride, padding, 1), epilogue, channels_last=False)


def depthwise_nhwc(size: int, channels: int, stride: int, epilogue: str) -> Tensors:
    t = Task()
    data, weight = t.input(1, size, size, channels), t.input(3, 3, channels, 1)
    return t.finish(topi.nn.depthwise_conv2d_nhwc(data, weight, stride, 1, 1), epilogue)


def deconv(size: int, ci: int, co: int, epilogue: str) -> Tensors:
    t = Task()
    data, weight = t.input(1, ci, size, size), t.input(ci, co, 4, 4)
    out = topi.cuda.conv2d_transpose_nchw(data, weight, 2, 1, "float32", 0)
    return t.finish(out, epilogue, channels_last=False)


def dense(k: int, n: int, epilogue: str) -> Tensors:
    t = Task()
    return t.finish(topi.nn.dense(t.input(1, k), t.input(n, k)), epilogue)


def softmax(n: int) -> Tensors:
    t = Task()
    return t.finish(topi.nn.softmax(t.input(1, n)))


def global_pool(shape: tuple[int, ...], layout: str) -> Tensors:
    t = Task()
    return t.finish(topi.nn.global_pool(t.input(*shape), "avg", layout))


def max_pool(shape: tuple[int, ...], padding: int, layout: str, epilogue: str) -> Tensors:
    t = Task()
    pool = topi.nn.pool2d(t.input(*shape), 3, 2, 1, [padding] * 4, "max", layout=layout)
    return t.finish(pool, epilogue, channels_last=layout == "NHWC")


NETWORKS: dict[str, list[tuple[Any, ...]]] = {
    "resnet-18/NHWC/cuda": [
        (winograd, 2, 14, 256, "b+"),
        (conv_nhwc, 56, 64, 64, 1, 1, 0, ""),
        (conv_nhwc, 56, 64, 128, 3, 2, 1, "b+"),
        (dense, 512, 1000, "r"),
        (conv_nhwc, 14, 256, 512, 1, 2, 0, ""),
        (winograd, 2, 7, 512, "r"),
        (global_pool, (1, 7, 7, 512), "NHWC"),
        (winograd, 2, 28, 128, "r"),
        (conv_nhwc, 56, 64, 128, 1, 2, 0, ""),
        (conv_nhwc, 224, 3, 64, 7, 2, 3, "b+"),
        (winograd, 2, 28, 128, "rb+"),
        (softmax, 1000),
        (winograd, 2, 28, 128, "b+"),
        (conv_nhwc, 14, 256, 512, 3, 2, 1, "b+"),
        (max_pool, (1, 112, 112, 64), 1, "NHWC", "b+"),
        (winograd, 2, 7, 512, "rsb+"),
        (winograd, 4, 56, 64, "rb+"),
        (conv_nhwc, 28, 128, 256, 1, 2, 0, ""),
        (winograd, 2, 7, 512, "b+"),
        (winograd, 2, 14, 256, "r"),
        (conv_nhwc, 28, 128, 256, 3, 2, 1, "b+"),
        (winograd, 4, 56, 64, "b+"),
        (winograd, 4, 56, 64, "r"),
        (winograd, 2, 14, 256, "rb+"),
    ],
    "resnet-18/NCHW/cuda": [
        (conv_nchw, 56, 64, 64, 3, 1, 1, "r"),
        (conv_nchw, 56, 64, 64, 1, 1, 0, ""),
        (conv_nchw, 14, 256, 256, 3, 1, 1, "b+"),
        (conv_nchw, 56, 64, 64, 3, 1, 1, "b+"),
        (dense, 512, 1000, "r"),
        (conv_nchw, 14, 256, 512, 1, 2, 0, ""),
        (conv_nchw, 56, 64, 64, 3, 1, 1, "rb+"),
        (conv_nchw, 7, 512, 512, 3, 1, 1, "r"),
        (conv_nchw, 28, 128, 256, 3, 2, 1, "b+"),
        (global_pool, (1, 512, 7, 7), "NCHW"),
        (conv_nchw, 28, 128, 128, 3, 1, 1, "rb+"),
        (conv_nchw, 56, 64, 128, 1, 2, 0, ""),
        (softmax, 1000),
        (conv_nchw, 224, 3, 64, 7, 2, 3, "b+"),
        (max_pool, (1, 64, 112, 112), 1, "NCHW", "b+"),
        (conv_nchw, 14, 256, 256, 3, 1, 1, "r"),
        (conv_nchw, 28, 128, 128, 3, 1, 1, "b+"),
        (conv_nchw, 7, 512, 512, 3, 1, 1, "rsb+"),
        (conv_nchw, 28, 128, 128, 3, 1, 1, "r"),
        (conv_nchw, 14, 256, 512, 3, 2, 1, "b+"),
        (conv_nchw, 28, 128, 256, 1, 2, 0, ""),
        (conv_nchw, 7, 512, 512, 3, 1, 1, "b+"),
        (conv_nchw, 56, 64, 128, 3, 2, 1, "b+"),
        (conv_nchw, 14, 256, 256, 3, 1, 1, "rb+"),
    ],
    "resnet-18/NHWC/llvm": [
        (conv_nhwc, 56, 64, 64, 3, 1, 1, "r"),
        (conv_nhwc, 56, 64, 64, 1, 1, 0, ""),
        (conv_nhwc, 7, 512, 512, 3, 1, 1, "b+"),
        (conv_nhwc, 56, 64, 64, 3, 1, 1, "b+"),
        (dense, 512, 1000, "r"),
        (global_pool, (1, 7, 7, 512), "NHWC"),
        (conv_nhwc, 56, 64, 64, 3, 1, 1, "rb+"),
        (conv_nhwc, 14, 256, 512, 1, 2, 0, ""),
        (conv_nhwc, 14, 256, 512, 3, 2, 1, "b+"),
        (winograd, 4, 14, 256, "r"),
        (conv_nhwc, 56, 64, 128, 1, 2, 0, ""),
        (softmax, 1000),
        (conv_nhwc, 224, 3, 64, 7, 2, 3, "b+"),
        (winograd, 4, 14, 256, "rb+"),
        (max_pool, (1, 112, 112, 64), 1, "NHWC", "b+"),
        (winograd, 4, 14, 256, "b+"),
        (conv_nhwc, 28, 128, 256, 3, 2, 1, "b+"),
        (winograd, 4, 28, 128, "rb+"),
        (conv_nhwc, 28, 128, 256, 1, 2, 0, ""),
        (winograd, 4, 28, 128, "r"),
        (conv_nhwc, 7, 512, 512, 3, 1, 1, "rsb+"),
        (conv_nhwc, 7, 512, 512, 3, 1, 1, "r"),
        (conv_nhwc, 56, 64, 128, 3, 2, 1, "b+"),
        (winograd, 4, 28, 128, "b+"),
    ],
    "mobilenet/NHWC/cuda": [
        (conv_nhwc, 56, 128, 128, 1, 1, 0, "b+"),
        (conv_nhwc, 112, 32, 64, 1, 1, 0, "b+"),
        (dense, 1024, 1000, "r"),
        (global_pool, (1, 7, 7, 1024), "NHWC"),
        (depthwise_nhwc, 28, 256, 1, "b+"),
        (conv_nhwc, 7, 1024, 1024, 1, 1, 0, "b+"),
        (conv_nhwc, 14, 512, 512, 1, 1, 0, "b+"),
        (depthwise_nhwc, 56, 128, 1, "b+"),
        (depthwise_nhwc, 14, 512, 2, "b+"),
        (depthwise_nhwc, 112, 32, 1, "b+"),
        (conv_nhwc, 28, 128, 256, 1, 1, 0, "b+"),
        (depthwise_nhwc, 28, 256, 2, "b+"),
        (softmax, 1000),
        (conv_nhwc, 56, 64, 128, 1, 1, 0, "b+"),
        (conv_nhwc, 7, 512, 1024, 1, 1, 0, "b+"),
        (conv_nhwc, 14, 256, 512, 1, 1, 0, "b+"),
        (depthwise_nhwc, 56, 128, 2, "b+"),
        (depthwise_nhwc, 112, 64, 2, "b+"),
        (depthwise_nhwc, 7, 1024, 1, "b+"),
        (conv_nhwc, 224, 3, 32, 3, 2, 1, "SB+"),
        (conv_nhwc, 28, 256, 256, 1, 1, 0, "b+"),
        (depthwise_nhwc, 14, 512, 1, "b+"),
    ],
    "squeezenet_v1.1/NCHW/cuda": [
        (conv_nchw, 27, 128, 32, 1, 1, 0, "b+"),
        (conv_nchw, 13, 512, 1000, 1, 1, 0, "b+"),
        (conv_nchw, 13, 384, 64, 1, 1, 0, "b+"),
        (global_pool, (1, 1000, 13, 13), "NCHW"),
        (conv_nchw, 27, 256, 32, 1, 1, 0, "b+"),
        (conv_nchw, 55, 64, 16, 1, 1, 0, "b+"),
        (conv_nchw, 55, 128, 16, 1, 1, 0, "b+"),
        (max_pool, (1, 256, 27, 27), 0, "NCHW", ""),
        (conv_nchw, 13, 64, 256, 1, 1, 0, "b+"),
        (conv_nchw, 27, 32, 128, 3, 1, 1, "b+"),
        (conv_nchw, 13, 48, 192, 1, 1, 0, "b+"),
        (conv_nchw, 224, 3, 64, 3, 2, 1, "b+"),
        (conv_nchw, 55, 16, 64, 3, 1, 1, "b+"),
        (conv_nchw, 13, 64, 256, 3, 1, 1, "b+"),
        (conv_nchw, 13, 48, 192, 3, 1, 1, "b+"),
        (conv_nchw, 27, 32, 128, 1, 1, 0, "b+"),
        (softmax, 1000),
        (max_pool, (1, 128, 55, 55), 0, "NCHW", ""),
        (conv_nchw, 55, 16, 64, 1, 1, 0, "b+"),
        (conv_nchw, 13, 512, 64, 1, 1, 0, "b+"),
        (max_pool, (1, 64, 112, 112), 0, "NCHW", ""),
        (conv_nchw, 13, 384, 48, 1, 1, 0, "b+"),
        (conv_nchw, 13, 256, 48, 1, 1, 0, "b+"),
    ],
    "dcgan/NCHW/cuda": [
        (deconv, 4, 1024, 512, "sb+"),
        (deconv, 32, 128, 3, "t"),
        (dense, 100, 16384, "+"),
        (deconv, 16, 256, 128, "sb+"),
        (deconv, 8, 512, 256, "sb+"),
    ],
    "mlp/NCHW/cuda": [
        (dense, 64, 10, "r"),
        (softmax, 10),
        (dense, 128, 64, "r+"),
        (dense, 784, 128, "r+"),
    ],
}


def golden(name: str) -> Any:
    return json.loads((GOLDEN / name).read_text())


@pytest.mark.parametrize("network", NETWORKS)
def test_tasks_of_a_network(network: str) -> None:
    entries = golden("network_tasks.json")[network]
    assert len(NETWORKS[network]) == len(entries)
    build: Callable[..., Tensors]
    for (build, *args), entry in zip(NETWORKS[network], entries, strict=True):
        dag = te.ComputeDAG(build(*args))
        assert str(dag) == entry["dag"]
        assert json.loads(dag.workload_key()) == entry["workload_key"]
        assert dag.flop_ct == entry["flop"]


def test_every_network_is_covered() -> None:
    assert set(NETWORKS) == set(golden("network_tasks.json"))


def test_texts_and_flops_of_the_sketch_workloads() -> None:
    builders = OPERATORS | WORKLOADS
    for entry in nonempty(golden("sketches.json")):
        dag = te.ComputeDAG(builders[entry["workload"]](*entry["args"]))
        assert str(dag) == entry["dag"], entry["workload"]
        assert dag.flop_ct == entry["flop"], entry["workload"]


def test_adaptive_pool_keeps_the_extent_expression() -> None:
    a = te.placeholder((1, 7, 7, 8), name="A")
    total = topi.nn.global_pool(a, "avg", "NHWC").op.input_tensors()[0]
    for axis, reduced in nonempty(zip((1, 2), total.op.reduce_axis, strict=True)):
        end = f"((ax{axis} + 1)*7)"
        assert repr(reduced.extent) == f"(select((bool)1, {end}, ({end} + 1)) - (ax{axis}*7))"
