"""Sampling and moving windows: GridSample, AffineGrid, CenterCropPad, Col2Im."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as every
from math import prod

import numpy as np

from ...ir.nodes import Array, Expr
from .emit import add, binary, broadcast_to, call, cast, const, mul, reshape, sub
from .node import Converters, Node
from .select import pick
from .window import bare_window, explicit_pads

MODES = {"linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic", "bicubic": "cubic"}
PADDINGS = ("zeros", "border", "reflection")
CUBIC = -0.75

Tap = tuple[Expr, Expr | None]
"""The position of an element along an axis, not yet inside of it, and its weight (None: 1)."""


def grid_sample(node: Node) -> Expr:
    """GridSample: the data (N, C, spatial) read between its elements at positions from -1 to 1 of a grid."""
    x, grid = node.input(0), node.input(1)
    n = len(x.shape) - 2
    fits = n >= 1 and len(grid.shape) == n + 2 and grid.shape[-1] == n and grid.shape[0] == x.shape[0]
    node.require(fits, "the grid needs a position of the spatial axes for every image", data=x.shape, grid=grid.shape)
    mode, padding = MODES.get(node.text("mode", "linear"), ""), node.text("padding_mode", "zeros")
    node.require(mode, f"mode must be one of {', '.join(MODES)}", mode=node.text("mode", "linear"))
    node.require(padding in PADDINGS, f"padding_mode must be one of {', '.join(PADDINGS)}", padding_mode=padding)
    corners = bool(node.integer("align_corners", 0))
    points = prod(grid.shape[1:-1])
    axes = [Axis(extent, padding, corners) for extent in x.shape[2:]]
    places = [reshape(pick(grid, {n + 1: range(n - 1 - d, n - d)}), (x.shape[0], points)) for d in range(n)]
    taps = [axis.taps(place, mode) for axis, place in zip(axes, places, strict=True)]
    flat = reshape(x, (*x.shape[:2], prod(x.shape[2:])))
    total: Expr | None = None
    for chosen in every(*taps):
        part = read_at(flat, axes, chosen)
        total = part if total is None else add(total, part)
    assert total is not None
    return reshape(total, (*x.shape[:2], *grid.shape[1:-1]))


def read_at(flat: Expr, axes: Sequence[Axis], chosen: Sequence[Tap]) -> Expr:
    """The elements (N, C, points) at one tap an axis, times its weights; 0 where these are, whatever is read."""
    at: Expr | None = None
    weight: Expr | None = None
    for axis, (position, part) in zip(axes, chosen, strict=True):
        inside, seen = axis.inside(position)
        index = cast(inside, "int32")
        at = index if at is None else add(mul(at, axis.extent), index)
        for factor in (part, seen):
            if factor is not None:
                weight = factor if weight is None else mul(weight, factor)
    assert at is not None
    where = broadcast_to(call("expand_dims", at, axis=1), (*flat.shape[:2], at.shape[1]))
    value = call("gather", flat, where, axis=2)
    if weight is None:
        return value
    factor = call("expand_dims", cast(weight, flat.dtype), axis=1)
    return call("where", binary("equal", factor, 0), const(0, flat.dtype), mul(value, factor))


class Axis:
    """A spatial axis: how positions of the grid become elements."""

    def __init__(self, extent: int, padding: str, corners: bool) -> None:
        self.extent, self.padding, self.corners = extent, padding, corners
        self.low, self.high = (0.0, extent - 1.0) if corners else (-0.5, extent - 0.5)

    def taps(self, place: Expr, mode: str) -> list[Tap]:
        """The elements that a position reads."""
        at = self.moved(self.place(place), mode)
        if mode == "nearest":
            return [(at, None)]
        if mode == "linear":
            return linear_taps(at)
        below = call("floor", at)
        part = sub(at, below)
        distances = (add(part, 1.0), part, sub(1.0, part), sub(2.0, part))
        weights = [_far(distances[0]), _near(distances[1]), _near(distances[2]), _far(distances[3])]
        return [(add(below, float(k)), w) for k, w in zip((-1, 0, 1, 2), weights, strict=True)]

    def place(self, x: Expr) -> Expr:
        """The position in elements of one from -1 to 1."""
        if self.corners:
            return mul(add(x, 1.0), (self.extent - 1) / 2)
        return mul(sub(mul(add(x, 1.0), float(self.extent)), 1.0), 0.5)

    def moved(self, at: Expr, mode: str) -> Expr:
        """A position beyond the border brought back, where the padding says so.

        A cubic one stays where it is before a border, as PyTorch and onnxruntime do: its elements are brought back.
        """
        at = call("round", at) if mode == "nearest" else at
        if self.padding == "zeros" or (self.padding == "border" and mode == "cubic"):
            return at
        outside = call("logical_or", binary("less", at, self.low), binary("greater", at, self.high))
        back = self.clamped(at) if self.padding == "border" else self.reflected(at)
        return call("where", outside, back, at)

    def clamped(self, at: Expr) -> Expr:
        """The closest element of the axis."""
        return call("clip", at, a_min=0.0, a_max=float(self.extent - 1))

    def reflected(self, at: Expr) -> Expr:
        """A position mirrored at the borders as often as needed."""
        reach = self.high - self.low
        if not reach:
            return mul(at, 0.0)
        t = binary("floor_mod", sub(at, self.low), 2 * reach)
        return add(call("where", binary("greater", t, reach), sub(2 * reach, t), t), self.low)

    def inside(self, at: Expr) -> tuple[Expr, Expr | None]:
        """An element of the axis, and 0 or 1 as its weight where the padding is zeros."""
        if self.padding == "zeros":
            seen = call("logical_and", binary("greater_equal", at, 0.0), binary("less", at, float(self.extent)))
            return self.clamped(at), cast(seen, at.dtype)
        return self.clamped(at if self.padding == "border" else self.reflected(at)), None


def linear_taps(at: Expr) -> list[Tap]:
    """The elements before and behind a position, each with the weight of how near it is."""
    below = call("floor", at)
    part = sub(at, below)
    return [(below, sub(1.0, part)), (add(below, 1.0), part)]


def _near(d: Expr) -> Expr:
    """The cubic weight of an element at a distance of at most 1."""
    return add(mul(mul(sub(mul(d, CUBIC + 2), CUBIC + 3), d), d), 1.0)


def _far(d: Expr) -> Expr:
    """The cubic weight of an element at a distance from 1 to 2."""
    return sub(mul(add(mul(sub(mul(d, CUBIC), 5 * CUBIC), d), 8 * CUBIC), d), 4 * CUBIC)


def col_to_image(node: Node) -> Expr:
    """Col2Im: the sum of what overlapping blocks say about every element of an image.

    An element of the image reads one column for every element of the block; which one is known at import.
    """
    x, image, block = node.input(0), node.list_at(1, "image_shape", since=0), node.list_at(2, "block_shape", since=0)
    node.require(image is not None and block is not None, "the shapes of image and block are needed")
    assert image is not None and block is not None
    n = len(image)
    window = bare_window(node, n, block)
    before, after = explicit_pads(node, n)
    counts = [(d + b + e - r) // s + 1 for d, b, e, r, s in zip(
        image, before, after, window.reach, window.strides, strict=True)]  # fmt: skip
    law = "the data must be (N, channels times the block, blocks)"
    fits = len(x.shape) == 3 and x.shape[1] % prod(block) == 0 and x.shape[2] == prod(counts)
    node.require(fits and len(block) == n, law, data=x.shape, image=image, block=block, blocks=tuple(counts))
    channels, blocks = x.shape[1] // prod(block), prod(counts)
    flat = reshape(x, (x.shape[0], channels, prod(block) * blocks))
    where, seen = _columns(image, block, window.dilation, before, window.strides, counts)
    read = call("take", flat, const(where, "int32"), axis=2)
    total = call("sum", call("where", const(seen, "bool"), read, const(0, x.dtype)), axis=(2,), keepdims=False)
    return reshape(total, (x.shape[0], channels, *image))


def _columns(
    image: Sequence[int], block: Sequence[int], dilation: Sequence[int], before: Sequence[int],
    strides: Sequence[int], counts: Sequence[int],
) -> tuple[Array, Array]:  # fmt: skip
    """Of (block elements, image elements): which element of the flat columns, and whether there is one."""
    places, seen = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    for d, k, dil, pad, s, c in zip(image, block, dilation, before, strides, counts, strict=True):
        start = np.arange(d)[None] + pad - np.arange(k)[:, None] * dil
        ok = (start % s == 0) & (start >= 0) & (start // s < c)
        along = np.where(ok, start // s, 0)
        places = (places[:, None, :, None] * c + along[None, :, None, :]).reshape(len(places) * k, -1)
        seen = (seen[:, None, :, None] & ok[None, :, None, :]).reshape(len(seen) * k, -1)
    return places + np.arange(len(places))[:, None] * prod(counts), seen


CONVERTERS: Converters = {"GridSample": {16: grid_sample}, "Col2Im": {18: col_to_image}}
