"""Layers: products, normalisations, pools, attention and resizing, by the converters of ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from te_lite.expr.dtype import accumulated

from ...ir import make
from ...ir.nodes import Expr
from ..onnx.emit import add, broadcast_to, call, cast, const, mul, reshape, sub, transpose, unwidened
from ..onnx.product import product
from .node import Aten, Converter, Converters

ROUNDED = ("float32", "float16", "bfloat16")
"""What sums of scaled products are rounded to; a float of 8 bits would saturate."""
GRID_MODES, GRID_PADS = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")
MOST_SUMMED = 1 << 16
"""Elements of a channel that one sum of a batch norm has."""


def mm(node: Aten) -> Expr:
    """mm and bmm: products of matrices."""
    return node.onnx("MatMul", node.tensor("self"), node.tensor("mat2"))[0]


def addmm(node: Aten) -> Expr:
    """addmm: beta self + alpha mat1 mat2."""
    alpha, beta = float(node.number("alpha", 1)), float(node.number("beta", 1))
    given = [node.tensor(name) for name in ("mat1", "mat2", "self")]
    return node.onnx("Gemm", *given, alpha=alpha, beta=beta)[0]


def baddbmm(node: Aten) -> Expr:
    """baddbmm: beta self + alpha batch1 batch2."""
    out = product(node.tensor("batch1"), node.tensor("batch2"))
    alpha, beta, x = node.number("alpha", 1), node.number("beta", 1), node.tensor("self")
    out = out if alpha == 1 else mul(out, alpha)
    return out if beta == 0 else add(out, x if beta == 1 else mul(x, beta))


def scaled_mm(node: Aten) -> Expr:
    """_scaled_mm: products of floats of 8 bits summed up in float32, times scales of factors or of rows and columns."""
    node.require(node.dtype in ROUNDED, f"its result must be one of {', '.join(ROUNDED)}", got=node.dtype)
    a, b = [cast(node.tensor(name), node.dtypes[name]) for name in ("self", "mat2")]
    sums = product(a, b, weights=True, out_dtype="float32")
    scales, bias = [node.tensor(name) for name in ("scale_a", "scale_b")], node.optional("bias")
    for scale, one in zip(scales, ((sums.shape[0], 1), (1, sums.shape[1])), strict=True):
        node.require(prod(scale.shape) == 1 or scale.shape == one, "scales must be of a factor, or its rows or columns")
        sums = mul(sums, reshape(scale, ()) if prod(scale.shape) == 1 else scale)
    node.flag("use_fast_accum"), node.argument("out_dtype")
    return cast(sums if bias is None else add(sums, cast(bias, "float32")), node.dtype)


def linear(node: Aten) -> Expr:
    """linear: x weight' + bias."""
    out = node.onnx("MatMul", node.tensor("input"), transpose(node.tensor("weight"), (1, 0)))[0]
    bias = node.optional("bias")
    return out if bias is None else add(out, bias)


def _affine(node: Aten, shape: Sequence[int], dtype: str) -> tuple[Expr, Expr]:
    """Weight and bias; ones and zeros where they are absent."""
    given = [(node.optional(name), fill) for name, fill in (("weight", 1), ("bias", 0))]
    one, two = (const(np.full(tuple(shape), fill), dtype) if e is None else e for e, fill in given)
    return one, two


def batch_norm(node: Aten) -> Sequence[Expr | None]:
    """Batch norm in inference: with the running moments."""
    x = node.tensor("input")
    scale, shift = _affine(node, x.shape[1:2], x.dtype)
    moments = node.tensor("running_mean"), node.tensor("running_var")
    return [node.onnx("BatchNormalization", x, scale, shift, *moments, epsilon=node.number("eps"))[0], None, None]


def batch_moments(node: Aten) -> Sequence[Expr | None]:
    """Batch norm in training: the result, the moments of the batch, and the running ones moved towards them."""
    node.require(node.flag("training"), "it must use the moments of the batch")
    out, mean, var, spread = _of_batch(node)
    count, weight = _per_channel(node.tensor("input")), float(node.number("momentum"))
    unbiased = mul(var, count / max(count - 1, 1))
    running = []
    for name, new in (("running_mean", mean), ("running_var", unbiased)):
        old = node.tensor(name)
        running.append(add(mul(old, 1 - weight), mul(cast(new, old.dtype), weight)))
    return [out, mean, spread, *running]


