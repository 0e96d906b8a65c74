"""Windows whose elements are elsewhere: DeformConv reads the data where it is told, MaxUnpool writes maxima back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import product as every
from math import prod

import numpy as np

from te_lite.expr.expr import FLOATS

from ...ir.nodes import Array, Expr
from .conv import check_channels
from .emit import add, binary, call, const, mul, reshape, sub
from .node import Converters, Node
from .product import product
from .sample import Axis, linear_taps, read_at
from .scatter import elements
from .select import narrow, pick
from .window import Window, bare_window, explicit_pads, read_window


def deform_conv(node: Node) -> Expr:
    """DeformConv: every element of the kernel reads X (N, C, H, W) where `offset` moves it, times `mask`.

    offset: (N, offset groups x kernel x 2, output), mask: (N, offset groups x kernel, output); outside X is 0.
    """
    x, weight, offset = node.input(0), node.input(1), node.input(2)
    node.require(len(x.shape) == len(weight.shape) == 4, "data and weight must have 2 spatial axes", data=x.shape)
    window, group = read_window(node, x.shape[2:], weight.shape[2:]), node.integer("group", 1)
    check_channels(node, x.shape[1], weight.shape, group, window)
    sides = zip(x.shape[2:], window.before, window.after, window.reach, window.strides, strict=True)
    shape = tuple((d + b + a - r) // s + 1 for d, b, a, r, s in sides)
    share = _offset_groups(node, x, offset, window, shape)
    n, taps, points = x.shape[0], prod(window.kernel), prod(shape)
    moved = reshape(offset, (n * share, taps, 2, points))
    places = [reshape(add(const(base, x.dtype), reshape(pick(moved, {2: range(d, d + 1)}), (n * share, taps, points))),
                      (n * share, taps * points)) for d, base in enumerate(_bases(window, shape))]  # fmt: skip
    axes = [Axis(extent, "zeros", False) for extent in x.shape[2:]]
    flat = reshape(x, (n * share, x.shape[1] // share, prod(x.shape[2:])))
    parts = [read_at(flat, axes, chosen) for chosen in every(*map(linear_taps, places))]
    read = _masked(node, reshape(reduce(add, parts), (n, share, x.shape[1] // share, taps, points)))
    columns = reshape(read, (n, group, prod(weight.shape[1:]), points))
    rows = reshape(weight, (1, group, weight.shape[0] // group, prod(weight.shape[1:])))
    return _with_bias(node, reshape(product(rows, columns), (n, weight.shape[0], *shape)))


def _offset_groups(node: Node, x: Expr, offset: Expr, window: Window, shape: Sequence[int]) -> int:
    share, taps = node.integer("offset_group", 1), prod(window.kernel)
    node.require(share >= 1 and x.shape[1] % share == 0, "offset_group must divide the channels", offset_group=share)
    wanted = (x.shape[0], share * taps * 2, *shape)
    node.require(offset.shape == wanted, f"offset must have the shape {wanted}", offset=offset.shape)
    node.require(x.dtype in FLOATS, "floats are needed", dtype=x.dtype)
    return share


def _bases(window: Window, shape: Sequence[int]) -> list[Array]:
    """By axis: where every element of the kernel reads for every output (kernel, output), without an offset."""
    taps, outs = (np.indices(v).reshape(2, -1) for v in (window.kernel, shape))
    return [outs[d][None] * window.strides[d] - window.before[d] + taps[d][:, None] * window.dilation[d]
            for d in range(2)]  # fmt: skip


def _masked(node: Node, read: Expr) -> Expr:
    """What is read (N, offset groups, channels, kernel, points) times the mask."""
    mask = node.optional(4)
    if mask is None:
        return read
    n, share, _, taps, points = read.shape
    fits = len(mask.shape) == 4 and mask.shape[:2] == (n, share * taps) and prod(mask.shape[2:]) == points
    node.require(fits, "the mask needs one value an element of the kernel and output", mask=mask.shape)
    return mul(read, reshape(mask, (n, share, 1, taps, points)))


def _with_bias(node: Node, out: Expr) -> Expr:
    bias = node.optional(3)
    if bias is None:
        return out
    node.require(bias.shape == (out.shape[1],), "the bias needs one value per channel", bias=bias.shape, out=out.shape)
    return call("nn.bias_add", out, bias, axis=1)


def max_unpool(node: Node) -> Expr:
    """MaxUnpool: zeros with the data where the indices of its MaxPool say, counted in the whole tensor.

    An element that MaxPool wrote comes from its own channel, and only its own is looked at.
    """
    x, at, wanted = node.input(0), node.input(1), node.list_at(2, "output_shape", since=0)
    node.require(len(x.shape) >= 3 and at.shape == x.shape, "an index an element is needed", data=x.shape,
                 indices=at.shape)  # fmt: skip
    n = len(x.shape) - 2
    window = bare_window(node, n)
    before, after = explicit_pads(node, n)
    pads = zip(x.shape[2:], window.strides, window.kernel, before, after, strict=True)
    least = tuple((d - 1) * s + k - b - a for d, s, k, b, a in pads)
    shape = least if wanted is None else tuple(wanted[2:])
    fits = tuple(wanted or x.shape)[:2] == x.shape[:2] and len(shape) == n
    node.require(min(least) >= 1 and fits, "the output must have elements, channels as the data", output=shape)
    lines, count, size = prod(x.shape[:2]), prod(x.shape[2:]), prod(shape)
    here = _places(reshape(narrow(at), (lines, *x.shape[2:])), shape, least, (window, before))
    here = reshape(here, (lines, 1, count))
    hit = binary("equal", here, const(np.arange(size).reshape(1, size, 1), "int32"))
    zeros = const(np.zeros((lines, size)), x.dtype)
    return reshape(elements("", zeros, reshape(x, (lines, count)), hit, count), (*x.shape[:2], *shape))


def _places(at: Expr, shape: Sequence[int], least: Sequence[int], pool: tuple[Window, Sequence[int]]) -> Expr:
    """Indices (lines, *pooled) as places in a result (*shape).

    They count in what was pooled, which the result is then, as onnxruntime and PyTorch read them: every one lies in its
    own window.  Where that is not so, they count in the least result there is, as in ONNX's own implementation, and the
    rest is zeros behind it.
    """

    def of_line(extents: Sequence[int]) -> Expr:
        first = np.arange(at.shape[0]).reshape(-1, *(1,) * len(extents)) * prod(extents)
        return sub(at, const(first, "int32"))

    here = of_line(shape)
    if tuple(shape) == tuple(least) or any(s < d for s, d in zip(shape, least, strict=True)):
        return here
    window, before = pool
    inside = call("logical_and", binary("greater_equal", here, 0), binary("less", here, prod(shape)))
    for d, place in enumerate(_coordinates(here, shape)):
        steps = np.arange(at.shape[d + 1]) * window.strides[d] - before[d]
        first = const(steps.reshape([-1 if k == d + 1 else 1 for k in range(len(at.shape))]), "int32")
        ahead = sub(place, first)
        own = call("logical_and", binary("greater_equal", ahead, 0), binary("less", ahead, window.kernel[d]))
        inside = call("logical_and", inside, own)
    moved: Expr = const(0, "int32")
    for extent, place in zip(shape, _coordinates(of_line(least), least), strict=True):
        moved = add(mul(moved, extent), place)
    return call("where", call("all", inside, axis=tuple(range(len(at.shape))), keepdims=True), here, moved)


def _coordinates(flat: Expr, shape: Sequence[int]) -> list[Expr]:
    """Places in a tensor axis by axis."""
    steps = [prod(shape[d + 1 :]) for d in range(len(shape))]
    return [binary("floor_mod", binary("floor_divide", flat, s), n) for s, n in zip(steps, shape, strict=True)]


CONVERTERS: Converters = {"DeformConv": {19: deform_conv}, "MaxUnpool": {9: max_unpool}}
