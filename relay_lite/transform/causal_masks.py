"""Masks that are added to scores so that no token sees a later one, as a comparison of row and column.

    softmax(add(scores, constant))        constant[i, j] is 0 where j <= i + offset, and -inf or very little elsewhere

    softmax(nn.causal(scores, offset))

Frontends fold such a mask into a constant.  As a comparison nothing is read for it, and a kernel of attention leaves
out keys that a block of queries does not see.  Scores that count must be within `LITTLE` of each other for numbers that
are not infinite to mean the same, and shares of the others are 0 then.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir.make import call
from ..ir.nodes import Array, Expr, rebuild
from ..ir.visit import constant_value, is_op, rewrite
from .sequential import Pass, acts_on

SOFTMAX, LITTLE = "nn.softmax", -3e4


@acts_on(SOFTMAX)
def CausalMasks() -> Pass:
    """The pass, in front of fusion and behind all that moves reshapes; level 0."""
    return Pass("CausalMasks", 0, (), lambda function: rewrite(function, _compared))


def _compared(node: Expr) -> Expr:
    """A softmax of rows whose scores have a mask; another node itself."""
    if not is_op(node, SOFTMAX) or not is_op(node.args[0], "add"):
        return node
    scores = node.args[0]
    for x, other in (scores.args, scores.args[::-1]):
        mask = constant_value(other)
        if mask is None or x.shape != scores.shape or node.attrs["axis"] not in (-1, len(node.shape) - 1):
            continue
        offset = causal_offset(mask, scores.shape[-2:])
        if offset is not None:
            return rebuild(node, [call("nn.causal", x, offset=offset)])
    return node


def causal_offset(mask: Array, shape: tuple[int, ...]) -> int | None:
    """By how much more than its own number of columns each row of a mask shows; None for another mask."""
    if len(shape) < 2 or mask.shape[-2:] != shape or prod(mask.shape) != prod(shape) or mask.dtype.kind != "f":
        return None
    rows = mask.reshape(shape)
    offset = int(np.count_nonzero(rows[0] == 0)) - 1
    seen = np.tri(shape[0], shape[1], offset, bool)
    hides = 0 <= offset < shape[1] - 1 and (rows[seen] == 0).all() and (rows[~seen] <= LITTLE).all()
    return offset if hides else None
