"""The single operators and subgraphs that the Ansor paper measures (sections 7.1 and 7.2), by name in `OPERATORS`.

`SHAPES` holds four shapes of each at batch 1.
"""

from __future__ import annotations

from collections.abc import Callable

from ansor.core.tasks.catalog_operators import (
    Tensors,
    batch_matmul,
    conv1d,
    conv2d,
    conv3d,
    depthwise_conv2d,
    norm,
    softmax,
)
from te_lite.computation.tensor import compute, placeholder
from te_lite.expr import reduction
from te_lite.expr.expr import Expr, const, if_then_else, logical_and
from te_lite.topi import nn
from te_lite.topi.utils import conv_extent


def conv2d_transpose(n: int, h: int, w: int, ci: int, co: int, kernel: int, stride: int = 1,
                     padding: int = 0) -> Tensors:  # fmt: skip
    """T2D: [N, H, W, CI] with [K, K, CI, CO]; the dilation is part of the convolution stage.

    The data is padded by whole strides, and the convolution starts `border` elements inside.
    """
    inputs = placeholder((n, h, w, ci), name="inputs")
    weight = placeholder((kernel, kernel, ci, co), name="weight")
    inner = kernel - 1 - padding
    whole = -(-inner // stride)
    border = whole * stride - inner
    padded = nn.pad(inputs, [0, whole, whole, 0])
    rc = reduction.reduce_axis((0, ci), "rc")
    rh, rw = reduction.reduce_axis((0, kernel), "rh"), reduction.reduce_axis((0, kernel), "rw")

    def dilated(b: Expr, y: Expr, x: Expr, c: Expr) -> Expr:
        hit = logical_and((y % stride).equal(0), (x % stride).equal(0))
        return if_then_else(hit, padded[b, y // stride, x // stride, c], const(0.0))

    out = compute(
        (n, (h - 1) * stride + kernel - 2 * padding, (w - 1) * stride + kernel - 2 * padding, co),
        lambda n, h, w, co: reduction.sum(
            dilated(n, h + rh + border, w + rw + border, rc) * weight[kernel - 1 - rh, kernel - 1 - rw, rc, co],
            axis=[rh, rw, rc],
        ),
        "conv2d_transpose_nhwc",
    )
    return [inputs, weight, out]


def conv2d_capsule(n: int, h: int, w: int, ci: int, co: int, kernel: int, stride: int = 1, padding: int = 0,
                   capsule_size: int = 4) -> Tensors:  # fmt: skip
    """CAP: a convolution whose elements are square matrices: [N, H, W, S, S, CI] with [K, K, S, S, CI, CO]."""
    s = capsule_size
    inputs = placeholder((n, h, w, s, s, ci), name="inputs")
    weight = placeholder((kernel, kernel, s, s, ci, co), name="weight")
    rh, rw = reduction.reduce_axis((0, kernel), "rh"), reduction.reduce_axis((0, kernel), "rw")
    cap_k, rc = reduction.reduce_axis((0, s), "cap_k"), reduction.reduce_axis((0, ci), "rc")
    padded = nn.pad(inputs, [0, padding, padding, 0, 0, 0])
    out_h, out_w = [conv_extent(x, kernel, stride, padding, padding) for x in (h, w)]
    out = compute(
        (n, out_h, out_w, s, s, co),
        lambda n, h, w, cap_i, cap_j, co: reduction.sum(
            padded[n, h * stride + rh, w * stride + rw, cap_i, cap_k, rc] * weight[rh, rw, cap_k, cap_j, rc, co],
            axis=[rh, rw, cap_k, rc],
        ),
        "conv2d_capsule_nhwijc",
    )
    return [inputs, weight, out]


def conv2d_bn_relu(n: int, h: int, w: int, ci: int, co: int, kernel: int, stride: int, padding: int,
                   dilation: int = 1) -> Tensors:  # fmt: skip
    """CBR: convolution, bias, scale, shift and relu; [N, H, W, CI] with [K, K, CI, CO]."""
    data = placeholder((n, h, w, ci), name="data")
    weight = placeholder((kernel, kernel, ci, co), name="kernel")
    bias, scale, offset = [placeholder((co,), name=x) for x in ("bias", "bn_scale", "bn_offset")]
    padded = nn.pad(data, [0, padding, padding, 0], name="PaddedInput")
    ry, rx = reduction.reduce_axis((0, kernel), "ry"), reduction.reduce_axis((0, kernel), "rx")
    rc = reduction.reduce_axis((0, ci), "rc")
    out_h, out_w = [conv_extent(x, kernel, stride, padding, padding, dilation) for x in (h, w)]
    shape = (n, out_h, out_w, co)
    conv = compute(
        shape,
        lambda nn, yy, xx, ff: reduction.sum(
            padded[nn, yy * stride + ry * dilation, xx * stride + rx * dilation, rc] * weight[ry, rx, rc, ff],
            axis=[ry, rx, rc],
        ),
        "Conv2dOutput",
        "conv2d_nhwc",
    )
    axes = ["i", "j", "k", "l"]
    biased = compute(shape, lambda *i: conv[i] + bias[i[3]], "bias_add", varargs_names=axes)
    scaled = compute(shape, lambda *i: biased[i] * scale[i[3]], "bn_mul", varargs_names=axes)
    shifted = compute(shape, lambda *i: scaled[i] + offset[i[3]], "bn_add", varargs_names=axes)
    return [data, weight, bias, scale, offset, nn.relu(shifted)]


def transpose_batch_matmul(batch: int, seq_len: int, n_head: int, n_dim: int) -> Tensors:
    """TBG: the core of attention: query and value [B, S, heads, dim] give [B, heads, S, S]."""
    query = placeholder((batch, seq_len, n_head, n_dim), name="query")
    value = placeholder((batch, seq_len, n_head, n_dim), name="value")
    query_t = compute(
        (batch, n_head, seq_len, n_dim),
        lambda b, h, *i: query[b, i[0], h, i[1]],
        "query_T",
        varargs_names=["l", "d"],
    )
    value_t = compute(
        (batch, n_head, n_dim, seq_len),
        lambda b, h, *i: value[b, i[1], h, i[0]],
        "value_T",
        varargs_names=["d", "l"],
    )
    k = reduction.reduce_axis((0, n_dim), "k")
    out = compute(
        (batch, n_head, seq_len, seq_len),
        lambda b, h, i, j: reduction.sum(query_t[b, h, i, k] * value_t[b, h, k, j], axis=[k]),
        "C",
    )
    return [query, value, out]


OPERATORS: dict[str, Callable[..., Tensors]] = {
    "C1D": conv1d,
    "C2D": conv2d,
    "C3D": conv3d,
    "GMM": batch_matmul,
    "GRP": conv2d,
    "DIL": conv2d,
    "DEP": depthwise_conv2d,
    "T2D": conv2d_transpose,
    "CAP": conv2d_capsule,
    "NRM": norm,
    "SFM": softmax,
    "CBR": conv2d_bn_relu,
    "TBG": transpose_batch_matmul,
}

_IMAGES = (
    (224, 224, 3, 64, 7, 2, 3),
    (56, 56, 64, 64, 1, 1, 0),
    (14, 14, 256, 256, 3, 1, 1),
    (7, 7, 512, 512, 3, 1, 1),
)

SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "C1D": (
        (1, 256, 64, 128, 3, 2, 1),
        (1, 128, 128, 256, 1, 2, 0),
        (1, 64, 256, 256, 5, 1, 2),
        (1, 32, 512, 512, 3, 1, 1),
    ),
    "C2D": tuple([(1, *s) for s in _IMAGES]),
    "C3D": tuple([(1, 16, *s) for s in _IMAGES]),
    "GMM": ((1, 128, 128, 128), (1, 512, 32, 512), (1, 512, 512, 512), (1, 1024, 1024, 1024)),
    "GRP": tuple([(1, *s, 1, 4) for s in ((56, 56, 64, 128, 3, 2, 1), *_IMAGES[1:])]),
    "DIL": tuple([(1, *s, 2) for s in _IMAGES]),
    "DEP": (
        (1, 112, 112, 32, 3, 1, 1),
        (1, 112, 112, 64, 3, 2, 1),
        (1, 14, 14, 512, 3, 2, 1),
        (1, 7, 7, 1024, 3, 1, 1),
    ),
    "T2D": (
        (1, 4, 4, 512, 256, 4, 2, 1),
        (1, 8, 8, 256, 128, 4, 2, 1),
        (1, 16, 16, 128, 64, 4, 2, 1),
        (1, 32, 32, 64, 3, 4, 2, 1),
    ),
    "CAP": (
        (1, 16, 16, 32, 32, 3, 2, 1),
        (1, 8, 8, 32, 32, 3, 1, 1),
        (1, 16, 16, 8, 16, 3, 2, 1),
        (1, 8, 8, 16, 16, 3, 1, 1),
    ),
    "NRM": ((1, 256, 256), (1, 512, 512), (1, 1024, 1024), (1, 4096, 1024)),
    "SFM": ((256, 256), (512, 512), (1024, 1024), (2048, 2048)),
    "CBR": (
        (1, 224, 224, 3, 64, 7, 2, 3),
        (1, 56, 56, 64, 128, 3, 2, 1),
        (1, 28, 28, 128, 256, 1, 2, 0),
        (1, 7, 7, 512, 512, 3, 1, 1),
    ),
    "TBG": ((1, 128, 12, 64), (1, 128, 16, 64), (1, 64, 12, 128), (1, 128, 12, 128)),
}
