"""Normalisations in inference: batch, layer, root mean square, instance, group, and local response."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...ir.nodes import Expr
from .emit import add, broadcast_to, call, cast, const, div, item, mul, reshape, sub
from .model import dtype_name
from .node import Converters, Node

MOST_NEIGHBOURS = 1000
"""Channels that a local response norm may reach over, so that a window is no larger than the data by much."""


def batch_norm(node: Node) -> Expr | list[Expr]:
    """BatchNormalization: X (N, C, ...), then scale, B, mean and variance of (C).

    In training (before opset 14: with several outputs) the moments are those of the batch, and the running ones are
    outputs too.
    """
    node.require(node.integer("spatial", 1) == 1, "spatial must be 1")
    x, *vectors = (node.input(i) for i in range(5))
    node.require(len(x.shape) >= 2, "the data needs an axis of channels", shape=x.shape)
    law = f"scale, B, mean and variance must have the shape ({x.shape[1]},)"
    node.require(all(v.shape == (x.shape[1],) for v in vectors), law, shapes=[v.shape for v in vectors])
    if node.integer("training_mode", 0) or (node.opset < 14 and len(node.outputs) > 1):
        return _in_training(node, x, vectors)
    vectors = [v if v.dtype == x.dtype else call("cast", v, dtype=x.dtype) for v in vectors]
    return item(call("nn.batch_norm", x, *vectors, axis=1, epsilon=node.number("epsilon", 1e-5)), 0)


def _in_training(node: Node, x: Expr, vectors: Sequence[Expr]) -> list[Expr]:
    """The result with the moments of the batch, and the running moments moved towards them."""
    scale, shift, *running = vectors
    axes = tuple(a for a in range(len(x.shape)) if a != 1)
    mean = call("mean", x, axis=axes, keepdims=True)
    centred = sub(x, mean)
    variance = call("mean", mul(centred, centred), axis=axes, keepdims=True)
    normal = div(centred, call("sqrt", add(variance, node.number("epsilon", 1e-5))))
    keep = node.number("momentum", 0.9)
    found = [cast(reshape(v, (x.shape[1],)), running[0].dtype) for v in (mean, variance)]
    moved = [add(mul(old, keep), mul(new, 1 - keep)) for old, new in zip(running, found, strict=True)]
    return [_scaled(node, normal, cast(scale, x.dtype), cast(shift, x.dtype)), *moved]


def layer_norm(node: Node) -> list[Expr]:
    """LayerNormalization over the axes from `axis` on; scale and B broadcast to their extents, B may be absent.

    Mean and InvStdDev are computed once more where a node names them.
    """
    first = _layer_norm(node)
    return [first] if len(node.outputs) < 2 else [first, *_moments(node)]


def _moments(node: Node) -> list[Expr]:
    """Mean and 1 / standard deviation over the axes that are normalised, which stay with extent 1, in float32."""
    x = cast(node.input(0), "float32")
    axes = tuple(range(node.axis(node.integer("axis", -1), len(x.shape)), len(x.shape)))
    mean = call("mean", x, axis=axes, keepdims=True)
    centred = sub(x, mean)
    variance = call("mean", mul(centred, centred), axis=axes, keepdims=True)
    return [mean, call("rsqrt", add(variance, node.number("epsilon", 1e-5)))]


def _check_stash(node: Node) -> None:
    """float32 inside is what every converter here computes with."""
    stash = node.integer("stash_type", 1)
    node.require(stash == 1, "stash_type must be 1, float32", stash_type=stash)


def rms_norm(node: Node) -> Expr:
    """RMSNormalization: over the root of the mean square; computed in `stash_type`, and float64 in itself."""
    x, scale = node.input(0), node.input(1)
    stash = dtype_name(node.integer("stash_type", 1), str(node))
    wide = x if x.dtype == "float64" else cast(x, stash)
    axes = tuple(range(node.axis(node.integer("axis", -1), len(x.shape)), len(x.shape)))
    square = call("mean", mul(wide, wide), axis=axes, keepdims=True)
    normal = div(wide, call("sqrt", add(square, node.number("epsilon", 1e-5))))
    return mul(cast(normal, scale.dtype), scale)


def mean_variance(node: Node) -> Expr:
    """MeanVarianceNormalization: mean 0 and variance 1 over the axes, by default batch and spatial ones."""
    x = node.input(0)
    axes = node.axes(node.integers("axes", (0, 2, 3)), len(x.shape))
    if 0 in x.shape:
        return x
    centred = _centred(x, axes)
    variance = call("mean", mul(centred, centred), axis=axes, keepdims=True)
    return div(centred, add(call("sqrt", variance), 1e-9))


def _layer_norm(node: Node) -> Expr:
    x, scale, shift = node.input(0), node.input(1), node.optional(2)
    _check_stash(node)
    axis = node.axis(node.integer("axis", -1), len(x.shape))
    inner = x.shape[axis:]
    shift = const(0, x.dtype) if shift is None else shift
    for v in (scale, shift):
        short = len(v.shape) <= len(inner)
        fits = short and all(n in (1, m) for n, m in zip(v.shape[::-1], inner[::-1], strict=False))
        node.require(fits, f"scale and B must broadcast to {inner}", scale=scale.shape, B=shift.shape)
    scale, shift = (broadcast_to(v, inner) for v in (scale, shift))
    size = prod(inner)
    flat = reshape(x, (*x.shape[:axis], size))
    epsilon = node.number("epsilon", 1e-5)
    out = call("nn.layer_norm", flat, reshape(scale, (size,)), reshape(shift, (size,)), axis=-1, epsilon=epsilon)
    return reshape(out, x.shape)


def instance_norm(node: Node) -> Expr:
    """InstanceNormalization: over the spatial axes of every channel of every image."""
    x, scale, shift = node.input(0), node.input(1), node.input(2)
    axes = tuple(range(2, len(x.shape)))
    centred = _centred(x, axes)
    variance = call("mean", mul(centred, centred), axis=axes, keepdims=True)
    normal = div(centred, call("sqrt", add(variance, node.number("epsilon", 1e-5))))
    return _scaled(node, normal, scale, shift)


def group_norm(node: Node) -> Expr:
    """GroupNormalization: scale and bias have one value a group before opset 21, one a channel since."""
    x, scale, shift = node.input(0), node.input(1), node.input(2)
    _check_stash(node)
    groups = node.integer("num_groups")
    fits = len(x.shape) >= 2 and groups >= 1 and x.shape[1] % groups == 0
    node.require(fits, "num_groups must divide the channels", shape=x.shape, num_groups=groups)
    if node.opset < 21:
        law = "scale and bias must have one value a group"
        node.require(scale.shape == shift.shape == (groups,), law, scale=scale.shape, bias=shift.shape)
        scale, shift = (call("repeat", v, repeats=x.shape[1] // groups, axis=0) for v in (scale, shift))
    epsilon = node.number("epsilon", 1e-5)
    return call("nn.group_norm", x, scale, shift, num_groups=groups, axis=1, epsilon=epsilon)


def _centred(x: Expr, axes: tuple[int, ...]) -> Expr:
    """`x` less its mean over `axes`, twice, as the first mean is rounded to the size of `x`."""
    for _ in range(2):
        x = sub(x, call("mean", x, axis=axes, keepdims=True))
    return x


def _scaled(node: Node, x: Expr, scale: Expr, shift: Expr) -> Expr:
    """One scale and one shift a channel; dimension 1 of `x` counts the channels."""
    each = x.shape[1:2]
    law = f"scale and bias must have the shape {each}"
    node.require(scale.shape == shift.shape == each, law, scale=scale.shape, bias=shift.shape)
    along = (*each, *(1,) * (len(x.shape) - 2))
    return add(mul(x, reshape(scale, along)), reshape(shift, along))


def local_response(node: Node) -> Expr:
    """LRN: x / (bias + alpha / size * sum of squares of the neighbouring channels) ** beta."""
    x, size = node.input(0), node.integer("size")
    node.require(len(x.shape) >= 3 and size >= 1, "channels and spatial axes are needed", shape=x.shape, size=size)
    law = f"a window may reach over {MOST_NEIGHBOURS} channels"
    node.require(size <= MOST_NEIGHBOURS, law, size=size, channels=x.shape[1])
    alpha, beta, bias = node.number("alpha", 1e-4), node.number("beta", 0.75), node.number("bias", 1.0)
    return call("nn.lrn", x, size=size, axis=1, alpha=alpha, beta=beta, bias=bias)


CONVERTERS: Converters = {
    "BatchNormalization": {1: batch_norm},
    "LayerNormalization": {17: layer_norm},
    "RMSNormalization": {23: rms_norm},
    "MeanVarianceNormalization": {9: mean_variance},
    "InstanceNormalization": {6: instance_norm},
    "GroupNormalization": {18: group_norm},
    "LRN": {1: local_response},
}
