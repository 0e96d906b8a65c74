"""Unrolling of small loops, and the size of its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from te_lite.expr.expr import Const, Expr, Var, const
from te_lite.expr.visit import walk
from te_lite.loops.stmt import Alloc, For, ForKind, If, Stmt, Store, bodies, exprs_of, seq, with_bodies

from .functions import nodes
from .indices import Indices
from .vectorize import normal_stmt

Chosen = Callable[[For], bool]


def unrolled_size(s: Stmt, chosen: Chosen) -> int:
    """How many stores there are after the chosen loops are written out."""
    if isinstance(s, Store):
        return 1
    inner = sum(unrolled_size(b, chosen) for b in bodies(s))
    return inner * s.extent if isinstance(s, For) and chosen(s) else inner


def unrolled_nodes(s: Stmt) -> int:
    """How many expression nodes there are after UNROLLED loops are written out; at least 1.

    It is what a compiler has to chew on: one store may hold a padded read with a hundred nodes, or a function of ours.
    """
    own = sum(nodes(x) for e in exprs_of(s) for x in walk(e))
    inner = own + sum(unrolled_nodes(b) for b in bodies(s))
    return inner * s.extent if isinstance(s, For) and s.kind is ForKind.UNROLLED else max(inner, 1)


def unroll(s: Stmt, chosen: Chosen, indices: Indices) -> Stmt:
    """`s` with the chosen loops written out and all indices in normal form; false branches vanish."""
    return _unroll(s, chosen, indices, {})


def _unroll(s: Stmt, chosen: Chosen, indices: Indices, env: Mapping[Var, Expr]) -> Stmt:
    match s:
        case For() if chosen(s):
            steps = [_unroll(s.body, chosen, indices, {**env, s.var: const(k, s.var.dtype)}) for k in range(s.extent)]
            return seq(*steps)
        case Store():
            return normal_stmt(s, indices, env) if env else s
        case If(cond=cond, then=then):
            test = indices.normal(cond, env)
            if isinstance(test, Const):
                return _unroll(then, chosen, indices, env) if test.value else seq()
            return If(test, _unroll(then, chosen, indices, env))
        case For() | Alloc():
            return with_bodies(s, (_unroll(bodies(s)[0], chosen, indices, env),))
        case _:
            return seq(*[_unroll(b, chosen, indices, env) for b in bodies(s)])
