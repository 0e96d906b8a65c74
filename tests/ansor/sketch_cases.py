"""The workloads of TVM's sketch tests."""

from __future__ import annotations

from collections.abc import Callable

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from te_lite import ComputeDAG, Tensor, topi

HARDWARE = {
    "c": HardwareParams(4, 64, 64, 0, 0, 0, 0, 0),
    "cuda": HardwareParams(-1, 16, 64, 49152, 2**31 - 1, 1024, 8, 32),
}


def matmul(n: int, m: int, k: int) -> list[Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), "k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), "C")]


def double_matmul(n: int) -> list[Tensor]:
    a, b, c = [te.placeholder((n, n), name=x) for x in "ABC"]
    k, k2 = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "k2")
    d = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "D")
    return [a, b, c, te.compute((n, n), lambda i, j: te.sum(d[i, k2] * c[k2, j], axis=k2), "E")]


def parallel_matmul(n: int) -> list[Tensor]:
    a, b, c = [te.placeholder((n, n), name=x) for x in "ABC"]
    k, k2 = te.reduce_axis((0, n), "k"), te.reduce_axis((0, n), "k2")
    d = te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), "D")
    return [a, b, c, d, te.compute((n, n), lambda i, j: te.sum(a[i, k2] * c[k2, j], axis=k2), "E")]


def conv2d_bn_relu(n: int, h: int, w: int, ci: int, co: int, k: int, stride: int, pad: int) -> list[Tensor]:
    data, kernel = te.placeholder((n, ci, h, w), name="data"), te.placeholder((co, ci, k, k), name="kernel")
    bias, scale, offset = [te.placeholder((co, 1, 1), name=x) for x in ("bias", "bn_scale", "bn_offset")]
    conv = topi.nn.conv2d_nchw(data, kernel, stride, pad, dilation=1)
    shape = conv.shape
    biased = te.compute(shape, lambda i, j, y, x: conv[i, j, y, x] + bias[j, 0, 0], "bias_add")
    mul = te.compute(shape, lambda i, j, y, x: biased[i, j, y, x] * scale[j, 0, 0], "bn_mul")
    add = te.compute(shape, lambda i, j, y, x: mul[i, j, y, x] + offset[j, 0, 0], "bn_add")
    return [data, kernel, bias, offset, scale, topi.nn.relu(add)]


def winograd_by_axis(shape: tuple[int, ...], filters: int, m: int, bias: bool = False) -> list[Tensor]:
    data = te.placeholder(shape, name="data")
    weight = te.placeholder((*[3] * (len(shape) - 2), shape[-1], filters), name="weight")
    conv = topi.nn.conv_winograd_by_axis(data, weight, [1] * (len(shape) - 2), m)
    if not bias:
        return [data, weight, conv]
    b = te.placeholder((filters,), name="bias")
    return [data, weight, b, topi.nn.relu(topi.add(conv, b))]


def max_pool2d(n: int, h: int, w: int, ci: int, pad: int) -> list[Tensor]:
    a = te.placeholder((n, ci, h, w), name="A")
    return [a, topi.nn.pool2d(a, [2, 2], [1, 1], [1, 1], [pad] * 4, "max")]


def min_rows(n: int, m: int) -> list[Tensor]:
    a = te.placeholder((n, m), name="A")
    return [a, topi.min(a, axis=-1)]


def softmax(*shape: int) -> list[Tensor]:
    a = te.placeholder(shape, name="A")
    return [a, topi.nn.softmax(a, axis=-1)]


def winograd(n: int, h: int, w: int, ci: int, co: int) -> list[Tensor]:
    data = te.placeholder((n, h, w, ci), name="inputs")
    kernel = te.placeholder((6, 6, co, ci), name="kernel")
    return [data, kernel, topi.nn.conv2d_winograd_nhwc_without_weight_transform(data, kernel, 1, 1, 1, tile_size=4)]


def zero_rank_reduce(n: int) -> list[Tensor]:
    a = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), "k")
    return [a, te.compute((), lambda: te.sum(a[k], axis=k), "B")]


def zero_rank_compute(n: int) -> list[Tensor]:
    a = te.placeholder((n,), name="A")
    k = te.reduce_axis((0, n), "k")
    b = te.compute((), lambda: te.sum(a[k], axis=k), "B")
    return [a, te.compute((), lambda: b() + 3.0, "C")]


