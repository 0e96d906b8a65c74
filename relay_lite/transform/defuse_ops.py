"""The inverse of `fuse_ops`: the operators of every primitive function back in the graph that calls it."""

from __future__ import annotations

from ..ir.nodes import Expr, Function, FunctionCall
from ..ir.visit import rewrite, substitute
from .sequential import Pass


def DefuseOps() -> Pass:
    """`defuse_ops` as a pass."""
    return Pass("DefuseOps", 3, (), defuse_ops)


def defuse_ops(function: Function) -> Function:
    """Replace every function call by the body of its function."""
    return rewrite(function, _inlined)


def _inlined(node: Expr) -> Expr:
    if not isinstance(node, FunctionCall):
        return node
    values = {id(param): arg for param, arg in zip(node.function.params, node.args, strict=True)}
    return substitute(node.function.body, values)
