"""Operators whose results for a slice need a slice of their arguments, or all of it, and nothing else.

Slices are along the first axis, a batch, or along the second one, such as channels or the rows of a product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from typing import TypeAlias

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr, tensor_type
from ..ir.op_registry import OpPattern
from ..ir.types import TensorType
from ..ir.visit import is_op
from ..op.winograd import CONV as WINOGRAD
from .row_shapes import FOLD_ATTRS, is_elementwise
from .simplify_expr import RESHAPES, TRANSPOSITIONS, permutation

CONVOLUTIONS = "nn.conv1d", "nn.conv2d", "nn.conv3d", WINOGRAD
PRODUCT, SOFTMAX = "nn.batch_matmul", "nn.softmax"
POOLS = tuple([f"nn.{way}{kind}_pool{n}d" for way in ("", "adaptive_", "global_") for kind in ("max", "avg")
               for n in (1, 2, 3)])  # fmt: skip
Axes: TypeAlias = tuple[int | None, ...]


def sliced_axes(node: Expr, axis: int = 0) -> Axes | None:
    """For each argument the axis along which it is cut where the result is cut along `axis`, 0 or 1.

    None for an argument that is needed whole.  A reshape may be cut along its first axis into any parts that both
    shapes have whole rows for.  None in place of all for an operator that needs other parts, and for one of which
    nothing is known.
    """
    if not isinstance(node, Call) or not all(isinstance(e.type, TensorType) for e in (node, *node.args)):
        return None
    if not node.args or len(node.shape) <= axis:
        return None
    if is_elementwise(node) and not is_op(node, *RESHAPES):
        return tuple([_broadcast_axis(a, node, axis) for a in node.args])
    if len(node.args[0].shape) <= axis:
        return None
    if is_op(node, *CONVOLUTIONS):
        return _of_convolution(node, axis)
    if is_op(node, PRODUCT):
        if axis == 1:
            return None if node.attrs["transpose_a"] else (1, None)
        return 0, 0 if node.args[1].shape[0] == node.shape[0] else None
    return (axis, *[None] * (len(node.args) - 1)) if _stays(node, axis) else None


def _broadcast_axis(a: Expr, node: Call, axis: int) -> int | None:
    own = axis - len(node.shape) + len(a.shape)
    return own if own >= 0 and a.shape[own] == node.shape[axis] else None


def _of_convolution(conv: Call, axis: int) -> Axes | None:
    """A batch is cut with the data, output channels with the weight."""
    attrs = conv.attrs
    data, out = attrs["data_layout"], attrs["out_layout"] or attrs["data_layout"]
    if axis == 0:
        return (0, None) if data[0] == out[0] == "N" else None
    first = data[:2] == out[:2] == "NC" and attrs["kernel_layout"][0] == "O" and attrs["groups"] == 1
    return (None, 0) if first else None


def _stays(node: Call, axis: int) -> bool:
    """Whether an operator of one argument works along axes behind `axis` only."""
    attrs, data = node.attrs, node.args[0]
    if is_op(node, *RESHAPES):
        return data.shape[:axis] == node.shape[:axis]
    if is_op(node, *POOLS):
        return bool(attrs["layout"][: axis + 1] == "NC"[: axis + 1])
    if is_op(node, *TRANSPOSITIONS):
        return permutation(node)[: axis + 1] == tuple(range(axis + 1))
    if is_op(node, "nn.pad"):
        return all(sides == (0, 0) for sides in attrs["pad_width"][: axis + 1])
    folds = node.op.pattern == OpPattern.COMM_REDUCE and set(attrs) == FOLD_ATTRS and not attrs["exclude"]
    along = attrs["axes"] if is_op(node, "strided_slice") else attrs["axis"] if folds or is_op(node, SOFTMAX) else None
    axes = (along,) if isinstance(along, int) else along
    return axes is not None and all(a % len(data.shape) > axis for a in axes)


def common_extent(node: Call, axis: int = 0) -> int:
    """The number of slices that the result of an operator and all its arguments that are sliced can be cut into.

    1 for an operator that cannot be cut.
    """
    axes = sliced_axes(node, axis)
    if axes is None:
        return 1
    return gcd(node.shape[axis], *[a.shape[k] for a, k in zip(node.args, axes, strict=True) if k is not None])


def on_slice(node: Call, args: Sequence[Expr], counts: Sequence[int]) -> Expr:
    """An operator with sliced arguments, of a result cut into so many slices along its first axes.

    Raises GraphError where that gives something else.
    """
    whole = tensor_type(node)
    cut = [n // count for n, count in zip(whole.shape, counts, strict=False)]
    part = replace(whole, shape=(*cut, *whole.shape[len(cut) :]))
    if is_op(node, *RESHAPES):
        return call("reshape", args[0], newshape=part.shape)
    channels = node.attrs.get("channels") if is_op(node, *CONVOLUTIONS) and len(cut) > 1 else None
    made = Call(node.op, tuple(args), {**node.attrs, "channels": cut[1]} if channels else node.attrs)
    require(made.type == part, GraphError, node.op.name, f"a slice of its result is {part}", found=made.type)
    return made
