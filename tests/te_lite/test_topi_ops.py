"""Elementwise and broadcast operations, reductions and moves of elements, against NumPy in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import te_lite as te
from benchmarks import workloads as benchmarks
from te_lite import topi
from te_lite.meaning.reference import evaluate
from tests.te_lite.topi_case import check, inputs_of, values

special = pytest.importorskip("scipy.special")

UNARY: dict[str, Any] = {
    "exp": np.exp, "exp2": np.exp2, "erf": special.erf, "tanh": np.tanh, "tan": np.tan, "cos": np.cos,
    "cosh": np.cosh, "sin": np.sin, "sinh": np.sinh, "atan": np.arctan, "floor": np.floor, "ceil": np.ceil,
    "asinh": np.arcsinh, "trunc": np.trunc, "abs": np.abs, "round": np.rint, "sigmoid": special.expit, "sign": np.sign,
    "negative": np.negative, "identity": np.asarray,
}  # fmt: skip
POSITIVE: dict[str, Any] = {
    "log": np.log, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip


@pytest.mark.parametrize("name", [*UNARY, *POSITIVE])
def test_unary(name: str) -> None:
    (x,) = inputs_of((3, 5, 7))
    forms = [getattr(topi, name)] + ([getattr(topi.cpp, name)] if hasattr(topi.cpp, name) else [])
    for form in forms:
        check(form(x), [x], (UNARY | POSITIVE)[name], positive=name in POSITIVE)


def test_dialects_of_unary() -> None:
    (x,) = inputs_of((3, 5))
    assert str(te.ComputeDAG([x, topi.tanh(x)])).endswith("compute(i0, i1) = tir.tanh(x0[i0, i1])\n")
    assert str(te.ComputeDAG([x, topi.cpp.tanh(x)])).endswith("T_tanh(ax0, ax1) = tir.tanh(x0[ax0, ax1])\n")


def test_isnan_cast_clip_full() -> None:
    (x,) = inputs_of((4, 5))
    nans = np.where(np.arange(20).reshape(4, 5) % 3 == 0, np.nan, 1).astype("float32")
    out = topi.isnan(x)
    np.testing.assert_array_equal(evaluate([x, out], {x: nans})[out], np.isnan(nans))
    check(topi.clip(x, -0.25, 0.5), [x], lambda a: a.clip(-0.25, 0.5))
    check(topi.cast(x * 10.0, "int32"), [x], lambda a: np.trunc(a.astype("float32") * np.float32(10)).astype("int32"))
    check(topi.add(topi.full((4, 5), "float32", 2), topi.full_like(x, 3)), [], lambda: np.full((4, 5), 5.0))
    y, z = inputs_of((4, 5), (4, 5))
    check(topi.elemwise_sum([y, z, y]), [y, z], lambda a, b: a + b + a)


BINARY: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide, "maximum": np.maximum,
    "minimum": np.minimum, "power": np.power, "floor_divide": np.floor_divide, "floor_mod": np.mod, "mod": np.fmod,
    "equal": np.equal, "not_equal": np.not_equal, "less": np.less, "less_equal": np.less_equal,
    "greater": np.greater, "greater_equal": np.greater_equal,
}  # fmt: skip


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shapes", [((3, 5, 7), (3, 5, 7)), ((3, 1, 7), (5, 1)), ((7,), (2, 3, 7)), ((1, 1), (4, 6))])
def test_binary_broadcast(name: str, shapes: Any) -> None:
    x, y = inputs_of(*shapes)
    check(getattr(topi, name)(x, y), [x, y], BINARY[name], positive=True)


def test_binary_with_numbers() -> None:
    (x,) = inputs_of((3, 5))
    for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "less"):
        check(getattr(topi, name)(x, 1.5), [x], lambda a, name=name: BINARY[name](a, 1.5), positive=True)
        check(getattr(topi, name)(1.5, x), [x], lambda a, name=name: BINARY[name](1.5, a), positive=True)
    assert repr(topi.add(te.Var("n"), 1)) == "(n + 1)"
    with pytest.raises(te.ExprError, match="add: the operands must be tensors, expressions or numbers"):
        topi.add(x, "three")


def test_integer_division_and_logic() -> None:
    x, y = inputs_of((5, 7), (7,), dtype="int32")
    check(topi.floor_divide(x, topi.add(y, 9)), [x, y], lambda a, b: a // (b + 9))
    check(topi.mod(x, topi.subtract(y, 9)), [x, y], lambda a, b: np.fmod(a, b - 9))
    check(topi.divide(x, topi.subtract(y, 9)), [x, y], lambda a, b: np.trunc(a / (b - 9)).astype("int32"))
    p, q = inputs_of((5, 7), (7,), dtype="bool")
    check(topi.logical_and(p, q), [p, q], np.logical_and)
    check(topi.logical_or(p, q), [p, q], np.logical_or)
    check(topi.logical_xor(p, q), [p, q], np.logical_xor)
    check(topi.logical_not(p), [p], np.logical_not)


def test_python_operators_on_tensors() -> None:
    x, y = inputs_of((3, 5), (5,))
    check((x + y) * 2.0 - x / 4.0, [x, y], lambda a, b: (a + b) * 2 - a / 4)
    check(-x + (1.0 - y), [x, y], lambda a, b: -a + (1 - b))
    check(2.0 / (x + 3.0), [x], lambda a: 2 / (a + 3))
    check(np.float32(2) * x, [x], lambda a: 2 * a)
    (i,) = inputs_of((3, 5), dtype="int32")
    check(i // 3 + i % 3, [i], lambda a: a // 3 + a % 3)
    assert str(te.ComputeDAG([x, y, x + y])).endswith("T_add(ax0, ax1) = (x0[ax0, ax1] + x1[ax1])\n")
    assert str(te.ComputeDAG([x, x * 2.0])).endswith("T_multiply(ax0, ax1) = (x0[ax0, ax1]*2f)\n")
    assert str(te.ComputeDAG([x, -x])).endswith("T_multiply(ax0, ax1) = (x0[ax0, ax1]*-1f)\n")


def test_where_and_broadcast_to() -> None:
    c, x, y = inputs_of((3, 1), (1, 5), (3, 5))
    check(topi.where(topi.greater(c, 0.0), x, y), [c, x, y], lambda k, a, b: np.where(k > 0, a, b))
    check(topi.where(c, x, y), [c, x, y], lambda k, a, b: np.where(k != 0, a, b))
    check(topi.broadcast_to(x, (2, 3, 5)), [x], lambda a: np.broadcast_to(a, (2, 3, 5)))
    with pytest.raises(te.ExprError, match="broadcast: the shapes do not fit together"):
        topi.add(*inputs_of((3, 5), (4, 5)))
    with pytest.raises(te.ExprError, match="broadcast_to: the tensor does not fit the shape"):
        topi.broadcast_to(y, (1, 5))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "argmax", "argmin"])
@pytest.mark.parametrize(("axis", "keepdims"), [(None, False), (0, False), (-1, True), (1, False)])
def test_reductions(name: str, axis: int | None, keepdims: bool) -> None:
    (x,) = inputs_of((3, 5, 7))
    want = getattr(np, name)
    out = getattr(topi, name)(x, axis, keepdims)
    assert out.op.name == "x0_red"
    check(out, [x], lambda a: want(a, axis=axis, keepdims=keepdims))


def test_reductions_over_several_axes() -> None:
    (x,) = inputs_of((3, 5, 7, 2))
    check(topi.sum(x, (0, 2)), [x], lambda a: a.sum((0, 2)))
    check(topi.max(x, (3, -3), True), [x], lambda a: a.max((1, 3), keepdims=True))
    check(topi.argmax(x, (1, 2)), [x], lambda a: a.transpose(0, 3, 1, 2).reshape(3, 2, 35).argmax(-1))
    (p,) = inputs_of((3, 2), dtype="bool")
    check(topi.all(p, 1), [p], lambda a: a.all(1))
    check(topi.any(p, 0), [p], lambda a: a.any(0))
    assert str(te.ComputeDAG([x, topi.sum(x, (0, 2))])).endswith("x0_red(ax0, ax1) += x0[k0, ax0, k2, ax1]\n")
    with pytest.raises(te.ExprError, match=r"sum: the axis must be in \[-4, 4\), got axis=4"):
        topi.sum(x, 4)


def test_moves() -> None:
    (x,) = inputs_of((3, 5, 7))
    check(topi.transpose(x), [x], lambda a: a.T)
    check(topi.transpose(x, (1, 2, 0)), [x], lambda a: a.transpose(1, 2, 0))
    check(topi.reshape(x, (7, -1)), [x], lambda a: a.reshape(7, 15))
    check(topi.expand_dims(x, -1, 2), [x], lambda a: a.reshape(3, 5, 7, 1, 1))
    check(topi.expand_dims(x, 1), [x], lambda a: a[:, None])
    check(topi.flip(x, 1), [x], lambda a: a[:, ::-1])
    check(topi.tile(x, (2, 3)), [x], lambda a: np.tile(a, (2, 3)))
    check(topi.tile(x, (2, 1, 3, 1)), [x], lambda a: np.tile(a, (2, 1, 3, 1)))
    check(topi.repeat(x, 3, -2), [x], lambda a: a.repeat(3, 1))
    check(topi.strided_slice(x, (0, 4, 1), (3, 0, 7), (2, -1, 3)), [x], lambda a: a[0:3:2, 4:0:-1, 1:7:3])
    check(topi.strided_slice(x, (-3,), (7,), axes=(2,)), [x], lambda a: a[:, :, -3:])
    for part, want in zip(topi.split(x, (1, 4), 1), (slice(0, 1), slice(1, 4), slice(4, 5)), strict=True):
        check(part, [x], lambda a, want=want: a[:, want])
    assert [p.shape for p in topi.split(x, 3)] == [(1, 5, 7)] * 3
    (y,) = inputs_of((1, 5, 1, 3))
    check(topi.squeeze(y), [y], lambda a: a.squeeze())
    check(topi.squeeze(y, (2,)), [y], lambda a: a.squeeze(2))


def test_joins() -> None:
    x, y, z = inputs_of((3, 2, 5), (3, 4, 5), (3, 1, 5))
    check(topi.concatenate((x, y, z), 1), [x, y, z], lambda *a: np.concatenate(a, 1))
    x, y = inputs_of((3, 5), (3, 5))
    check(topi.stack((x, y), -1), [x, y], lambda *a: np.stack(a, -1))
    check(topi.stack((x, y)), [x, y], lambda *a: np.stack(a))
    with pytest.raises(te.ExprError, match="concatenate: the other dimensions must agree"):
        topi.concatenate(inputs_of((3, 2), (4, 2)), 1)


def test_indexed_reads() -> None:
    x, index = te.placeholder((5, 7), name="x"), te.placeholder((2, 3), "int32", name="index")
    arrays = values([x, index])
    for mode in ("clip", "wrap"):
        out = topi.take(x, index, 1, mode)
        got = evaluate([x, index, out], arrays)[out]
        np.testing.assert_array_equal(got, arrays[x].take(arrays[index], 1, mode=mode))
        out = topi.take(x, index, None, mode)
        got = evaluate([x, index, out], arrays)[out]
        np.testing.assert_array_equal(got, arrays[x].take(arrays[index], mode=mode))
    positions = te.placeholder((5, 4), "int32", name="positions")
    arrays = {x: arrays[x], positions: np.random.default_rng(0).integers(0, 7, (5, 4)).astype("int32")}
    out = topi.gather(x, 1, positions)
    np.testing.assert_array_equal(
        evaluate([x, positions, out], arrays)[out], np.take_along_axis(arrays[x], arrays[positions], 1)
    )
    out = topi.one_hot(positions, 1.0, 0.0, 7, -1, "float32")
    np.testing.assert_array_equal(evaluate([positions, out], arrays)[out], np.eye(7)[arrays[positions]])
    check(topi.arange(1, 8, 2, "int32"), [], lambda: np.arange(1, 8, 2))


def test_texts_of_moves() -> None:
    x, y = inputs_of((3, 4), (3, 2))
    assert repr(topi.reshape(x, (2, 6)).op.body[0]) == (
        "x0[floormod(floordiv(((ax0*6) + ax1), 4), 3), floormod(((ax0*6) + ax1), 4)]"
    )
    assert repr(topi.concatenate((x, y), 1).op.body[0]) == (
        "tir.if_then_else(((ax1 - 4) >= 0), x1[ax0, (ax1 - 4)], x0[ax0, ax1])"
    )
    assert repr(topi.nn.flatten(te.placeholder((2, 3, 4), name="d")).op.body[0]) == (
        "d[i, floormod(floordiv(j, 4), 3), floormod(j, 4)]"
    )


def test_scalar_functions_of_te() -> None:
    n, x = te.Var("n"), te.Var("x", "float32")
    assert repr(te.floordiv(n, 4)) == "floordiv(n, 4)" and repr(te.floormod(n, 4)) == "floormod(n, 4)"
    assert repr(te.power(x, 2.0)) == "tir.pow(x, 2f)" and repr(te.sigmoid(x)) == "tir.sigmoid(x)"
    assert repr(te.all(n > 1, n < 5, n > 2)) == "(((n > 1) && (n < 5)) && (n > 2))"
    assert repr(te.any(n > 1, n < 5)) == "((n > 1) || (n < 5))"
    assert repr(te.max(x, 0.0)) == "max(x, 0f)" and repr(te.min(x, 0.0)) == "min(x, 0f)"


def test_utilities() -> None:
    assert topi.get_const_tuple((te.const(3), 4, np.int64(5))) == (3, 4, 5)
    assert topi.utils.get_const_int(te.const(3)) == 3 and topi.simplify(te.const(7)) == 7
    with pytest.raises(te.ExprError, match="topi: a constant integer is needed"):
        topi.get_const_int(te.Var("n"))
    out = benchmarks.conv2d_layer(1, 5, 5, 4, 3, 3, 3, 1, 1)[-1]
    inlined, seen = [], []

    class Stage:
        def __init__(self, tensor: te.Tensor) -> None:
            self.compute_inline = lambda: inlined.append(tensor.op.name)

    class Schedule:
        def __getitem__(self, tensor: te.Tensor) -> Stage:
            return Stage(tensor)

    topi.traverse_inline(Schedule(), out.op, lambda op: seen.append(op.name))
    assert inlined == ["T_add"] and seen == ["conv2d_nchw", "T_add", "compute"]
