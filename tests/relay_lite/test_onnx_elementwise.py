"""Elementwise operators, activations, norms and reductions of ONNX against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from onnx import TensorProto, helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from relay_lite.ir.reference import run
from tests.nonempty import nonempty
from tests.relay_lite.onnx_models import Builder, compare, layer_norm, operators

UNARY = {
    "Relu": 11, "Sigmoid": 11, "Tanh": 11, "Erf": 11, "Exp": 11, "Neg": 11, "Abs": 11, "Sign": 11, "Floor": 11,
    "Ceil": 11, "Round": 11, "Reciprocal": 11, "Sin": 11, "Cos": 11, "Identity": 11, "Softplus": 11, "Softsign": 11,
    "Elu": 11, "Selu": 11, "LeakyRelu": 11, "ThresholdedRelu": 11, "HardSigmoid": 11, "Celu": 12, "HardSwish": 14,
    "Mish": 18, "Gelu": 20, "Flatten": 11, "Transpose": 11,
}  # fmt: skip


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("op", UNARY)
def test_one_tensor(op: str, late: bool) -> None:
    b = Builder(21 if late else UNARY[op])
    b.rng = np.random.default_rng(len(op))
    x = b.input((3, 5, 7))
    b.feeds[x] = (b.feeds[x] * 4).astype(np.float32)
    compare(b.model(b.add(op, x)), b.feeds)


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Elu", {"alpha": 0.3}), ("Selu", {"alpha": 1.1, "gamma": 2.0}), ("Celu", {"alpha": 0.4}),
        ("LeakyRelu", {"alpha": 0.3}), ("ThresholdedRelu", {"alpha": 0.2}),
        ("HardSigmoid", {"alpha": 0.4, "beta": 0.1}),
        ("Gelu", {"approximate": "tanh"}), ("LpNormalization", {"axis": 1, "p": 1}), ("LpNormalization", {}),
        ("LRN", {"size": 3, "alpha": 0.01, "beta": 0.5, "bias": 2.0}), ("LRN", {"size": 5}),
    ],
    ids=str,
)  # fmt: skip
def test_attributes(op: str, attrs: dict[str, Any]) -> None:
    b = Builder(20)
    compare(b.model(b.add(op, b.input((2, 5, 4, 3)), **attrs)), b.feeds)


def test_gelu_of_the_contributed_domain() -> None:
    b = Builder(17)
    compare(b.model(b.add("Gelu", b.input((2, 5)), domain="com.microsoft")), b.feeds)


@pytest.mark.parametrize("positive", ["Sqrt", "Log"])
def test_positive_argument(positive: str) -> None:
    b = Builder(13)
    x = b.input((3, 5))
    b.feeds[x] = np.abs(b.feeds[x]) + np.float32(0.1)
    compare(b.model(b.add(positive, x)), b.feeds)


BROADCASTS = [((3, 5), (3, 5)), ((3, 5), (5,)), ((3, 1), (1, 5)), ((2, 3, 5), ()), ((5,), (2, 3, 1))]


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow", "Less", "Greater", "Equal", "LessOrEqual",
                                "GreaterOrEqual", "Max", "Min", "Sum", "Mean", "PRelu"])  # fmt: skip
def test_broadcasting(op: str, constant: bool) -> None:
    for shapes in nonempty(s for s in BROADCASTS if op != "PRelu" or np.broadcast_shapes(*s) == s[0]):
        b = Builder(17)
        x, y = b.input(shapes[0]), b.around(1.5, *shapes[1]) if constant else b.input(shapes[1])
        if op == "Pow":
            b.feeds[x] = np.abs(b.feeds[x])
        kind = TensorProto.BOOL if op in ("Less", "Greater", "Equal", "LessOrEqual", "GreaterOrEqual") else 1
        out = b.add(op, x, y)
        compare(b.model(out, declared={out: kind}), b.feeds)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0, 3.0, -1.0, 2.5])
def test_powers(exponent: float) -> None:
    b = Builder(13)
    x = b.input((2, 3, 5))
    b.feeds[x] = np.abs(b.feeds[x]) + np.float32(0.2)
    ops = operators(compare(b.model(b.add("Pow", x, b.array(exponent, np.float32))), b.feeds))
    assert (ops == ["multiply"]) == (exponent == 2)


@pytest.mark.parametrize("constant", ["", "x", "y", "xy"])
@pytest.mark.parametrize(
    "dtypes",
    [("int32", "int32"), ("int64", "int32"), ("int32", "int64"), ("int32", "float32"), ("float32", "int64"),
     ("float32", "float64")],
    ids="-".join,
)  # fmt: skip
def test_powers_of_two_dtypes(dtypes: tuple[str, str], constant: str) -> None:
    """Bases and exponents of either sign, constant or not; what is no number, or infinite, is left out."""
    b, rng = Builder(15), np.random.default_rng(len(constant))
    base, exponent = rng.choice([-3, -2, -1, 1, 2, 3], 40), rng.integers(-3, 4, 40)
    names = []
    for name, value, dtype in zip("xy", (base, exponent), dtypes, strict=True):
        names.append(b.array(value, np.dtype(dtype)) if name in constant else b.input((40,), np.dtype(dtype)))
        if name not in constant:
            b.feeds[names[-1]] = value.astype(dtype)
    out = b.add("Pow", *names)
    compare(b.model(out, declared={out: helper.np_dtype_to_tensor_dtype(np.dtype(dtypes[0]))}), b.feeds)


@pytest.mark.filterwarnings("error")
def test_a_constant_power_that_is_no_integer() -> None:
    """NaN becomes 0, what is too large the largest number, as where the base is not constant."""
    b = Builder(15)
    out = b.add("Pow", b.array([-2, 10, -10, 4], np.int32), b.array([0.5, 30, 31, 0.5], np.float32))
    module, params = from_onnx(b.model(out, declared={out: TensorProto.INT32}))
    np.testing.assert_array_equal(run(module, {}, params), [0, 2**31 - 1, -(2**31), 2])


def test_division_by_a_constant_is_a_product_where_that_is_exact_enough() -> None:
    for divisor, wanted in ((3.0, "multiply"), (0.0, "divide"), (3e38, "divide")):
        b = Builder(13)
        module = compare(b.model(b.add("Div", b.input((2, 3)), b.array(divisor, np.float32))), b.feeds)
        assert operators(module) == [wanted]


def test_a_prelu_slope_of_the_channels() -> None:
    b = Builder(13)
    module = compare(b.model(b.add("PRelu", b.input((2, 5, 3, 4)), b.around(0.2, 5, 1, 1))), b.feeds)
    assert operators(module) == ["nn.prelu"]


def test_integers_divide_towards_zero_and_mod_has_two_signs() -> None:
    b = Builder(14)
    x, y = b.input((4, 6), np.int64, high=20), b.input((4, 6), np.int64, high=5)
    b.feeds[x] -= 10
    b.feeds[y] = (b.feeds[y] + 1) * np.where(np.arange(6) % 2, 1, -1)
    outs = [b.add("Div", x, y), b.add("Mod", x, y), b.add("Mod", x, y, fmod=1)]
    compare(b.model(*outs, declared=dict.fromkeys(outs, TensorProto.INT64)), b.feeds)


def test_logic_and_casts() -> None:
    b = Builder(13)
    x, y = b.input((3, 4)), b.input((4,), np.int64, high=3)
    p, q = b.add("Cast", x, to=TensorProto.INT32), b.add("Cast", y, to=TensorProto.BOOL)
    r = b.add("Cast", b.add("Floor", x), to=TensorProto.BOOL)
    bools = [b.add("And", q, r), b.add("Or", q, r), b.add("Xor", q, r), b.add("Not", q), b.add("IsNaN", x), q, r]
    floats = [b.add("Where", q, x, b.array(2, np.float32)), b.add("Cast", r, to=1), b.add("Cast", y, to=1)]
    kinds = {p: TensorProto.INT32, **dict.fromkeys(bools, TensorProto.BOOL)}
    compare(b.model(p, *bools, *floats, declared=kinds), b.feeds)


def test_casts_and_identities_that_change_nothing_vanish() -> None:
    b = Builder(15)
    x = b.input((2, 3))
    y = b.add("Identity", b.add("CastLike", b.add("Cast", b.add("Dropout", x), to=1), b.array(0, np.float32)))
    y = b.add("Reshape", b.add("Transpose", b.add("Expand", y, b.ints(1, 3)), perm=[0, 1]), b.ints(0, -1))
    module = compare(b.model(y), b.feeds)
    assert module["main"].body is module["main"].params[0]


CLIPS = [(None, None), (-0.5, None), (None, 0.5), (-0.5, 0.5), (0.0, None), (0.0, 6.0), (0.4, -0.4)]


@pytest.mark.parametrize(
    ("opset", "bounds"),
    # before 11 onnxruntime refuses bounds that cross
    [(opset, bounds) for opset in (9, 11, 13) for bounds in CLIPS if opset >= 11 or bounds != CLIPS[-1]],
    ids=str,
)
def test_clip(opset: int, bounds: tuple[float | None, float | None]) -> None:
    for constant in (True, False):
        b = Builder(opset)
        x = b.input((4, 6))
        if opset < 11:
            y = b.add("Clip", x, **{k: v for k, v in zip(("min", "max"), bounds, strict=True) if v is not None})
        else:
            ends = [v if v is None else b.array(v, np.float32) if constant else b.input(()) for v in bounds]
            y = b.add("Clip", x, *(("" if v is None else v) for v in ends[: 2 if bounds[1] is not None else 1]))
        compare(b.model(y), b.feeds)


@pytest.mark.parametrize("opset", [11, 12, 13, 21])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_over_several_axes_before_13(op: str, opset: int) -> None:
    for axis in (None, 0, 1, 2, 3, -1, -2):
        b = Builder(opset)
        b.rng = np.random.default_rng(5)
        attrs = {} if axis is None else {"axis": axis}
        compare(b.model(b.add(op, b.input((2, 3, 4, 5)), **attrs)), b.feeds)


def test_softmax_before_13_needs_no_reshape_where_one_axis_is_left() -> None:
    b = Builder(11)
    outs = [b.add("Softmax", b.input((2, 3, 1, 1)), axis=1), b.add("Softmax", b.input((2, 3, 4)), axis=2)]
    assert operators(compare(b.model(*outs), b.feeds)) == ["nn.softmax", "nn.softmax"]


REDUCTIONS = ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
              "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum"]  # fmt: skip


@pytest.mark.parametrize("opset", [11, 13, 18, 20])
@pytest.mark.parametrize("op", REDUCTIONS)
@pytest.mark.one_in(3)
def test_reductions(op: str, opset: int) -> None:
    since = 13 if op == "ReduceSum" else 18
    for axes in ([1], [0, 2], [-1], [-1, 1, 0], None):
        for keep in (0, 1):
            b = Builder(opset)
            x = b.input((3, 4, 5))
            b.feeds[x] = np.abs(b.feeds[x]) + np.float32(0.1)
            if axes is None:
                y = b.add(op, x, keepdims=keep)
            else:
                y = b.with_list(op, x, axes, since, keepdims=keep)
            compare(b.model(y), b.feeds)


def test_no_axes_may_mean_no_reduction() -> None:
    b = Builder(18)
    x = b.input((3, 4))
    outs = [b.add("ReduceSum", x, noop_with_empty_axes=1), b.add("ReduceMax", x, b.ints(), noop_with_empty_axes=1),
            b.add("ReduceMean", x, b.ints())]  # fmt: skip
    compare(b.model(*outs), b.feeds)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("keep", [0, 1])
def test_positions_of_extremes(op: str, keep: int) -> None:
    b = Builder(13)
    out = b.add(op, b.input((3, 4, 5)), axis=-2, keepdims=keep)
    compare(b.model(out, declared={out: TensorProto.INT64}), b.feeds)


@pytest.mark.parametrize("attrs", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}], ids=str)
def test_running_sums(attrs: dict[str, int]) -> None:
    b = Builder(14)
    x, y = b.input((3, 4, 5)), b.input((3, 6), np.int64, high=9)
    outs = [b.add("CumSum", x, b.array(a, np.int64), **attrs) for a in (0, 1, -1)]
    ints = b.add("CumSum", y, b.array(1, np.int64), **attrs)
    compare(b.model(*outs, ints, declared={ints: TensorProto.INT64}), b.feeds)


@pytest.mark.parametrize("opset", [9, 11, 14, 15, 21])
def test_batch_norm(opset: int) -> None:
    for shape in ((2, 5, 3, 4), (2, 5, 3), (4, 5)):
        b = Builder(opset)
        compare(b.model(b.norm(b.input(shape), 5, 1e-3)), b.feeds)


def test_batch_norm_in_training() -> None:
    """Moments of the batch, and running moments that are moved towards them."""
    b = Builder(15)
    vectors = [b.around(1, 5) for _ in range(4)]
    outs = b.add("BatchNormalization", b.input((2, 5, 3, 4)), *vectors, outputs=3, training_mode=1)
    compare(b.model(*outs), b.feeds)


def test_an_output_that_is_not_supported_is_refused_only_when_it_is_read() -> None:
    b = Builder(13)
    vectors = [b.around(1, 5) for _ in range(4)]
    y, *moments = b.add("BatchNormalization", b.input((2, 5, 3, 4)), *vectors, outputs=5)
    compare(b.model(y), b.feeds)
    with pytest.raises(GraphError, match=r"output 3 of BatchNormalization 'BatchNormalization_\d*' is not supported"):
        from_onnx(b.model(y, moments[2]))


@pytest.mark.parametrize("axis", [-1, 1, 2, -2])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm(axis: int, bias: bool) -> None:
    b = Builder(17)
    shape = (2, 3, 4, 5)
    inner = shape[axis:]
    inputs = [b.input(shape), b.around(1, *inner)] + ([b.around(0, *inner)] if bias else [])
    compare(b.model(b.add("LayerNormalization", *inputs, axis=axis, epsilon=1e-3)), b.feeds)


def test_layer_norm_by_hand_multiplies_and_does_not_take_powers() -> None:
    b = Builder(13)
    ops = operators(compare(b.model(layer_norm(b, b.input((2, 3, 5)), 5)), b.feeds))
    assert "power" not in ops


@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 4, 3)])
def test_instance_and_group_norm(shape: tuple[int, ...]) -> None:
    b = Builder(13)
    compare(b.model(b.add("InstanceNormalization", b.input(shape), b.around(1, 6), b.around(0, 6))), b.feeds)
    b = Builder(21)
    out = b.add("GroupNormalization", b.input(shape), b.around(1, 6), b.around(0, 6), num_groups=3, epsilon=1e-3)
    compare(b.model(out), b.feeds)


def test_group_norm_before_21_has_one_scale_a_group() -> None:
    """onnxruntime has no kernel of that version, so the formula is the oracle."""
    b = Builder(18)
    x = b.input((2, 6, 5))
    scale, bias = np.array([1, 2, 3], np.float32), np.array([0.1, 0.2, 0.3], np.float32)
    out = b.add("GroupNormalization", x, b.array(scale), b.array(bias), num_groups=3)
    module, _ = from_onnx(b.model(out))
    groups = b.feeds[x].reshape(2, 3, 10).astype(np.float64)
    normal = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    want = (normal * scale[:, None] + bias[:, None]).reshape(2, 6, 5)
    np.testing.assert_allclose(run(module, b.feeds), want, atol=1e-5)
