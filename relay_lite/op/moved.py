"""Operators that only move elements, one after the other, as one stage.

    slice, reshape, transpose, reshape of x [197, 2304]    ->    T_moved(h, i, k) = x[i, h*64 + k + 768]

The places of a chain of stages are quotients and remainders of each other; as one stage they mostly cancel.
"""

from __future__ import annotations

from te_lite import ComputeOp, Tensor
from te_lite.expr.expr import Expr, Load, Var
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import substitute
from te_lite.topi.tag import INJECTIVE
from te_lite.topi.utils import ax_compute


def moved(tensor: Tensor) -> Tensor:
    """The tensor as one stage that reads where its elements come from; itself, where it is computed or an input."""
    found = _source(tensor)
    if found is None:
        return tensor
    axes, source, indices = tensor.op.axis, found.tensor, found.indices
    while (before := _source(source)) is not None:
        places: dict[Var, Expr] = dict(zip(source.op.axis, indices, strict=True))
        source, indices = before.tensor, tuple([substitute(i, places) for i in before.indices])
    simplifier = Simplifier({v: (0, v.length - 1) for v in axes})
    indices = tuple([simplifier.simplify(i) for i in indices])

    def element(*at: Expr) -> Expr:
        return source[tuple([substitute(i, dict(zip(axes, at, strict=True))) for i in indices])]

    return ax_compute(tensor.shape, element, "T_moved", INJECTIVE)


def _source(tensor: Tensor) -> Load | None:
    """What a stage that only moves elements reads."""
    op = tensor.op
    body = op.body[tensor.value_index] if isinstance(op, ComputeOp) else None
    return body if isinstance(body, Load) else None
