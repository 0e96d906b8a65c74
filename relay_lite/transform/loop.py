"""Loops on their way through the passes: functions of their own, which share groups with all others.

A loop that one kernel runs is a group of its own: a step of a small recurrent layer takes a kernel less time than the
launch of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from ..ir.control import Branch, Loop
from ..ir.loops import slice_of
from ..ir.make import call
from ..ir.nodes import Call, Constant, Control, Expr, Function, FunctionCall, Tuple, TupleGetItem, Var, tensor_type
from ..ir.types import TensorType
from ..ir.visit import in_loops, is_op, post_order, rewrite, rewrite_all, substitute, with_body
from .fused_function import Library
from .sequential import Pass
from .simplify_expr import RESHAPES

ALIGNMENT = 16
"""What kernels of all targets count on at most, in bytes: the widest access of a thread of a GPU."""


def with_constants_inside(function: Function) -> Function:
    """Constants that loops are given, and that stay the same in all steps, inside their functions: there they fold.

    So do those that branches are given.
    """

    def inside(node: Expr) -> Expr:
        match node:
            case Loop(sliced=sliced, states=states):
                return _with_constants(node, range(sliced + states, len(node.args)), 0)
            case Branch():
                return _with_constants(node, range(1, len(node.args)), 1)
        return node

    made = rewrite(function, inside)
    return in_loops(made, with_constants_inside)


def _with_constants(node: Control, staying: range, first: int) -> Expr:
    """Without those of the `staying` arguments that are constants; argument `first` is that of the first parameter."""
    values = {k: arg for k in staying for arg in [node.given[k]] if isinstance(arg, Constant)}
    if not values:
        return node
    kept = [k for k in range(len(node.given)) if k not in values]

    def closed(function: Function) -> Function:
        params = function.params
        body = substitute(function.body, {id(params[k - first]): value for k, value in values.items()})
        return Function(tuple([params[k - first] for k in kept if k >= first]), body, function.attrs)

    return node.with_functions([closed(f) for f in node.functions], [node.given[k] for k in kept])


def PlaceLoopResults() -> Pass:
    """Let steps compute what they give where it is to lie, at multiples of `ALIGNMENT` bytes, and branches likewise.

    What a step gives without computing it, or gives twice, is copied.  A state that is also a result lies there alone,
    so the last one is a slice of that.  Slices of other sizes are rows with padding.
    """
    return Pass("PlaceLoopResults", 0, (), lambda function: rewrite(function, _placed))


def _placed(node: Expr) -> Expr:
    match node:
        case Loop():
            return _own_results(node)
        case Branch():
            return node.with_functions([with_body(f, _own_fields(f.body, 0)) for f in node.functions])
        case TupleGetItem(tuple_value=Tuple(fields=fields), index=index):
            return fields[index]
    return node


def _own_results(loop: Loop) -> Expr:
    body = _own_fields(loop.function.body, loop.states)
    fields = body.fields
    given = {_root(fields[k]): k for k in range(loop.states, len(fields))}
    items = list(_aligned(replace(loop, function=with_body(loop.function, body))))
    for k, field in enumerate(fields[: loop.states]):
        if (shown := given.get(_root(field))) is not None:
            items[k] = _last(items[shown], loop, fields[shown].shape[0], field.shape)
    return Tuple(tuple(items))


def _own_fields(body: Expr, states: int) -> Tuple:
    """What a function gives, all of it computed in it, and that behind the `states` by calls that differ."""
    assert isinstance(body, Tuple)
    fields, given = list(body.fields), set[Expr]()
    for k in [*range(states, len(fields)), *range(states)]:
        if not _is_computed(_root(fields[k])) or (k >= states and _root(fields[k]) in given):
            fields[k] = call("copy", fields[k])
        if k >= states:
            given.add(_root(fields[k]))
    return Tuple(tuple(fields))


def _root(field: Expr) -> Expr:
    """What has the bytes of a field: it, or what it is another shape of."""
    while is_op(field, *RESHAPES):
        (field,) = field.args
    return field


def _is_computed(node: Expr) -> bool:
    return isinstance(node.tuple_value if isinstance(node, TupleGetItem) else node, Call)


def _last(every: Expr, loop: Loop, size: int, shape: tuple[int, ...]) -> Expr:
    """The slice of `size` of the last step, in another shape."""
    return call("reshape", slice_of(every, loop.slice_of(loop.steps - 1), size), newshape=shape)


def _aligned(loop: Loop) -> Sequence[Expr]:
    """The results of a loop all of whose slices begin at multiples of `ALIGNMENT` bytes."""
    function, body = loop.function, loop.function.body
    assert isinstance(body, Tuple)
    args, params, inside = list(loop.args), list(function.params), dict[int, Expr]()
    for k, v in enumerate(function.params[: loop.sliced]):
        if _padding(v):
            args[k] = _padded(args[k], loop.slices(k), v)
            params[k] = Var(v.name, TensorType((1, prod(v.shape) + _padding(v)), v.dtype))
            inside[id(v)] = _unpadded(params[k], 1, v)
    fields = [f if k < loop.states or not _padding(f) else _padded(f, 1, f) for k, f in enumerate(body.fields)]
    closed = Function(tuple(params), substitute(Tuple(tuple(fields)), inside), function.attrs)
    made = replace(loop, function=closed, args=tuple(args))
    found: list[Expr] = [TupleGetItem(made, k) for k in range(len(fields))]
    pairs = zip(found, fields, body.fields, strict=True)
    return [one if given is f else _unpadded(one, loop.steps, f) for one, given, f in pairs]


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


def has_control(function: Function) -> bool:
    """Whether a function has a loop or a branch."""
    return any(isinstance(node, Control) for node in post_order(function.body))


def share_groups(fused: Function) -> Function:
    """A fused graph in which groups of the same structure are one function, inside loops and branches and outside."""
    library = Library()

    def change(node: Expr) -> Expr:
        if not isinstance(node, FunctionCall):
            return node
        function = library.share(node.function)
        return node if function is node.function else FunctionCall(function, node.args)

    return rewrite_all(fused, change)


def WholeLoops(runs: Callable[[Function], bool]) -> Pass:
    """Let every loop be a primitive function that `runs`, where it does: a function whose body is the loop."""
    return Pass("WholeLoops", 1, (), lambda function: rewrite(function, lambda node: _whole(node, runs)))


def _whole(node: Expr, runs: Callable[[Function], bool]) -> Expr:
    if not isinstance(node, Loop) or node.unbounded:
        return node
    opened = _with_constants_outside(node)
    params = tuple([Var(v.name, tensor_type(a)) for v, a in zip(opened.function.params, opened.args, strict=True)])
    function = Function(params, replace(opened, args=params), {"primitive": True})
    return FunctionCall(function, opened.args) if runs(function) else node


def _with_constants_outside(loop: Loop) -> Loop:
    """A loop that is given the constants of its function, so that layers of one structure share a kernel."""
    inside = [n for n in post_order(loop.function.body) if isinstance(n, Constant) and n.value.ndim > 0]
    variables = [Var(f"c{k}", tensor_type(value)) for k, value in enumerate(inside)]
    body = substitute(loop.function.body, {id(a): b for a, b in zip(inside, variables, strict=True)})
    function = Function((*loop.function.params, *variables), body, loop.function.attrs)
    return replace(loop, function=function, args=(*loop.args, *inside))
