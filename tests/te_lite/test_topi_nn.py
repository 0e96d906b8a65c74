"""Products, softmax, pools, normalisations and activations, checked in float64."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import te_lite as te
from benchmarks import workloads as benchmarks
from relay_lite.op.numpy_windows import Array, adaptive_pool
from te_lite import topi
from tests import topi_testing as testing
from tests.te_lite.topi_case import check, inputs_of

special = pytest.importorskip("scipy.special")


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_matmul(transpose_a: bool, transpose_b: bool) -> None:
    a, b, bias = inputs_of((7, 5) if transpose_a else (5, 7), (11, 7) if transpose_b else (7, 11), (11,))
    out = topi.nn.matmul(a, b, None, None, transpose_a, transpose_b)
    assert out.op.name == f"T_matmul_{'NT'[transpose_a]}{'NT'[transpose_b]}"
    check(out, [a, b], lambda x, y: (x.T if transpose_a else x) @ (y.T if transpose_b else y))
    with_bias = topi.nn.matmul(a, b, bias, None, transpose_a, transpose_b)
    check(with_bias, [a, b, bias], lambda x, y, z: (x.T if transpose_a else x) @ (y.T if transpose_b else y) + z)


def test_dense_with_bias_and_relu() -> None:
    a, b, bias = inputs_of((3, 7), (11, 7), (11,))
    out = topi.nn.relu(topi.nn.dense(a, b, bias))
    check(out, [a, b, bias], lambda x, y, z: np.maximum(x @ y.T + z, 0))


@pytest.mark.parametrize(("batch_a", "batch_b"), [(3, 3), (1, 3), (3, 1), (1, 1)])
@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, True), (True, False)])
def test_batch_matmul(batch_a: int, batch_b: int, transpose_a: bool, transpose_b: bool) -> None:
    a, b = inputs_of(
        (batch_a, 7, 5) if transpose_a else (batch_a, 5, 7), (batch_b, 11, 7) if transpose_b else (batch_b, 7, 11)
    )
    out = topi.nn.batch_matmul(a, b, None, None, transpose_a, transpose_b)
    check(
        out,
        [a, b],
        lambda x, y: (x.transpose(0, 2, 1) if transpose_a else x) @ (y.transpose(0, 2, 1) if transpose_b else y),
    )


def test_texts_of_products() -> None:
    a, b = inputs_of((1, 5, 7), (3, 11, 7))
    text = str(te.ComputeDAG([a, b, topi.nn.batch_matmul(a, b)]))
    assert "T_batch_matmul_NT(b, i, j) += (x0[0, i, k]*x1[b, j, k])" in text
    a, b, bias = inputs_of((5, 7), (11, 7), (11,))
    text = str(te.ComputeDAG([a, b, bias, topi.nn.dense(a, b, bias)]))
    assert "compute(i, j) = (T_matmul_NT[i, j] + x2[j])" in text


@pytest.mark.parametrize(("shape", "axis"), [((5, 7), -1), ((5, 7), 0), ((2, 3, 5, 4), 1), ((11,), 0)])
def test_softmax(shape: tuple[int, ...], axis: int) -> None:
    (x,) = inputs_of(shape)
    check(topi.nn.softmax(x, axis), [x], lambda a: special.softmax(a, axis))
    check(topi.nn.log_softmax(x, axis), [x], lambda a: special.log_softmax(a, axis))


def test_text_of_log_softmax() -> None:
    (x,) = inputs_of((5, 7))
    assert str(te.ComputeDAG([x, topi.nn.log_softmax(x)])).splitlines()[1:] == [
        "T_softmax_maxelem(i0) max= x0[i0, k]",
        "compute(i0) += tir.exp((x0[i0, k] - T_softmax_maxelem[i0]))",
        "compute(i0, i1) = ((x0[i0, i1] - T_softmax_maxelem[i0]) - tir.log(compute[i0]))",
    ]


POOLS = [  # kernel, stride, dilation, padding
    (2, 2, 1, (0, 0, 0, 0)),
    (3, 2, 1, (1, 1, 1, 1)),
    ((3, 2), (1, 2), 1, (1, 0, 2, 1)),
    (3, 2, 2, (2, 1, 2, 3)),
]


@pytest.mark.parametrize(("kernel", "stride", "dilation", "padding"), POOLS)
@pytest.mark.parametrize(("pool_type", "include"), [("max", True), ("avg", True), ("avg", False)])
@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pool2d(
    kernel: Any, stride: Any, dilation: int, padding: Any, pool_type: str, include: bool, ceil_mode: bool, layout: str
) -> None:
    (x,) = inputs_of((2, 3, 11, 13) if layout == "NCHW" else (2, 11, 13, 3))
    out = topi.nn.pool2d(x, kernel, stride, dilation, padding, pool_type, ceil_mode, layout, include)
    two = [(v, v) if isinstance(v, int) else v for v in (kernel, stride, dilation)]
    check(
        out,
        [x],
        lambda a: testing.poolnd_python(a, *two, padding[:2], padding[2:], pool_type, include, ceil_mode, layout),
    )


@pytest.mark.parametrize("pool_type", ["max", "avg"])
def test_pool1d_and_pool3d(pool_type: str) -> None:
    (x,) = inputs_of((2, 3, 13))
    out = topi.nn.pool1d(x, 3, 2, 1, (1, 0), pool_type)
    check(out, [x], lambda a: testing.poolnd_python(a, [3], [2], [1], [1], [0], pool_type))
    (x,) = inputs_of((1, 5, 6, 7, 3))
    out = topi.nn.pool3d(x, 2, (1, 2, 3), 1, (0, 1, 0, 1, 0, 0), pool_type, layout="NDHWC", count_include_pad=False)
    check(out, [x], lambda a: testing.poolnd_python(
        a, [2] * 3, [1, 2, 3], [1] * 3, [0, 1, 0], [1, 0, 0], pool_type, False, layout="NDHWC"))  # fmt: skip


def test_average_pools_keep_the_count_expression() -> None:
    (x,) = inputs_of((1, 35, 35, 4))
    out = topi.nn.pool2d(x, 3, 1, 1, (1, 1, 1, 1), "avg", layout="NHWC", count_include_pad=False)
    count = [f"((min(((ax{d} - 1) + 2), 34) - ((ax{d} - 1) + max((0 - (ax{d} - 1)), 0))) + 1)" for d in (1, 2)]
    assert out.op.name == "pool_avg"
    assert repr(out.op.body[0]) == f"(pool_sum[ax0, ax1, ax2, ax3]/float32(max(({count[0]}*{count[1]}), 1)))"
    with_pad = topi.nn.pool2d(x, 3, 1, 1, (1, 1, 1, 1), "avg", layout="NHWC")
    count = [f"((min(((ax{d} - 1) + 2), 35) - (ax{d} - 1)) + 1)" for d in (1, 2)]
    assert repr(with_pad.op.body[0]) == f"(pool_sum[ax0, ax1, ax2, ax3]/float32(({count[0]}*{count[1]})))"


def _adaptive(array: Array, size: Any, pool_type: str, layout: str) -> Array:
    at = layout.index("C")
    return np.moveaxis(adaptive_pool(np.moveaxis(array, at, 1), size, pool_type), 1, at)


@pytest.mark.parametrize(("shape", "layout"), [((2, 3, 11, 7), "NCHW"), ((2, 11, 7, 3), "NHWC")])
@pytest.mark.parametrize("size", [1, (3, 7), (5, 2)])
@pytest.mark.parametrize("pool_type", ["max", "avg"])
def test_adaptive_pool(shape: tuple[int, ...], layout: str, size: Any, pool_type: str) -> None:
    (x,) = inputs_of(shape)
    out = topi.nn.adaptive_pool(x, size, pool_type, layout)
    assert te.ComputeDAG([x, out]).flop_ct == -1
    check(out, [x], lambda a: _adaptive(a, size, pool_type, layout))


def test_other_adaptive_and_global_pools() -> None:
    (x,) = inputs_of((2, 3, 11))
    check(topi.nn.adaptive_pool1d(x, 4, "max"), [x], lambda a: _adaptive(a, 4, "max", "NCW"))
    (x,) = inputs_of((1, 4, 5, 6, 3))
    check(topi.nn.adaptive_pool3d(x, (2, 3, 4), "avg", "NDHWC"), [x],
          lambda a: _adaptive(a, (2, 3, 4), "avg", "NDHWC"))  # fmt: skip
    (x,) = inputs_of((2, 3, 5, 7))
    check(topi.nn.global_pool(x, "avg"), [x], lambda a: a.mean((2, 3), keepdims=True))
    check(topi.nn.global_pool(x, "max", "NHWC"), [x], lambda a: a.max((1, 2), keepdims=True))


def normalised(x: Array, *given: Any) -> Array:
    """By mean and variance, the last vectors, which lie along an axis; scaled and shifted where that is given, too."""
    *vectors, axis = given
    *affine, mean, var = [v.reshape([-1 if d == axis % x.ndim else 1 for d in range(x.ndim)]) for v in vectors]
    out = (x - mean) / np.sqrt(var + 1e-3)
    return out * affine[0] + affine[1] if affine else out


@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize(("center", "scale"), [(True, True), (False, False)])
def test_batch_norm(axis: int, center: bool, scale: bool) -> None:
    c = (2, 3, 5, 7)[axis]
    tensors = inputs_of((2, 3, 5, 7), (c,), (c,), (c,), (c,))
    out = topi.nn.batch_norm(*tensors, axis, 1e-3, center, scale)
    assert [t.shape for t in out] == [(2, 3, 5, 7), (c,), (c,)]
    check(
        out[0],
        tensors if center and scale else [tensors[0], *tensors[3:]],
        lambda x, *given: normalised(x, *given, axis),
        positive=True,
        rtol=1e-10,
    )
    with pytest.raises(te.ExprError, match="batch_norm: only inference is supported"):
        topi.nn.batch_norm(*tensors, training=True)


@pytest.mark.parametrize("axis", [-1, (1, 2), (0, 2)])
def test_layer_norm(axis: Any) -> None:
    shape = tuple([(4, 5, 7)[a] for a in sorted(a % 3 for a in np.atleast_1d(axis))])
    x, gamma, beta = inputs_of((4, 5, 7), shape, shape)
    check(topi.nn.layer_norm(x, gamma, beta, axis, 1e-4), [x, gamma, beta],
          lambda a, g, b: testing.layer_norm_python(a, g, b, axis, 1e-4), rtol=1e-10)  # fmt: skip
    check(topi.nn.layer_norm(x, gamma, None, axis), [x, gamma],
          lambda a, g: testing.layer_norm_python(a, g, None, axis), rtol=1e-10)  # fmt: skip


def test_instance_norm_and_rms_norm() -> None:
    x, gamma, beta = inputs_of((2, 3, 5, 7), (3,), (3,))
    check(topi.nn.instance_norm(x, gamma, beta), [x, gamma, beta],
          lambda a, g, b: testing.instance_norm_python(a, g, b), rtol=1e-10)  # fmt: skip
    x, weight = inputs_of((4, 11), (11,))
    check(topi.nn.rms_norm(x, weight), [x, weight],
          lambda a, w: a / np.sqrt((a * a).mean(-1, keepdims=True) + 1e-5) * w)  # fmt: skip


def test_norm_of_matrices() -> None:
    a, out = benchmarks.norm(3, 5, 7)
    check(out, [a], lambda x: np.linalg.norm(x, axis=(1, 2)))


def test_attention_core() -> None:
    tensors = benchmarks.transpose_batch_matmul(2, 5, 3, 7)
    check(tensors[-1], tensors[:-1], lambda q, v: np.einsum("bihk,bjhk->bhij", q, v))


def test_activations_and_bias() -> None:
    (x,) = inputs_of((2, 3, 5, 4))
    for relu in (topi.nn.relu, topi.cpp.relu):
        check(relu(x), [x], lambda a: np.maximum(a, 0))
    for leaky in (topi.nn.leaky_relu, topi.cpp.leaky_relu):
        check(leaky(x, 0.25), [x], lambda a: np.where(a > 0, a, a * 0.25))
    x, slope = inputs_of((2, 3, 5, 4), (3,))
    check(topi.nn.prelu(x, slope), [x, slope], lambda a, s: np.where(a > 0, a, a * s[:, None, None]))
    for axis, c in ((1, 3), (-1, 4)):
        x, bias = inputs_of((2, 3, 5, 4), (c,))
        shape = [1, 3, 1, 1] if axis == 1 else [4]
        check(topi.nn.bias_add(x, bias, axis), [x, bias], lambda a, b, shape=shape: a + b.reshape(shape))
    x, scale, shift = inputs_of((2, 3, 5, 4), (3,), (3,))
    check(topi.nn.scale_shift_nchw(x, scale, shift), [x, scale, shift],
          lambda a, s, t: a * s[:, None, None] + t[:, None, None])  # fmt: skip
    x, scale, shift = inputs_of((2, 5, 4, 3), (3,), (3,))
    check(topi.nn.scale_shift_nhwc(x, scale, shift), [x, scale, shift], lambda a, s, t: a * s + t)


def test_both_forms_of_relu_print_as_they_should() -> None:
    (x,) = inputs_of((3, 5))
    assert str(te.ComputeDAG([x, topi.nn.relu(x)])).endswith("compute(i0, i1) = max(x0[i0, i1], 0f)\n")
    assert str(te.ComputeDAG([x, topi.cpp.relu(x)])).endswith("T_relu(ax0, ax1) = max(x0[ax0, ax1], 0f)\n")


def test_flatten_pad_and_dilate() -> None:
    (x,) = inputs_of((2, 3, 5, 4))
    check(topi.nn.flatten(x), [x], lambda a: a.reshape(2, 60))
    check(topi.nn.pad(x, (0, 1, 2, 0), (1, 0, 3, 0), 0.5), [x],
          lambda a: np.pad(a, [(0, 1), (1, 0), (2, 3), (0, 0)], constant_values=0.5))  # fmt: skip
    for mode in ("constant", "edge", "reflect"):
        check(topi.nn.pad_sides(x, (0, 1, 2, 0), (0, 0, 3, 1), pad_mode=mode), [x],
              lambda a, mode=mode: np.pad(a, [(0, 0), (1, 0), (2, 3), (0, 1)], mode))  # fmt: skip
    check(topi.nn.dilate(x, (1, 2, 1, 3)), [x], lambda a: testing.dilate(a, (1, 2, 1, 3)))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("method", ["nearest_neighbor", "linear"])
def test_resize2d(layout: str, mode: str, method: str) -> None:
    target, where = (7, 5), (2, 3) if layout == "NCHW" else (1, 2)
    (x,) = inputs_of((2, 3, 4, 8) if layout == "NCHW" else (2, 4, 8, 3))

    def coordinate(n: int, size: int) -> np.ndarray:
        o = np.arange(n)
        if mode == "align_corners":
            return o * (size - 1) / (n - 1)
        return (o + 0.5) * size / n - 0.5 if mode == "half_pixel" else o * size / n

    def want(a: np.ndarray) -> np.ndarray:
        for axis, n in zip(where, target, strict=True):
            size = a.shape[axis]
            p = coordinate(n, size)
            if method == "nearest_neighbor":
                a = a.take(np.floor(p + (mode == "align_corners") * 0.5).astype(int).clip(0, size - 1), axis)
                continue
            low = np.floor(p).astype(int)
            f = (p - low).reshape([-1 if d == axis else 1 for d in range(4)])
            a = a.take(low.clip(0, size - 1), axis) * (1 - f) + a.take((low + 1).clip(0, size - 1), axis) * f
        return a

    check(topi.image.resize2d(x, target, layout, method, mode), [x], want, rtol=1e-6)


def test_padding_amounts() -> None:
    assert topi.nn.get_pad_tuple(1, (3, 3)) == (1, 1, 1, 1)
    assert topi.nn.get_pad_tuple((1, 2), (3, 3)) == (1, 2, 1, 2)
    assert topi.nn.get_pad_tuple((1, 2, 3, 4), (3, 3)) == (1, 2, 3, 4)
    assert topi.nn.get_pad_tuple("SAME", (3, 4)) == (1, 2, 1, 1)
    assert topi.nn.get_pad_tuple("VALID", (3, 4)) == (0, 0, 0, 0)
    assert topi.nn.get_pad_tuple1d("SAME", (4,)) == (2, 1)
    assert topi.nn.get_pad_tuple3d(2, (3, 3, 3)) == (2,) * 6
    for kernel, n in itertools.product(("SAME",), (2, 3, 5)):
        assert sum(topi.nn.get_pad_tuple1d(kernel, (n,))) == n - 1
