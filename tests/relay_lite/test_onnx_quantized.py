"""Models of QuantizeLinear and DequantizeLinear run on integers, within one quantum of onnxruntime's floats."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import TensorProto

import relay_lite as relay
from codegen_cuda import available_compilers
from relay_lite.frontend import from_onnx
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Call
from relay_lite.ir.reference import run
from relay_lite.ir.visit import post_order
from relay_lite.transform import RealizeQuantized
from tests.nonempty import nonempty
from tests.relay_lite.onnx_models import Array, Builder, compare, onnxruntime_run, operators

STEP = 0.04
PRODUCTS = ("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.dense", "nn.matmul", "nn.batch_matmul")


class Quantized(Builder):
    """A builder of networks with pairs of QuantizeLinear and DequantizeLinear: quantities and zero points drawn."""

    def pair(self, x: str, scale: float = STEP, dtype: type | None = None, zero: int | None = None) -> str:
        """`x` in 8 bits and back."""
        dtype = (np.int8, np.uint8)[int(self.rng.integers(2))] if dtype is None else dtype
        middle = np.iinfo(dtype).max // 2 if dtype is np.uint8 else 0
        drawn = int(self.rng.integers(-20, 20)) + middle if zero is None else zero
        parts = self.array(scale, np.float32), self.array(drawn, dtype)
        return str(self.add("DequantizeLinear", self.add("QuantizeLinear", x, *parts), *parts))

    def stored(self, shape: tuple[int, ...], axis: int | None, offset: bool = False) -> str:
        """A weight of 8 bits, with one scale or one an index of `axis`, and zero points where `offset`."""
        count = () if axis is None else (shape[axis],)
        parts = [self.array(self.rng.uniform(0.5, 2, count) / 127 / np.prod(shape[1:]) ** 0.5, np.float32)]
        zero = self.rng.integers(-30, 30, count) if offset else np.zeros(count)
        weight = self.array(self.rng.integers(-128, 128, shape), np.int8)
        more: dict[str, Any] = {} if axis is None else {"axis": axis}
        return str(self.add("DequantizeLinear", weight, *parts, self.array(zero, np.int8), **more))

    def bias(self, count: int) -> str:
        """A bias in int32 with a scale of its own for each channel."""
        scale = self.array(self.rng.uniform(1e-4, 1e-3, count), np.float32)
        return str(
            self.add("DequantizeLinear", self.array(self.rng.integers(-999, 999, count), np.int32), scale, axis=0)
        )


def check(b: Builder, *outputs: str, step: float = STEP) -> IRModule:
    """The network, whose products are all of integers, within a quantum of onnxruntime."""
    model = b.model(*outputs)
    module, _ = from_onnx(model)
    made = RealizeQuantized()(module)
    assert products(made) and all(e.dtype == e.args[0].dtype == "int32" for e in products(made))
    assert not any(name.startswith("qnn.") for name in operators(made))
    want = onnxruntime_run(model, b.feeds)
    for graph in (module, made):
        found = run(graph, b.feeds)
        near(list(found) if isinstance(found, tuple | list) else [found], want, step)
    return module


def products(module: IRModule) -> list[Call]:
    """Its convolutions and matrix products."""
    return [e for e in post_order(module["main"].body) if isinstance(e, Call) and e.op.name in PRODUCTS]


def near(got: list[Array], want: list[Array], step: float) -> None:
    """Floats within one step; live, so that nothing is right by being 0."""
    for mine, theirs in nonempty(zip(got, want, strict=True)):
        assert len(np.unique(theirs)) > 10
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1.01 * step)


@pytest.mark.parametrize("seed", range(12))
def test_convolutions(seed: int) -> None:
    """One to three axes, groups, strides, pads, dilations; one scale or one a channel; zero points of both operands."""
    b = Quantized(13, seed)
    n, group = int(b.rng.integers(1, 4)), int(b.rng.choice([1, 2, 4]))
    extents = [int(v) for v in b.rng.integers(5, 8, n)]
    x = b.pair(b.input((2, 4, *extents)))
    window: dict[str, Any] = {
        "pads": [int(v) for v in b.rng.integers(0, 2, 2 * n)], "strides": [int(v) for v in b.rng.integers(1, 3, n)],
        "dilations": [int(v) for v in b.rng.integers(1, 3, n)],
    }  # fmt: skip
    weight = b.stored((8, 4 // group, *[2] * n), (None, 0)[seed % 2], offset=seed % 3 == 0)
    y = b.add("Conv", x, weight, *([b.bias(8)] if seed % 4 else []), group=group, **window)
    check(b, b.pair(b.add(("Relu", "Sigmoid", "Identity")[seed % 3], y)))


@pytest.mark.parametrize("seed", range(8))
def test_matrix_products(seed: int) -> None:
    """Gemm with either form of its weight, MatMul of three axes, with a scale a column."""
    b = Quantized(13, seed)
    offset = seed % 3 == 0
    if seed % 2:
        x, turned = b.pair(b.input((5, 12))), seed % 4 == 1
        shape = (7, 12) if turned else (12, 7)
        y = b.add("Gemm", x, b.stored(shape, int(not turned), offset), b.bias(7), transB=int(turned), alpha=1.0)
    else:
        x = b.pair(b.input((2, 5, 12)))
        y = b.add("Add", b.add("MatMul", x, b.stored((12, 7), (1, None)[seed % 4 // 2], offset)), b.around(0, 7))
    check(b, b.pair(y))


def test_products_of_activations() -> None:
    """Scores and their values in attention: no operand is a weight."""
    b = Quantized(13)
    q, k, v = (b.pair(b.input((2, 3, 5, 8))) for _ in range(3))
    scores = b.add("MatMul", q, b.add("Transpose", k, perm=[0, 1, 3, 2]))
    held = b.pair(b.add("Softmax", scores, axis=-1), 1 / 255, np.uint8, 0)
    check(b, b.pair(b.add("MatMul", held, v)))


def network(b: Quantized) -> str:
    """A residual network whose pools, joins, cuts and reshapes stand between pairs of equal scales."""
    same: dict[str, Any] = {"scale": 0.05, "dtype": np.uint8, "zero": 100}
    x = b.pair(b.input((1, 3, 12, 12)), **same)
    y = b.pair(b.add("Conv", x, b.stored((8, 3, 3, 3), 0), b.bias(8), pads=[1] * 4), **same)
    y = b.pair(b.add("MaxPool", b.add("Relu", y), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4), **same)
    z = b.pair(b.add("Conv", y, b.stored((8, 1, 3, 3), 0), b.bias(8), pads=[1] * 4, group=8), **same)
    y = b.pair(b.add("Add", y, z), **same)
    y = b.pair(b.add("Concat", y, z, axis=1), **same)
    flat = b.add("Reshape", b.add("Transpose", y, perm=[0, 2, 3, 1]), b.ints(1, 36, 16))
    return b.pair(b.add("MatMul", flat, b.stored((16, 5), 1)), scale=0.05)


def test_what_is_between_products_stays_integer() -> None:
    b = Quantized(13)
    made = RealizeQuantized()(check(b, network(b), step=0.05))
    kinds = {e.op.name: e.dtype for e in post_order(made["main"].body) if isinstance(e, Call)}
    assert {name: kinds[name] for name in ("nn.max_pool2d", "concatenate", "transpose")} == {
        "nn.max_pool2d": "uint8", "concatenate": "uint8", "transpose": "uint8"}  # fmt: skip


def small(b: Quantized) -> str:
    """One convolution."""
    y = b.add("Conv", b.pair(b.input((1, 3, 8, 7))), b.stored((8, 3, 3, 3), 0, offset=True), b.bias(8), pads=[1] * 4)
    return b.pair(b.add("Relu", y), scale=0.05)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("make", [small, pytest.param(network, marks=pytest.mark.long)])
def test_a_network_compiled_for_c(make: Callable[[Quantized], str]) -> None:
    b = Quantized(13)
    model = b.model(make(b))
    module, _ = from_onnx(model)
    compiled = relay.graph_executor.GraphModule(relay.build(module, "c")["default"]())
    compiled.run(**b.feeds)
    got = np.asarray(compiled.get_output(0))
    near([got], onnxruntime_run(model, b.feeds), 0.05)
    near([got], [np.asarray(run(module, b.feeds))], 0.05)


@pytest.mark.long
@pytest.mark.skipif(not available_compilers(), reason="no CUDA compiler")
def test_a_network_compiles_for_cuda() -> None:
    b = Quantized(13)
    module, _ = from_onnx(b.model(network(b)))
    assert relay.build(module, "cuda -arch=sm_90").plan.steps


def test_a_sum_that_may_not_fit_stays_in_floats() -> None:
    """255 * 255 * 40000 is more than int32 holds."""
    b = Quantized(13)
    y = b.add("MatMul", b.pair(b.input((2, 40000)), 0.01, np.uint8, 0), b.pair(b.input((40000, 3)), 0.01, np.uint8, 0))
    made = RealizeQuantized()(from_onnx(b.model(y))[0])
    assert [e.dtype for e in products(made)] == ["float32"]


@pytest.mark.parametrize("kind", ["constant", "fed"])
@pytest.mark.parametrize("op", ["ConvInteger", "QLinearConv", "MatMulInteger", "QLinearMatMul"])
def test_operators_on_integers(op: str, kind: str) -> None:
    """Random integers with zero points of both operands, of the weight one a channel; scales that are known or not.

    Weights keep to seven bits: on processors with AVX2 and without VNNI, onnxruntime adds pairs of products of uint8
    and int8 in 16 bits, which saturate (its issue 6004).
    """
    rng, b = np.random.default_rng(7), Builder(13)

    def given(value: Any, dtype: type) -> str:
        array: Array = np.asarray(value, dtype)
        if kind == "constant":
            return b.array(array, dtype)
        name = b.input(array.shape, dtype, 1)
        b.feeds[name] = array
        return name

    conv = op.endswith("Conv") or op.startswith("Conv")
    x = b.input((2, 4, 6, 5) if conv else (3, 6, 8), np.uint8, 255)
    w = given(rng.integers(-64, 64, (6, 2, 3, 2) if conv else (8, 6)), np.int8)
    zeros = given(117, np.uint8), given(rng.integers(-9, 9, () if op == "ConvInteger" else 6), np.int8)
    attrs: dict[str, Any] = {"group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1]} if conv else {}
    if op.startswith("QLinear"):
        scales = given(0.02, np.float32), given(rng.uniform(0.001, 0.01, 6), np.float32)
        out = given(0.1, np.float32), given(3, np.uint8)
        bias = [b.array(rng.integers(-500, 500, 6), np.int32)] if conv else []
        y = b.add(op, x, scales[0], zeros[0], w, scales[1], zeros[1], *out, *bias, **attrs)
    else:
        y = b.add(op, x, w, *zeros, **attrs)
    compare(b.model(y, declared={y: TensorProto.UINT8 if op.startswith("QLinear") else TensorProto.INT32}), b.feeds)
