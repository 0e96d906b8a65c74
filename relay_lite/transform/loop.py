"""Loops on their way through the passes: functions of their own, which share groups with all others."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from ..ir.make import call
from ..ir.nodes import Constant, Expr, Function, FunctionCall, Loop, Tuple, TupleGetItem, Var
from ..ir.types import TensorType
from ..ir.visit import in_loops, rewrite, substitute
from .fused_function import Library

ALIGNMENT = 16
"""What kernels of all targets count on at most, in bytes: the widest access of a thread of a GPU."""


def with_constants_inside(function: Function) -> Function:
    """Constants that loops are given, and that stay the same in all steps, inside their functions: there they fold."""
    return rewrite(function, lambda node: _with_constants(node) if isinstance(node, Loop) else node)


def _with_constants(loop: Loop) -> Loop:
    staying = range(loop.sliced + loop.states, len(loop.args))
    values = {k: arg for k in staying for arg in [loop.args[k]] if isinstance(arg, Constant)}
    if not values:
        return loop
    params, kept = loop.function.params, [k for k in range(len(loop.args)) if k not in values]
    body = substitute(loop.function.body, {id(params[k]): value for k, value in values.items()})
    inside = Function(tuple([params[k] for k in kept]), body, loop.function.attrs)
    return replace(loop, function=inside, args=tuple([loop.args[k] for k in kept]))


def with_aligned_slices(function: Function) -> Function:
    """Slices of loops that begin at multiples of `ALIGNMENT` bytes: where they do not, they are rows with padding."""
    return rewrite(function, lambda node: _aligned(node) if isinstance(node, Loop) else node)


def _aligned(loop: Loop) -> Expr:
    function, body = loop.function, loop.function.body
    assert isinstance(body, Tuple)
    args, params, inside = list(loop.args), list(function.params), dict[int, Expr]()
    for k, v in enumerate(function.params[: loop.sliced]):
        if _padding(v):
            args[k] = _padded(args[k], loop.steps, v)
            params[k] = Var(v.name, TensorType((1, prod(v.shape) + _padding(v)), v.dtype))
            inside[id(v)] = _unpadded(params[k], 1, v)
    fields = [f if k < loop.states or not _padding(f) else _padded(f, 1, f) for k, f in enumerate(body.fields)]
    if not inside and all(f is given for f, given in zip(fields, body.fields, strict=True)):
        return loop
    closed = Function(tuple(params), substitute(Tuple(tuple(fields)), inside), function.attrs)
    made = replace(loop, function=closed, args=tuple(args))
    found: list[Expr] = [TupleGetItem(made, k) for k in range(len(fields))]
    for k in range(loop.states, len(fields)):
        if fields[k] is not body.fields[k]:
            found[k] = _unpadded(found[k], loop.steps, body.fields[k])
    return Tuple(tuple(found))


def _padding(one: Expr) -> int:
    """The elements behind a slice that fill it up."""
    size = np.dtype(one.dtype).itemsize
    return -prod(one.shape) % (ALIGNMENT // size)


def _padded(whole: Expr, steps: int, one: Expr) -> Expr:
    """Slices like `one` as rows that are filled up."""
    rows = call("reshape", whole, newshape=(steps, prod(one.shape)))
    return call("nn.pad", rows, pad_width=((0, 0), (0, _padding(one))))


def _unpadded(rows: Expr, steps: int, one: Expr) -> Expr:
    """The slices that such rows hold."""
    kept = call("strided_slice", rows, begin=(0, 0), end=(steps, prod(one.shape)))
    return call("reshape", kept, newshape=(steps * one.shape[0], *one.shape[1:]))


def share_groups(fused: Function) -> Function:
    """A fused graph in which groups of the same structure are one function, inside loops and outside."""
    library = Library()

    def change(node: Expr) -> Expr:
        if not isinstance(node, FunctionCall):
            return node
        function = library.share(node.function)
        return node if function is node.function else FunctionCall(function, node.args)

    return rewrite(in_loops(fused, lambda inside: rewrite(inside, change)), change)
