"""Where a scale of one axis can go: the laws that both directions of FoldScaleAxis share.

A message on a node says: a vector that scales this axis of the node can be absorbed further on.  It carries what the
way there demands of the vector: not negative past a relu, no zero where an addend has to be divided by it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np

from te_lite.expr.expr import FLOATS

from ..ir.extents import is_open
from ..ir.nodes import Array, Call, Constant, Expr
from ..ir.visit import is_op
from .fold_constant import evaluate

CONVOLUTIONS = ("nn.conv2d", "nn.conv3d")
RELUS = ("nn.relu", "nn.leaky_relu")
SUMS = ("add", "subtract")
SMALLEST = 1e-20
"""A scale below this counts as zero: dividing by it would overflow float32."""


@dataclass(frozen=True)
class Message:
    """A vector along `axis` can be absorbed, if it is not negative (`positive`) and has no zero (`nonzero`)."""

    axis: int
    positive: bool = False
    nonzero: bool = False

    def past_relu(self) -> Message:
        """relu(s * x) = s * relu(x) holds for s >= 0 only."""
        return replace(self, positive=True)

    def past_division(self) -> Message:
        """s * x + b = s * (x + b / s) needs s != 0."""
        return replace(self, nonzero=True)

    def accepts(self, scale: Array) -> bool:
        """Whether the vector meets the demands; one with a NaN or an infinity meets none."""
        finite = bool(np.all(np.isfinite(scale)))
        signs = not self.positive or bool(np.all(scale >= 0))
        return finite and signs and (not self.nonzero or bool(np.all(np.abs(scale) >= SMALLEST)))


def both(a: Message | None, b: Message | None) -> Message | None:
    """What two readers absorb together: the same axis, on the demands of both."""
    if a is None or b is None or a.axis != b.axis:
        return None
    return Message(a.axis, a.positive or b.positive, a.nonzero or b.nonzero)


def lies_along(axis: int, value: Expr, operand: Expr) -> bool:
    """Whether `operand` has the extent of `value` on `axis` and 1 on all others, right-aligned; or is of rank 0."""
    shape, other = value.shape, operand.shape
    missing = len(shape) - len(other)
    if missing < 0 or axis < missing:
        return other == ()
    wanted = [1] * len(other)
    wanted[axis - missing] = shape[axis]
    return list(other) == wanted


def scale_vector(message: Message, value: Expr, operand: Expr, input_free: Collection[Expr]) -> Array | None:
    """`operand` as a vector along the axis of `message`, if multiplying `value` by it can be left to the message.

    A scale that depends on an input is none: it would turn constant weights into weights that are computed.
    """
    if operand not in input_free or is_open(value.shape[message.axis]) or not lies_along(message.axis, value, operand):
        return None
    vector = np.broadcast_to(evaluate(operand).reshape(-1), (value.shape[message.axis],))
    return vector if message.accepts(vector) else None


def along(scale: Array, rank: int, axis: int) -> Constant:
    """A vector as a constant that lies along `axis` of a tensor of `rank`: size-1 axes behind, none before."""
    return Constant(scale.reshape(-1, *[1] * (rank - 1 - axis)))


def is_depthwise(conv: Call) -> bool:
    """Whether every channel is a group of its own, with one filter each."""
    layout, shape, groups = conv.attrs["kernel_layout"], conv.args[1].shape, conv.attrs["groups"]
    return bool(groups > 1 and shape[layout.index("O")] == groups and shape[layout.index("I")] == 1)


def absorbs(node: Expr) -> bool:
    """Whether a scale of the channels of the node's input or output can go into its weight."""
    if not is_op(node, "nn.dense", *CONVOLUTIONS) or node.dtype not in FLOATS:
        return False
    if len({node.dtype, *(a.dtype for a in node.args)}) > 1:
        return False
    return is_op(node, "nn.dense") or (_is_plain(node) and (node.attrs["groups"] == 1 or is_depthwise(node)))


def channel_axis(node: Call, value: Expr, layout: str) -> int:
    """Where the channels of an absorbing node's input or output `value` are; `layout` is the attribute that tells."""
    if is_op(node, "nn.dense"):
        return len(value.shape) - 1
    return str(node.attrs.get(layout) or node.attrs["data_layout"]).index("C")


def weight_axis(node: Call, output: bool) -> int:
    """The axis of the weight that goes with the channels of the output, or of the input."""
    if is_op(node, "nn.dense"):
        return 0 if output else 1
    return str(node.attrs["kernel_layout"]).index("O" if output or is_depthwise(node) else "I")


def _is_plain(conv: Call) -> bool:
    """Whether no axis of the layouts is split into blocks."""
    layouts = (conv.attrs["data_layout"], conv.attrs["kernel_layout"], conv.attrs.get("out_layout") or "")
    return all(letter.isupper() for layout in layouts for letter in layout)
