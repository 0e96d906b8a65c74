"""Small workloads with awkward shapes, one of every kind the language must handle."""

from __future__ import annotations

from collections.abc import Callable

import te_lite as te
from te_lite import Tensor, topi

Build = Callable[[], list[Tensor]]


def matmul(n: int, m: int, k: int, dtype: str = "float32", out: str | None = None) -> list[Tensor]:
    a = te.placeholder((n, k), dtype, "A")
    b = te.placeholder((k, m), dtype, "B")
    r = te.reduce_axis((0, k), "k")
    c = te.compute(
        (n, m), lambda i, j: te.sum(a[i, r].astype(out or dtype) * b[r, j].astype(out or dtype), axis=r), name="C"
    )
    return [a, b, c]


def matmul_relu(n: int, m: int, k: int) -> list[Tensor]:
    a, b, c = matmul(n, m, k)
    bias = te.placeholder((m,), name="bias")
    d = te.compute((n, m), lambda i, j: c[i, j] + bias[j], name="D")
    return [a, b, bias, te.compute((n, m), lambda i, j: te.maximum(d[i, j], 0.0), name="E")]


def double_matmul(n: int) -> list[Tensor]:
    a, b, d = matmul(n, n + 1, n + 2)
    c = te.placeholder((n + 1, n), name="C2")
    r = te.reduce_axis((0, n + 1), "k2")
    return [a, b, c, te.compute((n, n), lambda i, j: te.sum(d[i, r] * c[r, j], axis=r), name="E")]


def conv2d_nchw(n: int, h: int, ci: int, co: int, k: int, stride: int, pad: int) -> list[Tensor]:
    data = te.placeholder((n, ci, h, h + 1), name="data")
    kernel = te.placeholder((co, ci, k, k), name="kernel")
    bias = te.placeholder((1, co, 1, 1), name="bias")
    conv = topi.nn.conv2d_nchw(data, kernel, stride, pad, dilation=1)
    return [data, kernel, bias, topi.nn.relu(conv + bias)]


def conv2d_nhwc(n: int, h: int, ci: int, co: int, k: int, stride: int, pad: int, dilation: int) -> list[Tensor]:
    data = te.placeholder((n, h, h, ci), name="data")
    kernel = te.placeholder((k, k, ci, co), name="kernel")
    return [data, kernel, topi.nn.conv2d_nhwc(data, kernel, stride, pad, dilation)]


def depthwise(n: int, h: int, c: int) -> list[Tensor]:
    data = te.placeholder((n, c, h, h), name="data")
    kernel = te.placeholder((c, 1, 3, 3), name="kernel")
    return [data, kernel, topi.nn.depthwise_conv2d_nchw(data, kernel, 2, 1, 1)]


def softmax(m: int, n: int) -> list[Tensor]:
    x = te.placeholder((m, n), name="x")
    return [x, topi.nn.softmax(x, axis=1)]


def argmax(m: int, n: int) -> list[Tensor]:
    x = te.placeholder((m, n), name="x")
    r = te.reduce_axis((0, n), "k")
    index, value = te.compute((m,), lambda i: te.argmax((r.astype("int32"), x[i, r]), axis=r), name="best")
    return [x, index, value]


def row_stats(m: int, n: int) -> list[Tensor]:
    x = te.placeholder((m, n), name="x")
    r = te.reduce_axis((0, n), "k")
    total = te.compute((m,), lambda i: te.sum(x[i, r], axis=r), name="total")
    return [x, te.compute((m, n), lambda i, j: x[i, j] - total[i] / float(n), name="centred")]


def max_pool(n: int, h: int, c: int) -> list[Tensor]:
    data = te.placeholder((n, c, h, h), name="data")
    return [data, topi.nn.pool2d(data, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), "max")]


def shuffle(m: int, n: int) -> list[Tensor]:
    """Transposes, reshapes and divisions in the indices."""
    x = te.placeholder((m, n), name="x")
    t = te.compute((n, m), lambda i, j: x[j, i] * 2.0, name="t")
    flat = te.compute((m * n,), lambda i: t[i // m, i % m] + 1.0, name="flat")
    return [x, te.compute((m, n), lambda i, j: flat[i * n + j] - x[i, j], name="back")]


def batch_matmul(b: int, n: int) -> list[Tensor]:
    x = te.placeholder((b, n, n + 2), name="X")
    y = te.placeholder((b, n + 1, n + 2), name="Y")
    return [x, y, topi.nn.batch_matmul(x, y)]


def winograd(h: int, ci: int, co: int) -> list[Tensor]:
    data = te.placeholder((1, h, h, ci), name="data")
    kernel = te.placeholder((4, 4, co, ci), name="kernel")
    return [
        data,
        kernel,
        topi.nn.conv2d_winograd_nhwc_without_weight_transform(data, kernel, 1, 1, 1, "float32"),
    ]


WORKLOADS: dict[str, Build] = {
    "matmul": lambda: matmul(7, 6, 5),
    "matmul_even": lambda: matmul(8, 16, 4),
    "matmul_int8": lambda: matmul(5, 4, 7, "int8", "int32"),
    "matmul_relu": lambda: matmul_relu(6, 9, 4),
    "double_matmul": lambda: double_matmul(5),
    "batch_matmul": lambda: batch_matmul(2, 5),
    "conv2d_nchw": lambda: conv2d_nchw(2, 5, 3, 4, 3, 1, 1),
    "conv2d_stride": lambda: conv2d_nchw(1, 7, 2, 5, 3, 2, 1),
    "conv2d_nhwc": lambda: conv2d_nhwc(1, 6, 3, 4, 3, 1, 1, 1),
    "conv2d_dilated": lambda: conv2d_nhwc(1, 7, 2, 3, 2, 1, 0, 2),
    "depthwise": lambda: depthwise(1, 7, 4),
    "softmax": lambda: softmax(5, 7),
    "argmax": lambda: argmax(4, 9),
    "row_stats": lambda: row_stats(6, 5),
    "max_pool": lambda: max_pool(1, 7, 3),
    "shuffle": lambda: shuffle(4, 6),
    "winograd": lambda: winograd(4, 3, 2),
}