def layer_norm(n: int, m: int) -> list[Tensor]:
    """Mean, variance about the mean, and normalisation: two chained reductions."""
    a = te.placeholder((n, m), name="A")
    k, k2 = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "k2")
    mean = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), "mean")
    var = te.compute((n,), lambda i: te.sum((a[i, k2] - mean[i]) * (a[i, k2] - mean[i]), axis=k2), "var")
    return [a, te.compute((n, m), lambda i, j: (a[i, j] - mean[i]) / te.call("sqrt", var[i] + 1e-5), "out")]


def sum_of_squares(n: int, m: int) -> list[Tensor]:
    """A reduction that is read by a reduction alone."""
    a = te.placeholder((n, m), name="A")
    k, k2 = te.reduce_axis((0, m), "k"), te.reduce_axis((0, m), "k2")
    s = te.compute((n,), lambda i: te.sum(a[i, k], axis=k), "S")
    return [a, te.compute((n,), lambda i: te.sum(a[i, k2] * s[i], axis=k2), "T")]


def attention(heads: int, seq: int, dim: int) -> list[Tensor]:
    q, k, v = [te.placeholder((heads, seq, dim), name=x) for x in "QKV"]
    d, s = te.reduce_axis((0, dim), "d"), te.reduce_axis((0, seq), "s")
    score = te.compute((heads, seq, seq), lambda h, i, j: te.sum(q[h, i, d] * k[h, j, d], axis=d), "score")
    soft = topi.nn.softmax(score, axis=-1)
    return [q, k, v, te.compute((heads, seq, dim), lambda h, i, j: te.sum(soft[h, i, s] * v[h, s, j], axis=s), "O")]


def matmul_outer_add(n: int, m: int, k: int) -> list[Tensor]:
    """A matmul whose element-wise consumer itself reuses its inputs (a column and a row)."""
    a, b, c = matmul(n, m, k)
    col, row = te.placeholder((n,), name="col"), te.placeholder((m,), name="row")
    return [a, b, col, row, te.compute((n, m), lambda i, j: c[i, j] + col[i] * row[j], "D")]


def two_matmuls_added(n: int) -> list[Tensor]:
    a, b, c, d, e = parallel_matmul(n)
    return [a, b, c, te.compute((n, n), lambda i, j: te.maximum(d[i, j] + e[i, j], 0.0), "F")]


def residual(n: int) -> list[Tensor]:
    """A matmul plus its own input."""
    a, b, c = matmul(n, n, n)
    return [a, b, te.compute((n, n), lambda i, j: te.maximum(c[i, j] + a[i, j], 0.0), "D")]


CASES: dict[str, tuple[Callable[..., list[Tensor]], tuple[int, ...]]] = {
    "matmul": (matmul, (512, 512, 512)),
    "small_matmul": (matmul, (8, 8, 1024)),
    "prime_matmul": (matmul, (13, 101, 7)),
    "double_matmul": (double_matmul, (128,)),
    "parallel_matmul": (parallel_matmul, (64,)),
    "conv2d_bn_relu": (conv2d_bn_relu, (1, 56, 56, 64, 64, 3, 1, 1)),
    "strided_conv": (conv2d_bn_relu, (2, 15, 15, 8, 12, 3, 2, 1)),
    "max_pool2d": (max_pool2d, (1, 56, 56, 64, 1)),
    "min": (min_rows, (10, 1024)),
    "softmax": (softmax, (2, 1024)),
    "softmax_abcd": (softmax, (1, 12, 128, 128)),
    "winograd": (winograd, (1, 28, 28, 128, 128)),
    "zero_rank_reduce": (zero_rank_reduce, (128,)),
    "zero_rank_compute": (zero_rank_compute, (128,)),
    "layer_norm": (layer_norm, (16, 256)),
    "sum_of_squares": (sum_of_squares, (16, 256)),
    "attention": (attention, (4, 64, 32)),
    "matmul_outer_add": (matmul_outer_add, (64, 96, 32)),
    "two_matmuls_added": (two_matmuls_added, (64,)),
    "residual": (residual, (64,)),
}


def dag_of(name: str) -> ComputeDAG:
    function, args = CASES[name]
    return ComputeDAG(function(*args))
