"""Operators of `com.microsoft` by their pages' formulas in float64, and by onnxruntime where it has them."""

from __future__ import annotations

import importlib
import math
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from relay_lite.frontend import from_onnx
from relay_lite.frontend.onnx.domains import ADOPTED
from relay_lite.ir.errors import GraphError
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, compiled, node_model, of_onnx

pytestmark = [pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++"),
              pytest.mark.one_in(3)]  # fmt: skip
MS = ("com.microsoft", 1)
MISSING = ("NOT_IMPLEMENTED", "not implemented", "does not support", "cannot have both")
"""What onnxruntime says where it has an operator, but not this form of it."""


def model_of(
    op: str, inputs: Sequence[Array | None], outputs: Sequence[str], **attrs: Any
) -> tuple[onnx.ModelProto, list[Array]]:
    """A model of one node whose weights (marked by being read-only) are initializers, and its other inputs."""
    names = ["" if a is None else f"x{k}" for k, a in enumerate(inputs)]
    domain = "" if op in ADOPTED else MS[0]
    node = helper.make_node(op, names, outputs, domain=domain, **attrs)
    given = [(n, a) for n, a in zip(names, inputs, strict=True) if a is not None]
    kept = [(n, a) for n, a in given if a.flags.writeable]
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in kept]
    weights = [onnx.numpy_helper.from_array(a, n) for n, a in given if not a.flags.writeable]
    outs = [onnx.ValueInfoProto(name=y) for y in outputs if y]
    graph = helper.make_graph([node], "g", infos, outs, weights)
    opsets = [helper.make_opsetid("", 15), helper.make_opsetid(*MS)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), [a for _, a in kept]


def weight(x: Any) -> Array:
    """An array that is known when the model is read."""
    out = np.array(x)
    out.flags.writeable = False
    return out


def by_onnxruntime(model: onnx.ModelProto, arrays: Sequence[Array]) -> list[Array] | None:
    """What onnxruntime gives; None where it is not installed, or has no program for the CPU."""
    try:
        runtime = importlib.import_module("onnxruntime")
    except ImportError:
        return None
    runtime.set_default_logger_severity(4)
    names = [v.name for v in model.graph.input]
    try:
        session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        return list(session.run(None, dict(zip(names, arrays, strict=True))))
    except Exception as error:  # its exceptions have no common name
        assert any(word in str(error) for word in MISSING), error
        return None


def check(
    op: str, inputs: Sequence[Array | None], wants: Sequence[Any], names: Sequence[str] = ("y",), tol: float = 1e-5,
    quanta: int = 0, **attrs: Any,
) -> None:  # fmt: skip
    """All named outputs: floats within `tol` of the largest, integers within `quanta`; of the page, of onnxruntime."""
    model, arrays = model_of(op, inputs, names, **attrs)
    theirs = by_onnxruntime(model, arrays)
    for who, found in nonempty(of_onnx(model, arrays)):
        for oracle, values in nonempty([("page", wants), *([] if theirs is None else [("onnxruntime", theirs)])]):
            for got, want in nonempty(zip(found, values, strict=True)):
                want = np.asarray(want)
                assert got.shape == want.shape, (who, oracle, got.shape, want.shape)
                if got.dtype.kind == "f":
                    atol = tol * max(1.0, float(np.abs(want).max(initial=0)))
                    np.testing.assert_allclose(got, want, rtol=0, atol=atol, err_msg=f"{op}: {who}, {oracle}")
                else:
                    apart = np.abs(got.astype("int64") - np.rint(want).astype("int64"))
                    assert apart.max(initial=0) <= quanta, (op, who, oracle, got.ravel()[:9], want.ravel()[:9])
        if theirs is not None:
            assert [g.dtype for g in found] == [t.dtype for t in theirs], who


def floats(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def gelu(x: Array) -> Array:
    return np.vectorize(lambda v: v * 0.5 * (1 + math.erf(v / math.sqrt(2))))(np.asarray(x, "float64"))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-np.asarray(x, "float64")))


