"""Operators that the Ansor paper measures, as workloads of the catalogue: the list of their inputs and outputs."""

from __future__ import annotations

from te_lite import Tensor, compute, placeholder, reduce_axis, topi
from te_lite import sum as te_sum
from te_lite.expr.expr import Expr, call
from te_lite.topi.utils import conv_extent

Tensors = list[Tensor]


def batch_matmul(b: int, n: int, m: int, k: int) -> Tensors:
    """GMM: [B, N, K] x [B, K, M]."""
    x, y = placeholder((b, n, k), name="X"), placeholder((b, k, m), name="Y")
    k_axis = reduce_axis((0, k), "k")
    z = compute((b, n, m), lambda b, i, j: te_sum(x[b, i, k_axis] * y[b, k_axis, j], axis=[k_axis]), "Z")
    return [x, y, z]


def _conv(
    batch: int, spatial: tuple[int, ...], ci: int, co: int, kernel: int, stride: int, padding: int, dilation: int,
    groups: int, name: str, axes: str
) -> Tensors:  # fmt: skip
    """A channels-last convolution with square windows; `axes` names the spatial dimensions."""
    inputs = placeholder((batch, *spatial, ci), name="inputs")
    weight = placeholder((*[kernel] * len(spatial), ci // groups, co), name="weight")
    window = [reduce_axis((0, kernel), f"r{a}") for a in axes]
    rc = reduce_axis((0, ci // groups), "rc")
    padded = topi.nn.pad(inputs, [0, *[padding] * len(spatial), 0])

    def element(*i: Expr) -> Expr:
        n, where, f = i[0], i[1:-1], i[-1]
        at = [v * stride + r * dilation for v, r in zip(where, window, strict=True)]
        read = padded(n, *at, f // (co // groups) * (ci // groups) + rc)
        return te_sum(read * weight(*window, rc, f), axis=[*window, rc])

    out = [conv_extent(n, kernel, stride, padding, padding, dilation) for n in spatial]
    return [inputs, weight, compute((batch, *out, co), element, name, varargs_names=["n", *axes, "co"])]


def conv1d(n: int, length: int, ci: int, co: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1,
           groups: int = 1) -> Tensors:  # fmt: skip
    """C1D: [N, L, CI] with [K, CI / groups, CO]."""
    return _conv(n, (length,), ci, co, kernel, stride, padding, dilation, groups, "conv1d_nlc", "l")


def conv2d(n: int, h: int, w: int, ci: int, co: int, kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1,
           groups: int = 1) -> Tensors:  # fmt: skip
    """C2D, and with the last arguments DIL and GRP: [N, H, W, CI] with [K, K, CI / groups, CO]."""
    return _conv(n, (h, w), ci, co, kernel, stride, padding, dilation, groups, "conv2d_nhwc", "hw")


def conv3d(n: int, d: int, h: int, w: int, ci: int, co: int, kernel: int, stride: int = 1, padding: int = 0,
           dilation: int = 1, groups: int = 1) -> Tensors:  # fmt: skip
    """C3D: [N, D, H, W, CI] with [K, K, K, CI / groups, CO]."""
    return _conv(n, (d, h, w), ci, co, kernel, stride, padding, dilation, groups, "conv3d_ndhwc", "dhw")


def depthwise_conv2d(n: int, h: int, w: int, c: int, kernel: int, stride: int = 1, padding: int = 0,
                     dilation: int = 1) -> Tensors:  # fmt: skip
    """DEP: [N, H, W, C] with [1, K, K, C]."""
    inputs, weight = placeholder((n, h, w, c)), placeholder((1, kernel, kernel, c))
    rh, rw = reduce_axis((0, kernel), "rh"), reduce_axis((0, kernel), "rw")
    padded = topi.nn.pad(inputs, [0, padding, padding, 0])
    out_h, out_w = [conv_extent(x, kernel, stride, padding, padding, dilation) for x in (h, w)]
    out = compute(
        (n, out_h, out_w, c),
        lambda n, h, w, c: te_sum(
            padded[n, h * stride + rh * dilation, w * stride + rw * dilation, c] * weight[0, rh, rw, c], axis=[rh, rw]
        ),
        "depth_conv2d_nhwc",
    )
    return [inputs, weight, out]


def norm(b: int, m: int, n: int) -> Tensors:
    """NRM: the Frobenius norm of each matrix of [B, M, N]."""
    a = placeholder((b, m, n), name="A")
    i, j = reduce_axis((0, m), "i"), reduce_axis((0, n), "j")
    c = compute((b,), lambda b: te_sum(a[b, i, j] * a[b, i, j], axis=[i, j]), "C")
    return [a, compute((b,), lambda b: call("sqrt", c[b]), "D")]


def softmax(m: int, n: int) -> Tensors:
    """SFM: softmax along the rows of [M, N]."""
    a = placeholder((m, n), name="A")
    return [a, topi.nn.softmax(a, axis=1)]
