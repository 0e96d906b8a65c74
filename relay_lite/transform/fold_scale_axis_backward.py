"""A scale behind a convolution goes into its weight:  conv(x, w) * s  ->  conv(x, w * s).

Three sweeps.  Arguments first, find the nodes whose scale can be absorbed before them (their messages).  Readers
first, send the scale of every multiply on its way.  Arguments first again, build the new graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..ir.make import call
from ..ir.nodes import Array, Call, Expr, Function, children, rebuild
from ..ir.visit import is_op, post_order, reference_counts, with_body
from .fold_constant import input_free
from .fold_scale_axis_message import (
    CONVOLUTIONS,
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


def BackwardFoldScaleAxis() -> Pass:
    """Fold multiplications into the weight of a conv2d, conv3d or dense before them, through relu, bias and sum.

    Every value on the way must have one reader only; a scale goes through a relu only if it is not negative.
    """
    return Pass("BackwardFoldScaleAxis", 3, (), _run)


def _run(function: Function) -> Function:
    order = post_order(function.body)
    messages = _messages(function.body, order)
    sent, gone = _send(order, messages, input_free(function.body))
    made: dict[Expr, Expr] = {}
    for node in order:
        if node in gone:
            made[node] = made[gone[node]]
        else:
            new = rebuild(node, [made[c] for c in children(node)])
            made[node] = _scaled(node, new, sent[node], messages) if node in sent else new
    return with_body(function, made[function.body])


def _messages(body: Expr, order: Sequence[Expr]) -> dict[Expr, Message]:
    """Which scales the nodes with one reader can take."""
    counts = reference_counts(body)
    messages: dict[Expr, Message] = {}
    for node in order:
        message = _message(node, messages) if counts[node] == 1 else None
        if message is not None:
            messages[node] = message
    return messages


def _message(node: Expr, messages: Mapping[Expr, Message]) -> Message | None:
    """Which scale of the output of `node` can be pushed into it."""
    if not isinstance(node, Call):
        return None
    if absorbs(node):
        return Message(channel_axis(node, node, "out_layout"))
    if is_op(node, *RELUS):
        message = messages.get(node.args[0])
        return message.past_relu() if message else None
    if is_op(node, "nn.bias_add"):
        message = messages.get(node.args[0])
        return message if message and message.axis == node.attrs["axis"] % len(node.shape) else None
    if is_op(node, *SUMS):
        sides = [messages[a] for a in _scaled_sides(node, messages)]
        return both(sides[0], sides[-1]) if sides else None
    return None


def _scaled_sides(node: Call, messages: Mapping[Expr, Message]) -> list[Expr]:
    """The operands of a sum that take the scale themselves; one that does not is multiplied by it."""
    left, right = node.args
    of_left, of_right = messages.get(left), messages.get(right)
    if of_left and of_right and of_left.axis == of_right.axis and left.shape == right.shape:
        return [left, right]
    if of_left and lies_along(of_left.axis, left, right):
        return [left]
    if of_right and lies_along(of_right.axis, right, left):
        return [right]
    return []


def _send(
    order: list[Expr], messages: Mapping[Expr, Message], constants: set[Expr]
) -> tuple[dict[Expr, Array], dict[Expr, Expr]]:
    """The scale that reaches each node, and for each multiply that vanishes the operand that stays in its place."""
    sent: dict[Expr, Array] = {}
    gone: dict[Expr, Expr] = {}
    for node in reversed(order):
        if is_op(node, "multiply"):
            for value, operand in (node.args, node.args[::-1]):
                message = messages.get(value)
                scale = scale_vector(message, value, operand, constants) if message else None
                if scale is not None:
                    sent[value], gone[node] = scale, value
                    break
        elif node in sent and is_op(node, *RELUS, "nn.bias_add"):
            sent[node.args[0]] = sent[node]
        elif node in sent and is_op(node, *SUMS):
            sent.update((side, sent[node]) for side in _scaled_sides(node, messages))
    return sent, gone


def _scaled(node: Expr, new: Expr, scale: Array, messages: Mapping[Expr, Message]) -> Expr:
    """`new` is `node` with its new arguments; make it give `scale` times what it gave."""
    assert isinstance(node, Call) and isinstance(new, Call)
    args = list(new.args)
    if is_op(node, "nn.dense", *CONVOLUTIONS):
        args[1] = call("multiply", args[1], along(scale, len(args[1].shape), weight_axis(node, output=True)))
    elif is_op(node, "nn.bias_add"):
        args[1] = call("multiply", args[1], along(scale, 1, 0))
    elif is_op(node, *SUMS):
        sides = _scaled_sides(node, messages)
        for k, operand in enumerate(node.args):
            if operand not in sides:
                args[k] = call("multiply", args[k], along(scale, len(node.shape), messages[node].axis))
    return Call(new.op, tuple(args), new.attrs)
