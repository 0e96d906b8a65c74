"""Rules for operators that move or convert elements: two in a row are one, and one that does nothing is none.

A transposition that only moves dimensions of 1 is a reshape; what is taken at one place, a slice.
"""

from __future__ import annotations

import numpy as np

from ..ir.make import call
from ..ir.nodes import Call, Constant, Expr
from ..ir.visit import is_op

RESHAPES = "reshape", "expand_dims", "squeeze", "nn.batch_flatten"
"""Operators that leave every element where it lies."""
TRANSPOSITIONS = "transpose", "layout_transform"
MOVES = *RESHAPES, *TRANSPOSITIONS, "strided_slice"
"""Operators each of whose results is one element of the argument."""
PRODUCTS = "nn.batch_matmul", "nn.matmul", "nn.dense"


def merge_reshapes(node: Call) -> Expr | None:
    """reshape(reshape(x)) is one reshape to the final shape; one to the same shape is nothing."""
    (data,) = node.args
    if data.shape == node.shape:
        return data
    return call("reshape", data.args[0], newshape=node.shape) if is_op(data, *RESHAPES) else None


def as_reshape(node: Call) -> Expr | None:
    """A transposition that leaves the dimensions longer than 1 in their order is a reshape."""
    (data,) = node.args
    long = [axis for axis in permutation(node) if data.shape[axis] != 1]
    return call("reshape", data, newshape=node.shape) if long == sorted(long) else None


def take_one(node: Call) -> Expr | None:
    """take(x, i, axis) of one constant place is a slice."""
    data, where = node.args
    axis = node.attrs["axis"]
    if axis is None or not isinstance(where, Constant) or where.shape != ():
        return None
    axis, place = axis % len(data.shape), int(where.value)
    if not 0 <= place < data.shape[axis]:
        return None
    slice_ = call("strided_slice", data, begin=(place,), end=(place + 1,), strides=(1,), axes=(axis,))
    return call("reshape", slice_, newshape=node.shape)


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
    order = permutation(node)
    if order == tuple(range(len(order))):
        return data
    if not is_op(data, *TRANSPOSITIONS):
        return None
    (inner,) = data.args
    first = permutation(data)
    if is_op(data, "layout_transform") and is_op(node, "layout_transform"):
        source, middle, target = data.attrs["src_layout"], data.attrs["dst_layout"], node.attrs["dst_layout"]
        if middle == node.attrs["src_layout"] and source != target:
            return call("layout_transform", inner, src_layout=source, dst_layout=target)
    both = tuple(first[k] for k in order)
    return inner if both == tuple(range(len(both))) else call("transpose", inner, axes=both)


def permutation(node: Call) -> tuple[int, ...]:
    """Dimension k of what a transposition gives is dimension `permutation[k]` of its argument."""
    if node.op.name == "layout_transform":
        return tuple(node.attrs["src_layout"].index(letter) for letter in node.attrs["dst_layout"])
    rank, axes = len(node.shape), node.attrs["axes"]
    return tuple(range(rank))[::-1] if axes is None else tuple(a % rank for a in axes)
