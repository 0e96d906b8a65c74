"""Functions at their edges: log-sum-exp of infinities, exp(x) - 1 near 0, signs, squares, halved powers, slopes."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable

import numpy as np
import pytest
from onnx import numpy_helper

import relay_lite as relay
import te_lite as te
from codegen_cuda import emit
from te_lite.lowering.lower import lower
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_graph, of_onnx, of_vectors, same_bits

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++")

INF, NAN = math.inf, math.nan


def log_sum_exp(row: Array) -> float:
    """Of numbers whose exponentials do not overflow in float64."""
    if np.isnan(row).any():
        return NAN
    total = math.fsum(0.0 if v == -INF else INF if v == INF else math.exp(v) for v in map(float, row))
    return -INF if total == 0 else INF if total == INF else math.log(total)


def rows(seed: int, dtype: str) -> Array:
    """The reported rows, and others with infinities."""
    rng = np.random.default_rng(seed)
    fixed = [
        [-INF, -INF, -INF],
        [INF, 1, 2],
        [INF, -INF, 0],
        [INF, INF, INF],
        [0, NAN, INF],
        [-INF, 3, -INF],
        [80, 81, 82],
    ]
    drawn = rng.choice([INF, -INF, 0.0, 1.5, -20.0, 30.0], (9, 3), p=[0.1, 0.3, 0.15, 0.15, 0.15, 0.15])
    return np.concatenate([fixed, drawn]).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_log_sum_exp(dtype: str) -> None:
    x = rows(1, dtype)
    want = np.array([log_sum_exp(row.astype("float64")) for row in x])
    model = node_model("ReduceLogSumExp", [x], opset=13, axes=[1], keepdims=0)
    for who, (got,) in nonempty(of_onnx(model, [x])):
        limit = 1e-6 if dtype in ("float32", "float64") else 2e-2
        np.testing.assert_allclose(got.astype("float64"), want, limit, limit, err_msg=who)


OVER_NOTHING: dict[str, Callable[[float], float]] = {
    "ReduceSum": lambda v: v, "ReduceMean": lambda v: v, "ReduceMax": lambda v: v, "ReduceMin": lambda v: v,
    "ReduceProd": lambda v: v, "ReduceLogSumExp": lambda v: v, "ReduceL1": abs, "ReduceL2": abs,
    "ReduceSumSquare": lambda v: v * v, "ReduceLogSum": math.log,
}  # fmt: skip


@pytest.mark.parametrize("op", OVER_NOTHING)
def test_reductions_over_no_axis(op: str) -> None:
    """What is done to each element is done; nothing is added up."""
    x = np.array([[1.5, -2.0, 3.0], [0.25, 4.0, -5.0]], "float32")
    x = np.abs(x) if op == "ReduceLogSum" else x
    model = node_model(op, [x], noop_with_empty_axes=1)
    want = np.array([[OVER_NOTHING[op](float(v)) for v in row] for row in x])
    for who, (got,) in nonempty(of_onnx(model, [x])):
        np.testing.assert_allclose(got, want, 1e-6, err_msg=who)


def near_zero(dtype: str) -> Array:
    sizes = 10.0 ** np.linspace(-7, 0.5, 40) if dtype != "float16" else 10.0 ** np.linspace(-3, 0.5, 40)
    return np.concatenate([-sizes, [-0.0, 0.0, -30.0, -200.0, -INF, INF, NAN, 2.5]]).astype(dtype)


ALPHA, GAMMA = float(np.float32(1.6732632423543772)), float(np.float32(1.0507009873554805))
"""Attributes of ONNX are float32, those that are absent, too."""
LESS_ONE: dict[str, tuple[dict[str, float], Callable[[float], float]]] = {
    "Elu": ({"alpha": 0.75}, lambda v: 0.75 * math.expm1(v)),
    "Selu": ({}, lambda v: GAMMA * ALPHA * math.expm1(v)),
    "Celu": ({"alpha": 2.0}, lambda v: 2.0 * math.expm1(v / 2)),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("op", LESS_ONE)
def test_less_one_near_zero(op: str, dtype: str) -> None:
    """The relative error is that of a few roundings, however small the argument."""
    if op == "Celu" and dtype != "float32":
        pytest.skip("ONNX defines Celu for float32")
    attrs, below = LESS_ONE[op]
    x = near_zero(dtype)
    scale = GAMMA if op == "Selu" else 1.0
    want = np.array([v if math.isnan(v) else scale * v if v > 0 else below(v) for v in map(float, x)])
    for who, (got,) in nonempty(of_onnx(node_model(op, [x], **attrs), [x])):
        limit = {"float32": 2e-6, "float64": 1e-14, "float16": 6e-3}[dtype]
        np.testing.assert_allclose(got.astype("float64"), want, limit, err_msg=who)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_signs(dtype: str) -> None:
    """Of both zeros 0, of NaN NaN, as NumPy and onnxruntime have it."""
    x = np.array([NAN, -0.0, 0.0, -INF, INF, -1e-7, 2.0, -3.0], dtype)
    data = relay.var("x", x.shape, dtype)
    want = np.array([NAN, 0.0, 0.0, -1, 1, -1, 1, -1]).astype(dtype)
    want[5] = np.sign(float(x[5]))
    for who, (got,) in nonempty(of_graph(relay.Function((data,), relay.Tuple((relay.sign(data),))), [x])):
        same_bits(got, want, who)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_squares(dtype: str) -> None:
    """A power of 2.0 is a product on CUDA, too, and what it was."""
    x = np.array([NAN, -0.0, 0.0, -INF, INF, -1.5, 2.0, -3.0], dtype)
    for who, got in nonempty(of_vectors(lambda v: te.power(v, te.const(2.0, dtype)), [x])):
        same_bits(got, (x.astype("float64") ** 2).astype(dtype), who)
    data = te.placeholder((8,), dtype, "x")
    out = te.compute((8,), lambda i: te.power(data[i], te.const(2.0, dtype)), "out")
    s = te.create_schedule(out.op)
    s[out].bind(out.op.axis[0], te.thread_axis("threadIdx.x"))
    assert "pow" not in str(emit(lower(s, [data, out])))


def halved(v: float) -> float:
    """A power of 0.5 as C has it: of -inf it is inf and of -0 it is 0, which no root is."""
    return math.nan if v < 0 and v != -INF else math.pow(v, 0.5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_powers_of_a_half(dtype: str) -> None:
    """Whether the exponent is known or not; a root gave NaN and -0 where it was known."""
    x = np.array([NAN, -0.0, 0.0, -INF, INF, -1.5, 2.0, 9.0], dtype)
    want = np.array([halved(v) for v in map(float, x)]).astype(dtype)
    limit = {"float32": 2e-7, "float64": 1e-15, "float16": 1e-3}[dtype]

    def right(got: Array, who: str) -> None:
        np.testing.assert_allclose(got.astype("float64"), want.astype("float64"), limit, err_msg=who)
        np.testing.assert_array_equal(np.signbit(got[want == 0]), False, who)

    for exponent in (np.array(0.5, dtype), np.full(8, 0.5, dtype)):
        model = node_model("Pow", [x, exponent])
        for who, (got,) in nonempty(of_onnx(model, [x, exponent])):
            right(got, who)
        model.graph.initializer.append(numpy_helper.from_array(exponent, model.graph.input.pop().name))
        for who, (got,) in nonempty(of_onnx(model, [x])):
            right(got, f"{who}, a known exponent")
    for who, got in nonempty(of_vectors(lambda v: te.power(v, te.const(0.5, dtype)), [x])):
        right(got, who)


@pytest.mark.parametrize("shape", [(8,), (1,), (4, 1)])
@pytest.mark.parametrize("slope", [0.25, 0.0, -1.0, INF, NAN])
def test_slopes_of_prelu(slope: float, shape: tuple[int, ...]) -> None:
    """What is not negative stays what it is, whatever the slope is; infinite ones made NaN of it."""
    x = np.array([[NAN, -0.0, 0.0, -INF, INF, -1.5, 2.0, 1e-45]] * 4, "float32")
    slopes = np.full(shape, slope, "float32")
    want = np.array([[float(v) * slope if v < 0 else v for v in row] for row in x.astype("float64")], "float32")
    model = node_model("PRelu", [x, slopes])
    for who, (got,) in nonempty(of_onnx(model, [x, slopes])):
        np.testing.assert_array_equal(got, want, who)
    model.graph.initializer.append(numpy_helper.from_array(slopes, model.graph.input.pop().name))
    for who, (got,) in nonempty(of_onnx(model, [x])):
        np.testing.assert_array_equal(got, want, f"{who}, known slopes")