@pytest.mark.long
def test_gelus_and_biases() -> None:
    x, bias = floats(1, 2, 3, 8) * 3, weight(floats(2, 8))
    line = x.astype("float64") + bias
    check("Gelu", [x], [gelu(x)])
    check("BiasGelu", [x, bias], [gelu(line)])
    for given, y in ((None, x.astype("float64")), (bias, line)):
        fast = 0.5 * y * (1 + np.tanh(0.797885 * y + 0.035677 * y**3))
        check("FastGelu", [x] if given is None else [x, given], [fast])
    check("QuickGelu", [x], [x * sigmoid(1.702 * x)])
    check("QuickGelu", [x], [x * sigmoid(0.5 * x)], alpha=0.5)
    check("BiasSplitGelu", [x, bias], [line[..., :4] * gelu(line[..., 4:])])
    check("BiasAdd", [x, bias, x], [line + x])
    shift = floats(3, 2, 1, 1, 8)
    data = floats(4, 2, 3, 5, 8)
    e = np.exp(data.astype("float64") + shift)
    check("BiasSoftmax", [data, shift], [e / e.sum(-1, keepdims=True)], axis=3, is_inner_broadcast=1)


def normalised(x: Array, epsilon: float) -> tuple[Array, Array, Array]:
    mean = x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + epsilon)
    return (x - mean) * inverse, mean, inverse


@pytest.mark.parametrize("bias", [False, True])
def test_norms_with_residuals(bias: bool) -> None:
    x, skip, scale, shift = floats(5, 2, 3, 8), floats(6, 2, 3, 8), weight(floats(7, 8)), weight(floats(8, 8))
    more = weight(floats(9, 8)) if bias else None
    total = x.astype("float64") + skip + (0 if more is None else more)
    want = normalised(total, 1e-3)[0] * scale + shift
    check("SkipLayerNormalization", [x, skip, scale, shift, more], [want, total], ["y", "", "", "s"], epsilon=1e-3)
    check(
        "SkipLayerNormalization", [x, skip[:1], scale], [normalised(x + skip[:1].astype("float64"), 1e-12)[0] * scale]
    )
    root = 1 / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-3)
    check("SkipSimplifiedLayerNormalization", [x, skip, scale, more], [total * root * scale, total],
          ["y", "", "", "s"], epsilon=1e-3)  # fmt: skip
    plain = 1 / np.sqrt((x.astype("float64") ** 2).mean(-1, keepdims=True) + 1e-5)
    check("SimplifiedLayerNormalization", [x, scale], [x * plain * scale], axis=-1)
    check("LayerNormalization", [x, scale, shift], [normalised(x.astype("float64"), 1e-5)[0] * scale + shift])


def test_embeddings() -> None:
    rng = np.random.default_rng(10)
    ids, kinds = rng.integers(0, 9, (2, 5)).astype("int32"), rng.integers(0, 2, (2, 5)).astype("int32")
    tables = [weight(floats(k, n, 8)) for k, n in ((11, 9), (12, 7), (13, 2))]
    scale, shift = weight(floats(14, 8)), weight(floats(15, 8))
    mask = np.array([[1, 1, 1, 0, 0], [1] * 5], "int32")
    places = rng.integers(0, 7, (2, 5)).astype("int32")
    total = tables[0][ids].astype("float64") + tables[1][:5] + tables[2][kinds]
    want = normalised(total, 1e-12)[0] * scale + shift
    check("EmbedLayerNormalization", [ids, kinds, *tables, scale, shift, mask], [want, [3, 5]], ["y", "m"])
    total = tables[0][ids].astype("float64") + tables[1][places]
    want = normalised(total, 1e-5)[0] * scale + shift
    check("EmbedLayerNormalization", [ids, None, *tables[:2], None, scale, shift, None, places],
          [want, [0, 0], total], ["y", "m", "s"], epsilon=1e-5)  # fmt: skip


