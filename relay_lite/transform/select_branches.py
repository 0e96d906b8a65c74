"""`SelectBranches`: branches whose ways are both computed, after which the results of one are selected.

So it is where both ways are a few operations on each element, and everywhere on targets that queue all kernels of a
network before the first one runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.control import Branch
from ..ir.make import call
from ..ir.nodes import Call, Constant, Control, Expr, Function, Tuple, TupleGetItem
from ..ir.op_registry import OpPattern
from ..ir.visit import post_order, rewrite, substitute
from .sequential import Pass

MOST_CALLS = 8
"""Operators of a way that is always computed."""
TRAPS = ("divide", "floor_divide", "mod", "floor_mod")
"""Operators that must not run on the integers of a way that is not taken."""


def SelectBranches(everywhere: bool) -> Pass:
    """The pass; with `everywhere` all branches are selected, otherwise those with two short ways.

    One whose condition is known becomes the way that is taken.
    """
    return Pass("SelectBranches", 0, (), lambda function: rewrite(function, lambda node: _selected(node, everywhere)))


def _selected(node: Expr, everywhere: bool) -> Expr:
    match node:
        case TupleGetItem(tuple_value=Tuple(fields=fields), index=index):
            return fields[index]
        case Branch(args=(Constant(value=value), *others)):
            return Tuple(tuple(_fields(node.then if value else node.otherwise, others)))
        case Branch(args=(condition, *others)) if everywhere or all(map(_is_short, node.functions)):
            ways = [_fields(function, others) for function in node.functions]
            return Tuple(tuple([call("where", condition, a, b) for a, b in zip(*ways, strict=True)]))
    return node


def _fields(function: Function, args: Sequence[Expr]) -> tuple[Expr, ...]:
    """What a function gives for arguments."""
    values = {id(param): arg for param, arg in zip(function.params, args, strict=True)}
    body = substitute(function.body, values)
    assert isinstance(body, Tuple)
    return body.fields


def _is_short(function: Function) -> bool:
    nodes = post_order(function.body)
    calls = [node for node in nodes if isinstance(node, Call)]
    plain = all(node.op.pattern <= OpPattern.BROADCAST and not _traps(node) for node in calls)
    return plain and len(calls) <= MOST_CALLS and not any(isinstance(node, Control) for node in nodes)


def _traps(node: Call) -> bool:
    return node.op.name in TRAPS and np.dtype(node.dtype).kind in "iu"
