"""Perfect nests: loops of which each encloses the next one and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..expr.expr import Compare, Expr, as_expr, binary, const
from ..expr.visit import is_size
from .stmt import For, ForKind, If, Stmt

SEQUENTIAL = (ForKind.SERIAL, ForKind.UNROLLED)
"""Loops whose iterations one thread runs one after the other."""
OF_ONE_THREAD = (*SEQUENTIAL, ForKind.VECTORIZED)


def perfect_nest(s: Stmt, belongs: Callable[[For], bool] = lambda loop: True) -> tuple[tuple[For, ...], Stmt]:
    """The loops from `s` inwards, outermost first, up to one that does not belong; and what the last one encloses."""
    loops: list[For] = []
    while isinstance(s, For) and belongs(s):
        loops.append(s)
        s = s.body
    return tuple(loops), s


def nested(loops: Sequence[For], body: Stmt, kind: ForKind | None = None) -> Stmt:
    """`body` in such loops, the first one outermost; all of them of one `kind` where it is given."""
    for loop in reversed(loops):
        body = replace(loop, body=body, kind=kind or loop.kind)
    return body


def iterations(loop: For) -> tuple[Expr, Stmt]:
    """How many iterations a loop makes, and of what: `if i < n` of sizes around all that it does ends it."""
    match loop.body:
        case If(cond=Compare(op="<", a=a, b=end), then=then) if a is loop.var and is_size(end):
            return binary("min", end, loop.extent), then
    return const(loop.extent), loop.body


def iteration(loops: Sequence[For], around: Expr | None = None) -> Expr:
    """The number of an iteration of nested loops, the last one fastest; `around` is the number of one around them."""
    number = as_expr(0) if around is None else around
    for loop in loops:
        number = binary("+", binary("*", number, loop.extent), loop.var)
    return number