@pytest.mark.long
def test_group_norm() -> None:
    x, scale, shift = floats(16, 2, 4, 3, 8), weight(floats(17, 8)), weight(floats(18, 8))
    for last in (1, 0):
        data = x if last else np.ascontiguousarray(x.transpose(0, 3, 1, 2))
        parts = x.astype("float64").reshape(2, 12, 4, 2).transpose(0, 2, 1, 3).reshape(2, 4, 24)
        normal = normalised(parts, 1e-4)[0].reshape(2, 4, 12, 2).transpose(0, 2, 1, 3).reshape(x.shape)
        want = normal * scale + shift
        want = want * sigmoid(want)
        want = want if last else want.transpose(0, 3, 1, 2)
        check("GroupNorm", [data, scale, shift], [want], groups=4, activation=1, epsilon=1e-4, channels_last=last)


@pytest.mark.parametrize("seed", range(6))
def test_fused_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    turned, batch = [int(v) for v in rng.integers(0, 2, 2)], [int(v) for v in rng.integers(0, 2, 2)]
    lead = (2, 3)
    operands, plain = [], []
    for k, (rows, columns) in enumerate(((4, 5), (5, 6))):
        m = rng.normal(size=(*lead, rows, columns))
        plain.append(m)
        m = np.swapaxes(m, -1, -2) if turned[k] else m
        operands.append(np.ascontiguousarray(np.moveaxis(m, -2, 0) if batch[k] else m).astype("float32"))
    check("FusedMatMul", operands, [1.5 * (plain[0] @ plain[1])], alpha=1.5, transA=turned[0], transB=turned[1],
          transBatchA=batch[0], transBatchB=batch[1])  # fmt: skip


