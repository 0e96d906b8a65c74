"""Tensors of torch that lie in memory in another order of axes than they have: read and written as they lie.

A tensor whose axes were exchanged (`x.t()`, images in `channels_last`) is dense in another order.  A program takes and
gives it in that order, and its graph exchanges the axes, which the kernels that read it do on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.make import call, var
from ..ir.module import IRModule, main_function
from ..ir.nodes import Expr, Function, Tuple, Var
from ..ir.visit import substitute

Order = tuple[int, ...] | None
"""The axes of a tensor, the one with the largest steps first; None for a tensor that is taken as it is."""


def order_of(value: Any) -> Order:
    """The order in which a tensor is dense in memory; None where that is its own, and where it is dense in none."""
    if value.is_contiguous():
        return None
    axes = sorted(range(value.dim()), key=lambda axis: (-value.stride(axis), axis))
    return tuple(axes) if value.permute(axes).is_contiguous() else None


def is_dense(value: Any) -> bool:
    """Whether a tensor is dense in memory, in whatever order."""
    return value.is_contiguous() or order_of(value) is not None


def back(order: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes another one."""
    return tuple(sorted(range(len(order)), key=lambda k: order[k]))


def as_they_lie(graph: IRModule, inputs: Sequence[Order], outputs: Sequence[Order]) -> IRModule:
    """The graph with some of its inputs and outputs in another order of axes, by position."""
    function = main_function(graph)
    taken = [_lying(v, order) for v, order in zip(function.params, inputs, strict=True)]
    values: dict[int, Expr] = {
        id(v): v if order is None else call("transpose", new, axes=back(order))
        for v, new, order in zip(function.params, taken, inputs, strict=True)
    }
    body = substitute(function.body, values)
    fields = body.fields if isinstance(body, Tuple) else (body,)
    given = [e if order is None else call("transpose", e, axes=order) for e, order in zip(fields, outputs, strict=True)]
    return IRModule({"main": Function(tuple(taken), Tuple(tuple(given)) if isinstance(body, Tuple) else given[0])})


def _lying(v: Var, order: Order) -> Var:
    return v if order is None else var(v.name, [v.var_type.shape[axis] for axis in order], v.var_type.dtype)
