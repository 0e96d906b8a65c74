"""Decide which loops are unrolled, and write out those whose unrolling lets selections fold.

A serial loop is unrolled when the statements it would become, counted with all its inner copies, stay within the
`auto_unroll_max_step` of its stage, and everything inside is unrolled too (spec autoscheduler 5.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .expr import BufferLoad, Expr, Select, Var, as_expr, same
from .simplify import Simplifier
from .stmt import For, ForKind, If, Seq, Stmt, Store, bodies, exprs_of, map_exprs, seq, stmts_of, with_bodies
from .visit import free_vars, substitute, walk

MAX_DEPTH = 8


def unroll_loops(s: Stmt, max_steps: Mapping[Var, int], simplifier: Simplifier) -> Stmt:
    """Mark loops as UNROLLED by the limit of each loop variable, and expand the constant selections."""
    return _expand(_mark(s, max_steps)[0], simplifier)


def _mark(s: Stmt, max_steps: Mapping[Var, int]) -> tuple[Stmt, int, int, bool]:
    """`(statement, steps, unroll depth, everything inside is unrolled)`."""
    match s:
        case For(extent=extent, kind=kind):
            body, steps, depth, flat = _mark(s.body, max_steps)
            fits = flat and depth <= MAX_DEPTH and steps * extent <= max_steps.get(s.var, 0)
            if kind is ForKind.UNROLLED or (kind is ForKind.SERIAL and fits):
                return replace(s, body=body, kind=ForKind.UNROLLED), steps * extent, depth + 1, flat
            if kind is ForKind.VECTORIZED:
                return replace(s, body=body), steps, depth, flat
            return replace(s, body=body), steps, depth, False
        case Store():
            return s, 1, 0, True
        case _:
            parts = [_mark(b, max_steps) for b in bodies(s)]
            new = with_bodies(s, tuple([p[0] for p in parts]))
            steps = sum(p[1] for p in parts)
            depth = max([p[2] for p in parts], default=0)
            return new, steps, depth, all(p[3] for p in parts)


def _decides_selection(loop: For) -> bool:
    exprs = (e for x in stmts_of(loop.body) for e in exprs_of(x))
    return any(isinstance(x, Select) and loop.var in free_vars(x.cond) for e in exprs for x in walk(e))


def _stores_itself(s: Store) -> bool:
    return isinstance(s.value, BufferLoad) and s.value.buffer is s.buffer and same(s.value.index, s.index)


def _expand(s: Stmt, simplifier: Simplifier) -> Stmt:
    """Write out unrolled loops whose variable decides a selection (constant matrices), outermost first."""
    if isinstance(s, For) and s.kind is ForKind.UNROLLED and _decides_selection(s):
        return seq(*[_expand(_at(s, value, simplifier), simplifier) for value in range(s.extent)])
    if isinstance(s, Store) and _stores_itself(s):
        return Seq(())
    new = [_expand(b, simplifier) for b in bodies(s)]
    if isinstance(s, For | If) and isinstance(new[0], Seq) and not new[0].stmts:
        return Seq(())
    return with_bodies(s, tuple(new))


def _at(loop: For, value: int, simplifier: Simplifier) -> Stmt:
    env: dict[Var, Expr] = {loop.var: as_expr(value)}
    return map_exprs(loop.body, lambda e: simplifier.simplify(substitute(e, env)))