ACTIVATIONS: dict[str, tuple[list[float], Any]] = {
    "Relu": ([], lambda y: np.maximum(y, 0)),
    "Tanh": ([], np.tanh),
    "Sigmoid": ([], sigmoid),
    "LeakyRelu": ([0.25], lambda y: np.where(y > 0, y, 0.25 * y)),
    "HardSigmoid": ([0.25, 0.5], lambda y: np.clip(0.25 * y + 0.5, 0, 1)),
    "Clip": ([-0.5, 1.0], lambda y: np.clip(y, -0.5, 1.0)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_fused_activations(name: str) -> None:
    params, function = ACTIVATIONS[name]
    x, kernel, bias = floats(20, 1, 3, 6, 5), weight(floats(21, 4, 3, 3, 3)), weight(floats(22, 4))
    out = np.zeros((1, 4, 4, 3))
    for i, j in np.ndindex(4, 3):
        window = x[:, :, i : i + 3, j : j + 3].astype("float64")
        out[:, :, i, j] = np.einsum("ncij,ocij->no", window, kernel.astype("float64")) + bias
    more = {"activation_params": params} if params else {}
    check("FusedConv", [x, kernel, bias], [function(out)], activation=name, **more)
    residual = floats(23, *out.shape)
    if name == "Relu":
        check("FusedConv", [x, kernel, bias, residual], [function(out + residual)], activation=name)
    a, b, c = floats(24, 4, 5), weight(floats(25, 6, 5)), weight(floats(26, 6))
    want = function(0.5 * a.astype("float64") @ b.T.astype("float64") + 2 * c)
    named = dict(zip(("activation_alpha", "activation_beta"), params, strict=False))
    if name != "Clip":
        check("FusedGemm", [a, b, c], [want], transB=1, alpha=0.5, beta=2.0, activation=name, **named)


def test_channels_last() -> None:
    x = np.random.default_rng(27).integers(0, 256, (1, 5, 6, 3)).astype("uint8")
    want = np.array([[[[x[0, i : i + 2, j : j + 3, c].max() for c in range(3)] for j in (0, 2)] for i in range(4)]])
    check("NhwcMaxPool", [x], [want], kernel_shape=[2, 3], strides=[1, 2])
    data, kernel, bias = floats(45, 1, 4, 5, 3), weight(floats(46, 2, 3, 2, 2)), weight(floats(47, 2))
    out = np.zeros((1, 3, 4, 2))
    for i, j in np.ndindex(3, 4):
        window = data[:, i : i + 2, j : j + 2].astype("float64")
        out[:, i, j] = np.einsum("nijc,ocij->no", window, kernel.astype("float64")) + bias
    check("NhwcConv", [data, kernel, bias], [out], kernel_shape=[2, 2])
    check("NhwcFusedConv", [data, kernel, bias, out.astype("float32")], [np.maximum(2 * out, 0)], activation="Relu",
          kernel_shape=[2, 2])  # fmt: skip
    a, w = Stored(48, "uint8", 1, 4, 5, 3), Stored(49, "int8", 2, 3, 2, 2)
    for i, j in np.ndindex(3, 4):
        out[:, i, j] = np.einsum("nijc,ocij->no", a.real[:, i : i + 2, j : j + 2], w.real)
    parts = [*a.inputs, weight(w.codes), *w.inputs[1:], weight(np.float32(0.1)), weight(np.array(90, "uint8"))]
    check("QLinearConv", parts, [requantized(out, 0.1, 90, "uint8")], quanta=1, channels_last=1)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero", ["none", "packed", "floats"])
def test_weights_of_a_few_bits(bits: int, zero: str) -> None:
    rng, n, k, size = np.random.default_rng(bits), 5, 40, 16
    blocks = 3
    codes = rng.integers(0, 2**bits, (n, blocks, size))
    packed = np.zeros((n, blocks, size * bits // 8), "uint8")
    for (row, block, at), code in np.ndenumerate(codes):
        packed[row, block, at * bits // 8] |= int(code) << (at * bits % 8)
    scales = np.abs(floats(28, n, blocks))
    zeros = np.full((n, blocks), 2 ** (bits - 1)) if zero == "none" else rng.integers(0, 2**bits, (n, blocks))
    stored = np.zeros((n, -(-blocks * bits // 8)), "uint8")
    for (row, block), point in np.ndenumerate(zeros):
        stored[row, block * bits // 8] |= int(point) << (block * bits % 8)
    given = {"none": None, "packed": weight(stored), "floats": weight(zeros.astype("float32"))}[zero]
    dense = np.zeros((n, k))
    for row, column in np.ndindex(n, k):
        block, at = divmod(column, size)
        dense[row, column] = (codes[row, block, at] - zeros[row, block]) * float(scales[row, block])
    x, bias = floats(29, 2, 3, k), weight(floats(30, n))
    inputs = [x, weight(packed), weight(scales), given, None, bias]
    check("MatMulNBits", inputs, [x @ dense.T + bias], tol=1e-4, K=k, N=n, bits=bits, block_size=size)
    half = [None if a is None else weight(a.astype("float16")) if a.dtype == np.float32 else a for a in inputs]
    half[0] = x.astype("float16")
    model, arrays = model_of("MatMulNBits", half, ["y"], K=k, N=n, bits=bits, block_size=size)
    (got,) = compiled(from_onnx(model)[0], arrays)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got.astype("float32"), x @ dense.T + bias, rtol=0.01, atol=0.02 * 2**bits)


def test_weights_of_a_few_bits_that_are_refused() -> None:
    x, b, s = floats(31, 2, 16), weight(np.zeros((4, 1, 8), "uint8")), weight(np.ones((4, 1), "float32"))
    for attrs, said in (
        ({"bits": 3}, "bits are 2, 4, 8"), ({"block_size": 8}, "power of two of at least 16"),
        ({"K": 15}, "A must have a last axis of 15"), ({"N": 5}, r"B must be bytes \(5, 1, 8\)"),
        ({"weight_prepacked": 1}, "weight_prepacked must be 0"),
    ):  # fmt: skip
        with pytest.raises(GraphError, match=said):
            from_onnx(model_of("MatMulNBits", [x, b, s], ["y"], **({"K": 16, "N": 4, "block_size": 16} | attrs))[0])
    with pytest.raises(GraphError, match="input 1 must be known when the model is read"):
        from_onnx(model_of("MatMulNBits", [x, np.array(b), s], ["y"], K=16, N=4, block_size=16)[0])


class Stored:
    """A tensor in 8 bits: codes, scale, zero point, and the numbers that they mean."""

    def __init__(self, seed: int, dtype: str, *shape: int) -> None:
        rng = np.random.default_rng(seed)
        info = np.iinfo(dtype)
        self.codes = rng.integers(info.min, info.max + 1, shape).astype(dtype)
        self.scale, self.zero = np.float32(rng.uniform(0.01, 0.05)), int(rng.integers(info.min, info.max + 1))
        self.real = (self.codes.astype("float64") - self.zero) * float(self.scale)

    @property
    def inputs(self) -> list[Array]:
        return [self.codes, weight(self.scale), weight(np.array(self.zero, self.codes.dtype))]


def requantized(y: Array, scale: float, zero: int, dtype: str) -> Array:
    info = np.iinfo(dtype)
    return np.clip(np.rint(y / float(np.float32(scale))) + zero, info.min, info.max)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_elements_in_8_bits(dtype: str) -> None:
    a, b = Stored(31, dtype, 2, 3, 16), Stored(32, dtype, 3, 1)
    scale, zero = 0.07, 11
    out = [weight(np.float32(scale)), weight(np.array(zero, dtype))]

    def asked(op: str, inputs: list[Array], y: Array, **attrs: Any) -> None:
        check(op, [*inputs, *out], [requantized(y, scale, zero, dtype)], quanta=1, **attrs)

    asked("QLinearAdd", a.inputs + b.inputs, a.real + b.real)
    asked("QLinearMul", a.inputs + b.inputs, a.real * b.real)
    asked("QLinearLeakyRelu", a.inputs, np.where(a.real >= 0, a.real, 0.125 * a.real), alpha=0.125)
    asked("QLinearSigmoid", a.inputs, sigmoid(a.real))
    asked("QLinearReduceMean", a.inputs, a.real.mean(1, keepdims=True), axes=[1], keepdims=1)
    check("QLinearConcat", [*out, *a.inputs, *Stored(33, dtype, 2, 3, 2).inputs],
          [requantized(np.concatenate([a.real, Stored(33, dtype, 2, 3, 2).real], 2), scale, zero, dtype)],
          quanta=1, axis=2)  # fmt: skip
    condition, other = np.random.default_rng(34).random((2, 3, 16)) < 0.5, Stored(35, dtype, 16)
    asked("QLinearWhere", [condition, *a.inputs, *other.inputs], np.where(condition, a.real, other.real))
    fine = [weight(np.float32(1 / 256)), weight(np.array(0 if dtype == "uint8" else -128, dtype))]
    for opset, axes in ((13, (1,)), (11, (1, 2))):
        e = np.exp(a.real - a.real.max(axes, keepdims=True))
        want = requantized(e / e.sum(axes, keepdims=True), 1 / 256, int(fine[1]), dtype)
        check("QLinearSoftmax", [*a.inputs, *fine], [want], quanta=1, opset=opset, axis=1)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("last", [0, 1])
def test_pools_in_8_bits(dtype: str, last: int) -> None:
    x = Stored(36, dtype, 2, 3, 7, 6)
    data = [np.ascontiguousarray(np.moveaxis(x.codes, 1, -1)) if last else x.codes, *x.inputs[1:]]
    scale, zero = 0.03, 5
    out = [weight(np.float32(scale)), weight(np.array(zero, dtype))]

    def turned(y: Array) -> Array:
        return np.moveaxis(y, 1, -1) if last else y

    for counted in (0, 1):
        want = np.zeros((2, 3, 4, 3))
        for i, j in np.ndindex(4, 3):
            rows, columns = range(i * 2 - 1, i * 2 + 2), range(j * 2 - 1, j * 2 + 1)
            inside = [(r, c) for r in rows for c in columns if 0 <= r < 7 and 0 <= c < 6]
            total = sum(x.real[:, :, r, c] for r, c in inside)
            want[:, :, i, j] = total / (6 if counted else len(inside))
        check("QLinearAveragePool", [*data, *out], [requantized(turned(want), scale, zero, dtype)], quanta=1,
              kernel_shape=[3, 2], strides=[2, 2], pads=[1, 1, 1, 0][:4], count_include_pad=counted,
              channels_last=last)  # fmt: skip
    want = x.real.mean((2, 3), keepdims=True)
    check("QLinearGlobalAveragePool", [*data, *out], [requantized(turned(want), scale, zero, dtype)], quanta=1,
          channels_last=last)  # fmt: skip


@pytest.mark.parametrize("columns", [False, True])
def test_products_of_integers(columns: bool) -> None:
    a, b = Stored(37, "uint8", 2, 4, 6), Stored(38, "int8", 6, 5)
    rng = np.random.default_rng(39)
    scales = rng.uniform(0.01, 0.05, 5 if columns else ()).astype("float32")
    zeros = rng.integers(-9, 9, 5 if columns else ()).astype("int8")
    real = (b.codes.astype("float64") - zeros) * scales
    bias = weight(floats(40, 5))
    scale, zero = weight(a.scale), weight(np.array(a.zero, "uint8"))
    check("MatMulIntegerToFloat", [a.codes, weight(b.codes), scale, weight(scales), zero, weight(zeros), bias],
          [a.real @ real + bias])  # fmt: skip
    x = floats(41, 2, 4, 6)
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    step = np.float32((np.float32(high) - np.float32(low)) / np.float32(255))
    point = np.rint(-np.float32(low) / step)
    coded = (np.clip(np.rint(x / step) + point, 0, 255) - point) * float(step)
    check("DynamicQuantizeMatMul", [x, weight(b.codes), weight(scales), weight(zeros), bias], [coded @ real + bias])
    c = weight(rng.integers(-500, 500, 5).astype("int32"))
    single = Stored(42, "uint8", 4, 6)
    factor = 0.5 * float(single.scale) * scales.astype("float64")
    exact = (single.codes.astype("int64") - single.zero) @ (b.codes.astype("int64") - zeros) + c
    parts = [single.codes, *single.inputs[1:], weight(b.codes.T.copy()), weight(scales), weight(zeros), c]
    check("QGemm", parts, [exact * factor], transB=1, alpha=0.5)
    out = [weight(np.float32(0.2)), weight(np.array(7, "uint8"))]
    check("QGemm", parts + out, [requantized(exact * factor, 0.2, 7, "uint8")], quanta=1, transB=1, alpha=0.5)
    check("MulInteger", [a.codes, zero, a.codes, zero], [(a.codes.astype("int64") - a.zero) ** 2])


def test_one_scale_for_all_unless_there_is_an_axis() -> None:
    x, scale, zero = floats(43, 3, 4) * 9, np.array([0.1, 0.2, 0.05, 0.3], "float32"), np.array([1, 2, 3, 4], "int8")
    want = np.clip(np.rint(x / scale.astype("float64")) + zero, -128, 127)
    check("QuantizeLinear", [x, weight(scale), weight(zero)], [want], quanta=1, axis=1)
    codes = want.astype("int8")
    check("DequantizeLinear", [codes, weight(scale), weight(zero)], [(codes.astype("float64") - zero) * scale], axis=1)
    check("DequantizeLinear", [codes, weight(scale[0]), weight(zero[0])], [(codes.astype("float64") - 1) * scale[0]])


def test_operators_that_onnx_has_too() -> None:
    x, rng = floats(50, 2, 3, 4), np.random.default_rng(51)
    check("ExpandDims", [x, weight(np.array(-2, "int32"))], [x[:, :, None]])
    check("Trilu", [x, weight(np.array(1))], [np.triu(x, 1)])
    at = rng.integers(0, 2, (3, 2))
    check("GatherND", [x, at], [x[at[:, 0], at[:, 1]]])
    check("Pad", [x, weight(np.array([0, 1, 0, 1, 0, 2])), weight(np.float32(7))],
          [np.pad(x, [(0, 1), (1, 0), (0, 2)], constant_values=7)])  # fmt: skip
    a, b = (rng.integers(-300, 300, shape).astype("int16") for shape in ((3, 4), (4, 5)))
    check("MatMulInteger16", [a, b], [a.astype("int64") @ b])


def test_an_operator_of_the_domain_that_is_not_read_is_named() -> None:
    with pytest.raises(GraphError, match=r"not supported: com\.microsoft::Snpe"):
        from_onnx(node_model("Snpe", [floats(44, 2)], domain=MS))
