"""A scale before a convolution goes into its weight:  conv(x * s, w)  ->  conv(x, w * s).

Two sweeps.  Readers first, find the values whose scale all readers can absorb (their messages).  Arguments first, take
the scale off at a multiply and carry it along to the weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..ir.make import call
from ..ir.nodes import Array, Call, Expr, Function, children, rebuild
from ..ir.visit import is_op, post_order, with_body
from .fold_constant import input_free
from .fold_scale_axis_message import (
    RELUS,
    SUMS,
    Message,
    absorbs,
    along,
    both,
    channel_axis,
    lies_along,
    scale_vector,
    weight_axis,
)
from .sequential import Pass


def ForwardFoldScaleAxis() -> Pass:
    """Fold multiplications into the weights of the conv2d, conv3d or dense behind them, through relu and sum.

    Every reader of every value on the way must absorb the scale; through a relu only one that is not negative can
    go, and past a sum, whose other operand is divided by it, only one without a zero.
    """
    return Pass("ForwardFoldScaleAxis", 3, (), _run)


def _run(function: Function) -> Function:
    order = post_order(function.body)
    moving = _Moving(_messages(order), input_free(function.body))
    for node in order:
        moving.visit(node)
    return with_body(function, moving.made[function.body])


def _messages(order: Sequence[Expr]) -> dict[Expr, Message | None]:
    """What all readers of a node absorb together; the result of the function is read from outside."""
    messages: dict[Expr, Message | None] = {order[-1]: None}
    for node in reversed(order):
        for child, message in zip(children(node), _to_arguments(node, messages[node]), strict=True):
            messages[child] = both(messages[child], message) if child in messages else message
    return messages


def _to_arguments(node: Expr, message: Message | None) -> list[Message | None]:
    """What `node` absorbs of each argument, when `message` is what its readers absorb."""
    none: list[Message | None] = [None] * len(children(node))
    if isinstance(node, Call) and absorbs(node):
        return [Message(channel_axis(node, node.args[0], "data_layout")), None]
    if message and is_op(node, *RELUS):
        return [message.past_relu()]
    if message and is_op(node, *SUMS):
        left, right = node.args
        if lies_along(message.axis, left, right):
            return [message.past_division(), None]
        if lies_along(message.axis, right, left):
            return [None, message.past_division()]
    return none


@dataclass
class _Moving:
    """The graph as it is rebuilt: `made[n]` is the new node, to be multiplied by `carried[n]` if there is one."""

    messages: Mapping[Expr, Message | None]
    input_free: set[Expr]
    made: dict[Expr, Expr] = field(default_factory=dict)
    carried: dict[Expr, Array] = field(default_factory=dict)

    def visit(self, node: Expr) -> None:
        new = rebuild(node, [self.made[c] for c in children(node)])
        self.made[node] = new
        if is_op(node, "multiply"):
            self._take_off(node)
        elif isinstance(node, Call) and isinstance(new, Call):
            for k, argument in enumerate(node.args):
                if argument in self.carried:
                    self.made[node] = self._past(node, new, k, self.carried[argument])

    def _take_off(self, node: Call) -> None:
        message = self.messages[node]
        for value, operand in (node.args, node.args[::-1]):
            scale = scale_vector(message, value, operand, self.input_free) if message else None
            if scale is not None:
                self.made[node], self.carried[node] = self.made[value], scale
                return

    def _past(self, node: Call, new: Call, k: int, scale: Array) -> Call:
        """`new` is `node` with its new arguments, of which argument `k` lacks the factor `scale`."""
        args = list(new.args)
        if absorbs(node):
            args[1] = call("multiply", args[1], along(scale, len(args[1].shape), weight_axis(node, output=False)))
            return Call(new.op, tuple(args), new.attrs)
        self.carried[node] = scale
        if is_op(node, *SUMS):
            message = self.messages[node]
            assert message is not None
            args[1 - k] = call("divide", args[1 - k], along(scale, len(node.shape), message.axis))
        return Call(new.op, tuple(args), new.attrs)
