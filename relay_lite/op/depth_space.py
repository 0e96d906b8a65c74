"""Blocks of pixels moved into channels and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite import topi
from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .define import Array, choice, integer, operator, rank, tensors
from .window import check_layout, pick, to_layout


def _blocks(types: Sequence[Type], attrs: Attrs, what: str) -> tuple[TensorType, str, int]:
    (x,) = tensors(types, 1, what)
    rank(x, 4, what)
    b = integer(attrs["block_size"], what, "block_size", 1)
    return x, check_layout(attrs["layout"], "NCHW", what), b


def _depth_to_space_type(types: Sequence[Type], attrs: Attrs) -> Type:
    what = "nn.depth_to_space"
    x, layout, b = _blocks(types, attrs, what)
    choice(attrs["mode"], ("DCR", "CRD"), what, "mode")
    n, c, h, w = pick(x.shape, layout, "NCHW")
    require(c % (b * b) == 0, GraphError, what, "block_size^2 must divide the channels", data=x.shape, block_size=b)
    extents = dict(zip("NCHW", (n, c // (b * b), h * b, w * b), strict=True))
    return TensorType(tuple(extents[k] for k in layout), x.dtype)


def _depth_to_space_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    x, b = to_layout(args[0], attrs["layout"], "NCHW"), attrs["block_size"]
    n, c, h, w = x.shape
    if attrs["mode"] == "DCR":
        out = x.reshape(n, b, b, c // (b * b), h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        out = x.reshape(n, c // (b * b), b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return np.ascontiguousarray(to_layout(out.reshape(n, c // (b * b), h * b, w * b), "NCHW", attrs["layout"]))


def _space_to_depth_type(types: Sequence[Type], attrs: Attrs) -> Type:
    what = "nn.space_to_depth"
    x, layout, b = _blocks(types, attrs, what)
    n, c, h, w = pick(x.shape, layout, "NCHW")
    ok = h % b == 0 and w % b == 0
    require(ok, GraphError, what, "block_size must divide height and width", data=x.shape, block_size=b)
    extents = dict(zip("NCHW", (n, c * b * b, h // b, w // b), strict=True))
    return TensorType(tuple(extents[k] for k in layout), x.dtype)


def _space_to_depth_numpy(args: Sequence[Any], attrs: Attrs) -> Array:
    x, b = to_layout(args[0], attrs["layout"], "NCHW"), attrs["block_size"]
    n, c, h, w = x.shape
    out = x.reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)
    return np.ascontiguousarray(to_layout(out, "NCHW", attrs["layout"]))


@operator(
    "nn.depth_to_space",
    OpPattern.INJECTIVE,
    _depth_to_space_type,
    _depth_to_space_numpy,
    lambda args, attrs, target: [topi.nn.depth_to_space(args[0], attrs["block_size"], attrs["layout"], attrs["mode"])],
    block_size=1,
)
def depth_to_space(data: Expr, block_size: int, layout: str = "NCHW", mode: str = "DCR") -> Call:
    """[N, C, H, W] as [N, C / b^2, H * b, W * b].

    `mode`: in "DCR" the place inside a block is the slow part of the channel, in "CRD" the fast one.
    """
    return call("nn.depth_to_space", data, block_size=block_size, layout=layout, mode=mode)


@operator(
    "nn.space_to_depth",
    OpPattern.INJECTIVE,
    _space_to_depth_type,
    _space_to_depth_numpy,
    lambda args, attrs, target: [topi.nn.space_to_depth(args[0], attrs["block_size"], attrs["layout"])],
    block_size=1,
)
def space_to_depth(data: Expr, block_size: int, layout: str = "NCHW") -> Call:
    """[N, C, H, W] as [N, C * b^2, H / b, W / b]; the inverse of `depth_to_space` in mode "DCR"."""
    return call("nn.space_to_depth", data, block_size=block_size, layout=layout)