def own_moments(node: Aten) -> Sequence[Expr | None]:
    """Batch norm with the moments of the data, and no running ones; of a batch of one it is an instance norm."""
    node.flag("training")
    out, mean, _, spread = _of_batch(node)
    return [out, mean, spread]


def _of_batch(node: Aten) -> tuple[Expr, Expr, Expr, Expr]:
    """The data normalised by their own moments; mean, variance and 1 / standard deviation of every channel."""
    x = node.tensor("input")
    channels, inside = x.shape[1:2], tuple(range(2, len(x.shape)))
    alone = x.shape[0] == 1 and inside != ()
    normal, *moments = _standard(x, inside if alone else (0, *inside), node.number("eps"))
    mean, var, spread = [reshape(e, channels) for e in moments]
    return _scaled(node, normal, (*channels, *[1] * len(inside))), mean, var, spread


def _standard(x: Expr, axes: tuple[int, ...], epsilon: float) -> tuple[Expr, Expr, Expr, Expr]:
    """`x` with mean 0 and variance 1 over `axes`; mean, variance and 1 / standard deviation, which keep the axes as 1.

    Two reductions read the data, then the result does.  What is summed up are distances from one of the elements: a
    mean is rounded to the size of what it is the mean of, and an offset may be far larger than the spread.  The three
    centre the data in ways of their own, `x + -some`, `some - x` and `x - some`: one expression for all would be a
    kernel that stores as much as there are data.  So would a cast be that all of them read, in front of a reshape.
    """
    given = unwidened(x)
    x, some = _wide(given), _wide(_one_of(given, axes))
    off = _mean(add(x, call("negative", some)), axes)
    less = add(sub(some, x), off)
    var = _mean(mul(less, less), axes)
    spread = call("rsqrt", add(var, float(epsilon)))
    return mul(sub(sub(x, some), off), spread), add(some, off), var, spread


def _wide(x: Expr) -> Expr:
    wide = accumulated(x.dtype)
    return x if wide == x.dtype else make.call("cast", x, dtype=wide)


