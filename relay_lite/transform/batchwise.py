"""Operators whose results for a slice of a batch need that slice of their arguments, and nothing of the rest of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr, tensor_type
from ..ir.op_registry import OpPattern
from ..ir.types import TensorType
from ..ir.visit import is_op
from ..op.winograd import CONV as WINOGRAD
from .row_shapes import FOLD_ATTRS, is_elementwise
from .simplify_movement import RESHAPES, TRANSPOSITIONS, permutation

CONVOLUTIONS = "nn.conv1d", "nn.conv2d", "nn.conv3d", WINOGRAD
PRODUCT, SOFTMAX = "nn.batch_matmul", "nn.softmax"
POOLS = tuple([f"nn.{way}{kind}_pool{n}d" for way in ("", "adaptive_", "global_") for kind in ("max", "avg")
               for n in (1, 2, 3)])  # fmt: skip


def sliced_args(node: Expr) -> tuple[bool, ...] | None:
    """For each argument whether a slice of the result along its first axis needs the same part of it, or all of it.

    Parts are counted in bytes: of a reshape any part that both shapes have whole rows for.  None for an operator that
    needs other parts, and for one of which nothing is known.
    """
    if not isinstance(node, Call) or not all(isinstance(e.type, TensorType) and e.shape for e in (node, *node.args)):
        return None
    name, attrs, rest = node.op.name, node.attrs, (False,) * (len(node.args) - 1)
    if name in CONVOLUTIONS:
        first = (attrs["data_layout"][0], (attrs["out_layout"] or "N")[0]) == ("N", "N")
    elif name in POOLS:
        first = attrs["layout"][0] == "N"
    elif name == PRODUCT:
        first, rest = True, (node.args[1].shape[0] == node.shape[0],)
    elif is_elementwise(node) and name not in RESHAPES:
        return tuple([len(a.shape) == len(node.shape) and a.shape[0] == node.shape[0] for a in node.args])
    else:
        first = name in RESHAPES or _stays(node)
    return (True, *rest) if first else None


def _stays(node: Call) -> bool:
    """Whether an operator of one argument works along other axes than the first one."""
    attrs, rank = node.attrs, len(node.args[0].shape)
    if node.op.name in TRANSPOSITIONS:
        return permutation(node)[0] == 0
    if node.op.name == SOFTMAX:
        return bool(attrs["axis"] % rank != 0)
    if node.op.name == "strided_slice":
        return attrs["axes"] is not None and all(a % rank != 0 for a in attrs["axes"])
    if node.op.pattern == OpPattern.COMM_REDUCE and set(attrs) == FOLD_ATTRS and attrs["axis"] is not None:
        axes = attrs["axis"] if isinstance(attrs["axis"], tuple) else (attrs["axis"],)
        return not attrs["exclude"] and all(a % rank != 0 for a in axes)
    return node.op.name == "nn.pad" and attrs["pad_width"][0] == (0, 0)


def common_batch(node: Call) -> int:
    """The number of slices that the result of an operator and all its arguments that are sliced can be cut into."""
    flags = sliced_args(node) or ()
    return gcd(node.shape[0], *[a.shape[0] for a, cut in zip(node.args, flags, strict=True) if cut])


def on_slice(node: Call, args: Sequence[Expr], steps: int) -> Expr:
    """An operator with sliced arguments, one of `steps` parts; raises GraphError where that gives something else."""
    whole = tensor_type(node)
    part = replace(whole, shape=(whole.shape[0] // steps, *whole.shape[1:]))
    made = call("reshape", args[0], newshape=part.shape) if is_op(node, *RESHAPES) else Call(
        node.op, tuple(args), node.attrs
    )  # fmt: skip
    require(made.type == part, GraphError, node.op.name, f"a slice of its result is {part}", found=made.type)
    return made
