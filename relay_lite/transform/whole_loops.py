"""Loops that one kernel runs, as groups of their own.

A step of a small recurrent layer takes a kernel less time than the launch of one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ..ir.nodes import Constant, Expr, Function, FunctionCall, Loop, Var, tensor_type
from ..ir.visit import post_order, rewrite, substitute
from .sequential import Pass


def WholeLoops(runs: Callable[[Function], bool]) -> Pass:
    """Let every loop be a primitive function that `runs`, where it does: a function whose body is the loop."""
    return Pass("WholeLoops", 1, (), lambda function: rewrite(function, lambda node: _whole(node, runs)))


def _whole(node: Expr, runs: Callable[[Function], bool]) -> Expr:
    if not isinstance(node, Loop):
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
