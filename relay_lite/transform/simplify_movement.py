"""Rules for operators that move or convert elements: two in a row are one, and one that does nothing is none."""

from __future__ import annotations

import numpy as np

from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.visit import is_op


def merge_reshapes(node: Call) -> Expr | None:
    """reshape(reshape(x)) is one reshape to the final shape; one to the same shape is nothing."""
    (data,) = node.args
    if data.shape == node.shape:
        return data
    return call("reshape", data.args[0], newshape=node.shape) if is_op(data, "reshape") else None


def merge_casts(node: Call) -> Expr | None:
    """A cast to the same dtype is nothing; a cast that loses nothing can be left out before another one."""
    (data,) = node.args
    if data.dtype == node.dtype:
        return data
    if is_op(data, "cast") and _loses_nothing(data.args[0].dtype, data.dtype):
        return call("cast", data.args[0], dtype=node.dtype)
    return None


def _loses_nothing(source: str, target: str) -> bool:
    """NumPy calls the cast of int64 to float64 safe, which rounds."""
    return np.can_cast(source, target, "safe") and (source, target) != ("int64", "float64")


def merge_permutations(node: Call) -> Expr | None:
    """Two transpositions (transpose or layout_transform) are one or cancel; one that keeps the order is nothing."""
    (data,) = node.args
    order = _order(node)
    if order == tuple(range(len(order))):
        return data
    if not is_op(data, "transpose", "layout_transform"):
        return None
    (inner,) = data.args
    first = _order(data)
    if is_op(data, "layout_transform") and is_op(node, "layout_transform"):
        source, middle, target = data.attrs["src_layout"], data.attrs["dst_layout"], node.attrs["dst_layout"]
        if middle == node.attrs["src_layout"] and source != target:
            return call("layout_transform", inner, src_layout=source, dst_layout=target)
    both = tuple(first[k] for k in order)
    return inner if both == tuple(range(len(both))) else call("transpose", inner, axes=both)


def _order(node: Call) -> tuple[int, ...]:
    """Dimension k of the result is dimension `order[k]` of the argument."""
    if node.op.name == "layout_transform":
        return tuple(node.attrs["src_layout"].index(letter) for letter in node.attrs["dst_layout"])
    rank, axes = len(node.shape), node.attrs["axes"]
    return tuple(range(rank))[::-1] if axes is None else tuple(a % rank for a in axes)
