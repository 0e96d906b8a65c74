"""Layers as users write them, by name in `WORKLOADS`."""

from __future__ import annotations

from collections.abc import Callable

from ansor.core.tasks.catalog import matmul
from ansor.core.tasks.catalog_operators import Tensors, softmax
from te_lite.computation.tensor import compute, placeholder
from te_lite.expr import reduction
from te_lite.topi import add, nn


def double_matmul(n: int) -> Tensors:
    """`E = (A B) C` of square matrices."""
    a, b, c = [placeholder((n, n), name=x) for x in "ABC"]
    k, k2 = reduction.reduce_axis((0, n), "k"), reduction.reduce_axis((0, n), "k2")
    d = compute((n, n), lambda i, j: reduction.sum(a[i, k] * b[k, j], axis=[k]), "D")
    return [a, b, c, compute((n, n), lambda i, j: reduction.sum(d[i, k2] * c[k2, j], axis=[k2]), "E")]


def conv2d_layer(n: int, h: int, w: int, co: int, ci: int, kh: int, kw: int, stride: int, padding: int) -> Tensors:
    """Convolution, bias and relu in NCHW, as in the tutorials."""
    data = placeholder((n, ci, h, w), name="data")
    kernel = placeholder((co, ci, kh, kw), name="kernel")
    bias = placeholder((1, co, 1, 1), name="bias")
    conv = nn.conv2d_nchw(data, kernel, stride, padding, dilation=1)
    return [data, kernel, bias, nn.relu(add(conv, bias))]


def max_pool2d(n: int, h: int, w: int, c: int, kernel: int = 2, stride: int = 1, padding: int = 0) -> Tensors:
    """Max pooling of [N, H, W, C]."""
    a = placeholder((n, h, w, c), name="A")
    return [a, nn.pool2d(a, kernel, stride, 1, [padding] * 4, "max", layout="NHWC")]


def dense(m: int, k: int, n: int) -> Tensors:
    """[M, K] x [N, K] plus a bias [1, N]."""
    a, b = placeholder((m, k), name="A"), placeholder((n, k), name="B")
    bias = placeholder((1, n), name="bias")
    return [a, b, bias, add(nn.dense(a, b), bias)]


def global_avg_pool(n: int, h: int, w: int, c: int) -> Tensors:
    """The mean of each channel of [N, H, W, C]."""
    a = placeholder((n, h, w, c), name="A")
    return [a, nn.global_pool(a, "avg", "NHWC")]


def relu(m: int, n: int) -> Tensors:
    """`max(A, 0)`."""
    a = placeholder((m, n), name="A")
    return [a, nn.relu(a)]


def layer_norm(m: int, n: int) -> Tensors:
    """Layer norm of the rows of [M, N] with gamma and beta [N]."""
    a, gamma, beta = placeholder((m, n), name="A"), placeholder((n,), name="gamma"), placeholder((n,), name="beta")
    return [a, gamma, beta, nn.layer_norm(a, gamma, beta)]


def conv2d_winograd_nhwc(n: int, h: int, w: int, ci: int, co: int, tile_size: int) -> Tensors:
    """3x3 Winograd convolution with padding 1 and a transformed weight [m + 2, m + 2, CO, CI]."""
    data = placeholder((n, h, w, ci), name="data")
    kernel = placeholder((tile_size + 2, tile_size + 2, co, ci), name="kernel")
    out = nn.conv2d_winograd_nhwc_without_weight_transform(data, kernel, 1, 1, 1, tile_size=tile_size)
    return [data, kernel, out]


WORKLOADS: dict[str, Callable[..., Tensors]] = {
    "matmul": matmul,
    "double_matmul": double_matmul,
    "conv2d_layer": conv2d_layer,
    "max_pool2d": max_pool2d,
    "softmax": softmax,
    "dense": dense,
    "global_avg_pool": global_avg_pool,
    "relu": relu,
    "layer_norm": layer_norm,
    "conv2d_winograd_nhwc": conv2d_winograd_nhwc,
}
