"""What is computed twice from the same nodes is computed once.

Walking arguments first, every node gets a key that says how it was computed; a node whose key was seen before is
replaced by the first one.  Calls and tuple items merge; constants and tuples only count as equal arguments: rank-0
constants by their value, tuples by their fields.
"""

from __future__ import annotations

from collections.abc import Hashable

from ..ir.nodes import Call, Constant, Expr, Function, Tuple, TupleGetItem
from ..ir.visit import rewrite
from .sequential import Pass


def EliminateCommonSubexpr() -> Pass:
    """Merge calls of one operator with the same attributes and arguments; calls without arguments are left alone."""
    return Pass("EliminateCommonSubexpr", 3, (), _run)


def _run(function: Function) -> Function:
    first: dict[Hashable, Expr] = {}

    def change(node: Expr) -> Expr:
        match node:
            case Call(op=op, args=args, attrs=attrs) if args:
                return first.setdefault((op, tuple(attrs.items()), tuple(map(_argument, args))), node)
            case TupleGetItem(tuple_value=value, index=index):
                return first.setdefault((value, index), node)
        return node

    return rewrite(function, change)


def _argument(node: Expr) -> Hashable:
    """Two arguments with equal keys have the same value."""
    match node:
        case Constant(value=value) if value.ndim == 0:
            return str(value.dtype), value.tobytes()
        case Tuple(fields=fields):
            return tuple(map(_argument, fields))
    return node
