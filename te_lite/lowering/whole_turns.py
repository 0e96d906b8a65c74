"""Turns of unrolled loops that need no guard, apart from those that do.

A loop that runs over its end asks in every turn, though most turns are inside.  A compiler seldom sees that, and what
stands behind a condition shares nothing with other turns: a quotient, an address.  So the first turns, as many as are
inside for all threads, are a loop of their own without the guard:

    for item in 0..50: if item*1024 + thread < 50257: S        for item in 0..49: S
                                                               if thread < 81: S        item = 49
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..expr.dtype import BYTES
from ..expr.expr import Call, Expr, Var, as_expr, binary
from ..expr.simplify import Simplifier
from ..expr.storage import ALIGNMENT
from ..expr.visit import conjuncts, free_vars, substitute, walk
from ..loops.perfect_nest import IN_TURN
from ..loops.stmt import (
    Barrier,
    For,
    ForKind,
    If,
    Stmt,
    Store,
    ThreadReduce,
    bodies,
    exprs_of,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
)


def whole_turns(s: Stmt, simplifier: Simplifier) -> Stmt:
    """`s` with such loops in two; `simplifier` knows the ranges of all loops.

    Vectors that a pipelined copy reads for the rows of one vector that it stores stay together.
    """
    return _split(
        s, simplifier, lambda loop: loop.kind is ForKind.UNROLLED and not _meets(loop.body) and not _is_square(loop)
    )


def whole_vectors(s: Stmt, simplifier: Simplifier) -> Stmt:
    """`s` with loops around vectors in two: those whose last vector runs over the end are whole but for that one."""
    return _split(s, simplifier, lambda loop: isinstance(loop.body, For) and loop.body.kind is ForKind.VECTORIZED)


def _split(s: Stmt, simplifier: Simplifier, is_split: Callable[[For], bool]) -> Stmt:
    s = with_bodies(s, tuple([_split(b, simplifier, is_split) for b in bodies(s)]))
    if not isinstance(s, For) or s.kind not in IN_TURN or s.extent == 1 or not is_split(s):
        return s
    guards = list(dict.fromkeys([g for g in _guards(s.body) if s.var in free_vars(g)]))
    first = _inside(guards, s.var, s.extent, simplifier) if guards else 0
    if first in (0, s.extent):
        return s
    return seq(_turns(s, 0, first, simplifier), _turns(s, first, s.extent, simplifier))


def _meets(body: Stmt) -> bool:
    """Whether the threads of a block meet in a statement: pipelines have conditions that are theirs."""
    return any(isinstance(s, Barrier | ThreadReduce) for s in stmts_of(body))


def _is_square(loop: For) -> bool:
    """Whether the turns are rows of a vector, each read in vectors, of a tile that is fetched ahead."""
    inner = loop.body
    if not isinstance(inner, For) or inner.kind is not ForKind.VECTORIZED:
        return False
    stores = [s for s in stmts_of(inner) if isinstance(s, Store)]
    return all(s.buffer.pipelined and loop.extent * BYTES[s.buffer.dtype] <= ALIGNMENT for s in stores)


def _guards(body: Stmt) -> Iterator[Expr]:
    """The conditions under `body`, those of a conjunction one by one."""
    for s in stmts_of(body):
        if isinstance(s, If):
            yield from conjuncts(s.cond)
        for e in exprs_of(s):
            for x in walk(e):
                if isinstance(x, Call) and x.func == "if_then_else":
                    yield from conjuncts(x.args[0])


def _inside(guards: list[Expr], var: Var, extent: int, simplifier: Simplifier) -> int:
    """How many of the first turns need no guard, found by halves."""
    low, high = 0, extent
    while low < high:
        turns = (low + high + 1) // 2
        own = Var(var.name)
        simplifier.bind(own, 0, turns - 1)
        if all(simplifier.prove(substitute(g, {var: own})) for g in guards):
            low = turns
        else:
            high = turns - 1
    return low


def _turns(loop: For, start: int, stop: int, simplifier: Simplifier) -> Stmt:
    """The turns from `start` up to `stop`, without what always holds in them."""
    own = Var(loop.var.name)
    simplifier.bind(own, 0, stop - start - 1)
    value = as_expr(start) if stop - start == 1 else binary("+", own, start)
    body = map_exprs(loop.body, lambda e: simplifier.simplify(substitute(e, {loop.var: value})))
    return body if stop - start == 1 else For(own, stop - start, loop.kind, body, loop.tag)