def _one_of(x: Expr, axes: tuple[int, ...]) -> Expr:
    """One of the elements along `axes`: from the middle, as those of a border may be unlike the others."""
    middle = [x.shape[a] // 2 for a in axes]
    end = tuple([k + 1 for k in middle])
    return call("strided_slice", x, begin=tuple(middle), end=end, strides=(1,) * len(axes), axes=axes)


def _mean(x: Expr, axes: tuple[int, ...]) -> Expr:
    """The mean over axes; of a large batch it is summed up image by image, as a long sum of floats loses digits."""
    if axes[0] == 0 and axes[1:] and prod([x.shape[a] for a in axes]) > MOST_SUMMED:
        x, axes = call("mean", x, axis=axes[1:], keepdims=True), axes[:1]
    return call("mean", x, axis=axes, keepdims=True)


def _scaled(node: Aten, x: Expr, along: Sequence[int]) -> Expr:
    """`x` times the weight plus the bias, where they are given; they lie along the dimensions `along`."""
    for name, apply in (("weight", mul), ("bias", add)):
        given = node.optional(name)
        x = x if given is None else apply(x, reshape(cast(given, x.dtype), along))
    return x


def _per_channel(x: Expr) -> int:
    """The elements of a channel."""
    return prod(x.shape[:1] + x.shape[2:])


def layer_norm(node: Aten) -> Sequence[Expr | None]:
    """Layer norm over the last axes."""
    x, shape = node.tensor("input"), node.integers("normalized_shape")
    scale, shift = _affine(node, shape, x.dtype)
    out = node.onnx("LayerNormalization", x, scale, shift, axis=-len(shape), epsilon=node.number("eps"))[0]
    return [out, None, None]


def group_norm(node: Aten) -> Sequence[Expr | None]:
    """Group norm: groups of channels, one scale and one shift a channel."""
    x, groups = node.tensor("input"), node.integer("group")
    for name in ("N", "C", "HxW"):
        node.integer(name)
    channels = (groups, x.shape[1] // groups) if groups > 1 else x.shape[1:2]
    split = reshape(x, (x.shape[0], *channels, *x.shape[2:]))
    axes = tuple(range(len(channels), len(split.shape)))
    out = _scaled(node, _standard(split, axes, node.number("eps"))[0], (*channels, *[1] * len(x.shape[2:])))
    return [reshape(cast(out, node.dtype), x.shape), None, None]


def rms_norm(node: Aten) -> Sequence[Expr | None]:
    """RMS norm over the last axes."""
    x, shape = node.tensor("input"), node.integers("normalized_shape")
    weight = node.optional("weight")
    scale = const(np.ones(shape), x.dtype) if weight is None else weight
    epsilon = node.number("eps", float(np.finfo(x.dtype).eps))
    return [node.onnx("RMSNormalization", x, scale, axis=-len(shape), epsilon=epsilon)[0], None]


def pool(op: str, n: int) -> Converter:
    """max and average pools over n axes; data without a batch get one for the time of the pool."""

    def convert(node: Aten) -> Sequence[Expr | None]:
        x, kernel = node.tensor("self"), node.each("kernel_size", n)
        batched = x if len(x.shape) == n + 2 else reshape(x, (1, *x.shape))
        pads = node.each("padding", n, (0,))
        attrs: dict[str, Any] = {
            "kernel_shape": kernel, "strides": node.each("stride", n, kernel), "pads": (*pads, *pads),
            "ceil_mode": int(node.flag("ceil_mode")),
        }  # fmt: skip
        if op == "MaxPool":
            out = node.onnx(op, batched, **attrs, dilations=node.each("dilation", n, (1,)))[0]
        else:
            counted = int(node.flag("count_include_pad", True))
            out = node.onnx(op, batched, **attrs, count_include_pad=counted)[0]
        return [reshape(out, node.shape), None][: len(node.result)]

    return convert


def adaptive_pool(n: int) -> Converter:
    """Averages of as many windows as the result has elements, which may overlap and differ in size."""

    def convert(node: Aten) -> Expr:
        x, size = node.tensor("self"), node.each("output_size", n)
        inside = x.shape[-n:]
        if all(s == 1 for s in size):
            return call("mean", x, axis=tuple(range(len(x.shape) - n, len(x.shape))), keepdims=True)
        batched = reshape(x, (1, prod(x.shape[:-n]), *inside))
        if all(d % s == 0 for d, s in zip(inside, size, strict=True)):
            kernel = tuple(d // s for d, s in zip(inside, size, strict=True))
            out = node.onnx("AveragePool", batched, kernel_shape=kernel, strides=kernel)[0]
        else:
            wide = cast(batched, accumulated(x.dtype))
            out = cast(call(f"nn.adaptive_avg_pool{n}d", wide, output_size=size), x.dtype)
        return reshape(out, node.shape)

    return convert


def attention(mask: str | None) -> Converter:
    """Scaled dot products, of which only the first result is given; argument `mask` is added or selects.

    Queries, keys and values have any number of axes before sequence and size: the last is heads, the others are batch.
    """

    def convert(node: Aten) -> Sequence[Expr | None]:
        node.require(node.number("dropout_p", 0) == 0, "dropout must be 0: this is inference")
        node.flag("compute_log_sumexp"), node.flag("return_debug_mask")
        given = [_with_heads(node.tensor(name)) for name in ("query", "key", "value")]
        batch = np.broadcast_shapes(*[x.shape[:-3] for x in given])
        heads = [x.shape[-3] for x in given]
        if not node.flag("enable_gqa"):
            heads = [max(heads)] * len(heads)
        query, key, value = (_in_batch(x, batch, h) for x, h in zip(given, heads, strict=True))
        seen = None if mask is None else node.optional(mask)
        seen = None if seen is None else _mask_of(seen, batch, heads[0], key.shape[2])
        scale = float(node.number("scale", 1 / np.sqrt(query.shape[-1])))
        causal, counts = int(node.flag("is_causal")), {"q_num_heads": heads[0], "kv_num_heads": heads[1]}
        out = node.onnx("Attention", query, key, value, seen, **counts, scale=scale, is_causal=causal)[0]
        return [reshape(out, node.shape), *[None] * (len(node.result) - 1)]

    return convert


def _with_heads(x: Expr) -> Expr:
    """(..., heads, sequence, size); a matrix is one head."""
    return x if len(x.shape) > 2 else reshape(x, (1, *x.shape))


def _in_batch(x: Expr, batch: tuple[int, ...], heads: int) -> Expr:
    """(batch, heads, sequence, size) of what has fewer items or heads, which serve all, or more batch axes."""
    whole = broadcast_to(x, (*batch, heads, *x.shape[-2:]))
    return reshape(whole, (prod(batch), *whole.shape[-3:]))


def _mask_of(mask: Expr, batch: tuple[int, ...], heads: int, columns: int) -> Expr:
    """A mask that broadcasts to (*batch, heads, sequence, columns), with all columns and at most one batch axis."""
    if len(mask.shape) <= 1:
        return broadcast_to(mask, (1, columns))
    mask = broadcast_to(mask, (*mask.shape[:-1], columns))
    rows = mask.shape[-2:]
    if mask.shape == rows or len(batch) <= 1:
        return mask
    return reshape(broadcast_to(mask, (*batch, heads, *rows)), (prod(batch), heads, *rows))


def resized(mode: str, vec: bool) -> Converter:
    """upsample: the spatial axes in another size, between the pixels by `mode`."""

    def convert(node: Aten) -> Expr:
        x = node.tensor("input" if vec else "self")
        sizes, extents = node.shape[2:], x.shape[2:]
        node.argument("output_size")
        given = node.argument("scale_factors", ()) if vec else [node.argument(f"scales_{a}") for a in ("h", "w")]
        fits = all(f is None or f * d == s for f, d, s in zip(given, extents, sizes, strict=False))
        node.require(fits, "the scales must be those of the sizes", scales=str(given), size=sizes)
        how: dict[str, Any]
        if mode == "nearest":
            how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        else:
            corners = "align_corners" if node.flag("align_corners") else "half_pixel"
            how = {"coordinate_transformation_mode": corners}
        whole = const(node.shape, "int64")
        return node.onnx("Resize", x, None, None, whole, mode=mode, **how)[0]

    return convert


def grid_sample(node: Aten) -> Expr:
    """grid_sampler_2d: pixels at positions that are not whole."""
    mode, pads = node.integer("interpolation_mode"), node.integer("padding_mode")
    return node.onnx("GridSample", node.tensor("input"), node.tensor("grid"), mode=GRID_MODES[mode],
                     padding_mode=GRID_PADS[pads], align_corners=int(node.flag("align_corners")))[0]  # fmt: skip


RESIZED = {"nearest2d": "nearest", "bilinear2d": "linear", "bicubic2d": "cubic"}

CONVERTERS: Converters = {
    "aten.mm": mm,
    "aten.bmm": mm,
    "aten.addmm": addmm,
    "aten.baddbmm": baddbmm,
    "aten._scaled_mm": scaled_mm,
    "aten.linear": linear,
    "aten._native_batch_norm_legit_no_training": batch_norm,
    "aten._native_batch_norm_legit_functional": batch_moments,
    "aten._native_batch_norm_legit.no_stats": own_moments,
    "aten.native_layer_norm": layer_norm,
    "aten.native_group_norm": group_norm,
    "aten._fused_rms_norm": rms_norm,
    **{f"aten.max_pool{n}d_with_indices": pool("MaxPool", n) for n in (2, 3)},
    **{f"aten.avg_pool{n}d": pool("AveragePool", n) for n in (1, 2, 3)},
    "aten.adaptive_avg_pool1d": adaptive_pool(1),
    "aten._adaptive_avg_pool2d": adaptive_pool(2),
    "aten._adaptive_avg_pool3d": adaptive_pool(3),
    "aten.scaled_dot_product_attention": attention("attn_mask"),
    "aten._scaled_dot_product_flash_attention_for_cpu": attention("attn_mask"),
    **{f"aten._scaled_dot_product_{name}_attention": attention("attn_bias") for name in ("efficient", "cudnn")},
    "aten._scaled_dot_product_flash_attention": attention(None),
    **{f"aten.upsample_{name}": resized(mode, vec=False) for name, mode in RESIZED.items()},
    **{f"aten.upsample_{name}.vec": resized(mode, vec=True) for name, mode in RESIZED.items()},
    "aten.grid_sampler_2d": grid_sample,
}
