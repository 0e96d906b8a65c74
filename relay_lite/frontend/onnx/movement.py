"""Operators that keep every element and change the shape: reshapes, transpositions, broadcasts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from math import prod

from ...ir.extents import filled, greatest, is_open
from ...ir.nodes import Expr
from .emit import broadcast_to, call, reshape, transpose
from .node import Converters, Node


def reshape_to(node: Node) -> Expr:
    """Reshape: 0 copies an extent (unless allowzero), one -1 is what is left."""
    x, wanted = node.input(0), node.list_at(1, "shape", since=5)
    node.require(wanted is not None, "a shape is needed")
    assert wanted is not None
    return reshape(x, _extents(node, x.shape, wanted))


def _extents(node: Node, shape: Sequence[int], wanted: Sequence[int]) -> tuple[int, ...]:
    copies = not node.integer("allowzero", 0)
    node.require(not copies or len(wanted) <= len(shape) or 0 not in wanted[len(shape) :],
                 "a 0 must stand where the data has an axis", shape=tuple(shape), wanted=tuple(wanted))  # fmt: skip
    out = [shape[i] if w == 0 and copies else w for i, w in enumerate(wanted)]
    if is_open(*out, *shape):
        return filled(out, shape, str(node))
    known = prod(w for w in out if w != -1)
    if out.count(-1) == 1 and known > 0:
        out[out.index(-1)] = prod(shape) // known
    node.require(min(out, default=0) >= 0 and prod(out) == prod(shape),
                 "the new shape must hold as many elements", shape=tuple(shape), wanted=tuple(wanted))  # fmt: skip
    return tuple(out)


def flatten(node: Node) -> Expr:
    """Flatten: a matrix of the axes before `axis` and those from it on."""
    x = node.input(0)
    rank = len(x.shape)
    axis = node.integer("axis", 1)
    node.require(-rank <= axis <= rank, f"axis must be in -{rank} to {rank}", axis=axis)
    axis = axis + rank if axis < 0 else axis
    if axis == 1 and rank > 2:
        return call("nn.batch_flatten", x)
    return reshape(x, (prod(x.shape[:axis]), prod(x.shape[axis:])))


def squeeze(node: Node) -> Expr:
    """Squeeze: without the named axes, which have extent 1; without all such axes when none is named."""
    x, named = node.input(0), node.list_at(1, "axes", since=13)
    axes = [i for i, d in enumerate(x.shape) if d == 1] if named is None else node.axes(named, len(x.shape))
    node.require(all(x.shape[a] == 1 for a in axes), "the axes must have extent 1", shape=x.shape, axes=tuple(axes))
    return call("squeeze", x, axis=tuple(axes)) if axes else x


def unsqueeze(node: Node) -> Expr:
    """Unsqueeze: new axes of extent 1, counted in the result."""
    x, named = node.input(0), node.list_at(1, "axes", since=13)
    node.require(named is not None, "axes are needed")
    assert named is not None
    for axis in node.axes(named, len(x.shape) + len(named)):
        x = call("expand_dims", x, axis=axis, num_newaxis=1)
    return x


def permute(node: Node) -> Expr:
    """Transpose: by default the axes are reversed."""
    x = node.input(0)
    rank = len(x.shape)
    perm = node.integers("perm", tuple(range(rank))[::-1])
    node.require(sorted(perm) == list(range(rank)), f"perm must be an order of {rank} axes", perm=perm)
    return transpose(x, perm)


def expand(node: Node) -> Expr:
    """Expand: broadcast to a shape, which may have extents of 1 where the data has more."""
    x, wanted = node.input(0), node.list_at(1, "shape", since=0)
    node.require(wanted is not None, "a shape is needed")
    assert wanted is not None
    fits = all(1 in (a, b) or a == b for a, b in zip(x.shape[::-1], wanted[::-1], strict=False))
    node.require(
        fits and min(greatest(wanted), default=0) >= 0,
        "the data must broadcast to the shape",
        shape=x.shape,
        wanted=wanted,
    )
    pairs = list(zip_longest(x.shape[::-1], wanted[::-1], fillvalue=1))[::-1]
    return broadcast_to(x, tuple(b if a == 1 else a for a, b in pairs))


def tile(node: Node) -> Expr:
    """Tile: repeats along every axis."""
    x, repeats = node.input(0), node.list_at(1, "repeats", since=6)
    fits = repeats is not None and len(repeats) == len(x.shape)
    node.require(fits, "one repeat per axis is needed", shape=x.shape, repeats=repeats)
    assert repeats is not None
    return x if set(repeats) <= {1} else call("tile", x, reps=repeats)


def _block(node: Node) -> tuple[Expr, int]:
    x, size = node.input(0), node.integer("blocksize")
    node.require(len(x.shape) == 4 and size >= 1, "4 axes and a blocksize are needed", shape=x.shape, blocksize=size)
    return x, size


def depth_to_space(node: Node) -> Expr:
    """DepthToSpace: channels become blocks of pixels; DCR has the block before the channel, CRD behind it."""
    x, size = _block(node)
    n, c, h, w = x.shape
    mode = node.text("mode", "DCR")
    node.require(mode in ("DCR", "CRD") and c % size**2 == 0, "mode is DCR or CRD, blocksize^2 divides the channels",
                 mode=mode, channels=c, blocksize=size)  # fmt: skip
    left = c // size**2
    if mode == "DCR":
        apart = transpose(reshape(x, (n, size, size, left, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        apart = transpose(reshape(x, (n, left, size, size, h, w)), (0, 1, 4, 2, 5, 3))
    return reshape(apart, (n, left, h * size, w * size))


def space_to_depth(node: Node) -> Expr:
    """SpaceToDepth: blocks of pixels become channels, the block before the channel."""
    x, size = _block(node)
    n, c, h, w = x.shape
    node.require(h % size == 0 and w % size == 0, "blocksize must divide the pixels", shape=x.shape, blocksize=size)
    apart = transpose(reshape(x, (n, c, h // size, size, w // size, size)), (0, 3, 5, 1, 2, 4))
    return reshape(apart, (n, c * size**2, h // size, w // size))


CONVERTERS: Converters = {
    "Reshape": {1: reshape_to},
    "Flatten": {1: flatten},
    "Squeeze": {1: squeeze},
    "Unsqueeze": {1: unsqueeze},
    "Transpose": {1: permute},
    "Expand": {8: expand},
    "Tile": {6: tile},
    "DepthToSpace": {1: depth_to_space},
    "SpaceToDepth": {1: space_to_depth},
}
