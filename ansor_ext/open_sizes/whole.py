"""Sums that are kept in an argument: where all of a tile is inside, they are added up without guards.

A tile of an argument may lie beyond its end, so each term is guarded, and no compiler keeps the sums in registers over
the terms.  One condition around all terms says that the whole tile is inside, which it is but for the last one:

    for k:                                     if 4*i + 3 < n:
      for r in 0..4:                             for k: for r in 0..4: C[4*i + r] += ...
        if 4*i + r < n:                        if not 4*i + 3 < n:
          C[4*i + r] += ...                      for k: for r in 0..4: if 4*i + r < n: C[4*i + r] += ...
"""

from __future__ import annotations

from collections.abc import Mapping

from te_lite.expr.element import BufferLoad
from te_lite.expr.expr import Compare, Const, Expr, SizeVar, Var, binary, compare, logical_and, logical_not, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import conjuncts, free_vars, substitute, walk
from te_lite.loops.stmt import For, ForKind, If, Stmt, Store, bodies, seq, with_bodies

from .shorten import direction, without

TERMS = (ForKind.SERIAL, ForKind.UNROLLED)
"""Loops over terms."""


def with_whole_tiles(s: Stmt, simplifier: Simplifier, outer: Expr | None = None) -> Stmt:
    """The statement with a part for whole tiles wherever sums are guarded term by term.

    In the part for others there may be whole tiles of inner loops; `outer` is what does not hold there.
    """
    guards = _guards(s) if isinstance(s, For) and s.kind in TERMS else []
    worst = [_at_worst(c, loops, simplifier) for c, loops in guards]
    known = [c for c in worst if c is not None]
    whole = logical_and(*known) if known and len(known) == len(guards) else Const(False, "bool")
    if isinstance(whole, Const) or (outer is not None and same(whole, outer)):
        return with_bodies(s, tuple([with_whole_tiles(b, simplifier, outer) for b in bodies(s)]))
    free = s
    for c, _ in guards:
        free = without(free, c)
    others = with_bodies(s, tuple([with_whole_tiles(b, simplifier, whole) for b in bodies(s)]))
    return seq(If(whole, free), If(logical_not(whole), others))


def _guards(terms: For) -> list[tuple[Compare, Mapping[Var, int]]]:
    """What is asked of sizes in each iteration of a loop over the terms of sums, with the loops of the tile around it.

    Nothing where it is no such loop, or one that is asked for itself.
    """
    found: list[tuple[Compare, Mapping[Var, int]]] = []
    loops: dict[Var, int] = {}
    s: Stmt = terms.body
    while not isinstance(s, Store):
        match s:
            case For(var=var, extent=extent, body=body):
                loops, s = {**loops, var: extent}, body
            case If(cond=cond, then=then):
                asked = [c for c in conjuncts(cond) if isinstance(c, Compare) and _of_sizes(c, loops)]
                found, s = [*found, *[(c, loops) for c in asked]], then
            case _:
                return []
    is_sum = any(isinstance(x, BufferLoad) and x.buffer is s.buffer for x in walk(s.value))
    named = free_vars(s.index).union(*[free_vars(c) for c, _ in found])
    return found if is_sum and terms.var not in named else []


def _of_sizes(c: Compare, loops: Mapping[Var, int]) -> bool:
    names = free_vars(c)
    return any(isinstance(v, SizeVar) for v in names) and any(v in names for v in loops)


def _at_worst(c: Compare, loops: Mapping[Var, int], simplifier: Simplifier) -> Expr | None:
    """The condition that holds if `c` does for all values of loops; None where no value of one is the worst."""
    if c.op not in ("<", "<="):
        return None
    left = binary("-", c.a, c.b)
    for var, extent in loops.items():
        way = direction(left, var)
        if way is None:
            return None
        left = substitute(left, {var: Const(extent - 1 if way > 0 else 0)})
    return simplifier.simplify(compare(c.op, left, 0))
