"""Decide which loops are unrolled, and write out those whose unrolling lets selections fold.

A serial loop is unrolled when the statements it would become, counted with all its inner copies, stay within the
`auto_unroll_max_step` of its stage, and everything inside is unrolled too.  Most unrolled
loops stay loops, for the compiler of the emitted source to unroll.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .expr import BufferLoad, Const, Expr, Select, Var, as_expr, same
from .simplify import Simplifier
from .stmt import (
    For,
    ForKind,
    If,
    Seq,
    Stmt,
    Store,
    WarpLoad,
    WarpMultiply,
    bodies,
    exprs_of,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
)
from .visit import children, rebuild

MAX_DEPTH = 8
MAX_COPIES = 8192


def unroll_loops(s: Stmt, simplifier: Simplifier) -> Stmt:
    """Mark loops as UNROLLED by the limit of each, and expand the constant selections."""
    return _Writer(simplifier).expand(_mark(s).stmt)


@dataclass(frozen=True)
class _Marked:
    """A statement whose loops are marked: the steps it becomes, its unroll depth, whether all inside is unrolled."""

    stmt: Stmt
    steps: int
    depth: int
    flat: bool


def _mark(s: Stmt) -> _Marked:
    match s:
        case For():
            return _mark_loop(s, _mark(s.body))
        case Store() | WarpMultiply() | WarpLoad():
            return _Marked(s, 1, 0, True)
    parts = [_mark(b) for b in bodies(s)]
    new = with_bodies(s, tuple([p.stmt for p in parts]))
    depth = max([p.depth for p in parts], default=0)
    return _Marked(new, sum(p.steps for p in parts), depth, all(p.flat for p in parts))


def _mark_loop(loop: For, body: _Marked) -> _Marked:
    steps = body.steps * loop.extent
    fits = body.flat and body.depth <= MAX_DEPTH and steps <= loop.limit
    if loop.kind is ForKind.UNROLLED or (loop.kind is ForKind.SERIAL and fits):
        return _Marked(replace(loop, body=body.stmt, kind=ForKind.UNROLLED), steps, body.depth + 1, body.flat)
    flat = body.flat and loop.kind is ForKind.VECTORIZED
    return _Marked(replace(loop, body=body.stmt), body.steps, body.depth, flat)


def _stores_itself(s: Store) -> bool:
    return isinstance(s.value, BufferLoad) and s.value.buffer is s.buffer and same(s.value.index, s.index)


class _Writer:
    """Writes out unrolled loops whose variable decides a selection (constant matrices), outermost first.

    The copies of a loop share the sub-expressions that its variable does not occur in, so what is known of an
    expression is kept by its identity.
    """

    def __init__(self, simplifier: Simplifier) -> None:
        self.simplifier = simplifier
        self._vars: dict[int, tuple[Expr, frozenset[Var]]] = {}
        self._deciding: dict[int, tuple[Expr, frozenset[Var]]] = {}

    def expand(self, s: Stmt, copies: int = 1) -> Stmt:
        """`s`, which itself is one of `copies`, with such loops written out up to `MAX_COPIES`."""
        if isinstance(s, For) and s.kind is ForKind.UNROLLED and self._decides_selection(s):
            copies *= s.extent
            if copies <= MAX_COPIES:
                return seq(*[self.expand(self._at(s, value), copies) for value in range(s.extent)])
        if isinstance(s, Store) and _stores_itself(s):
            return Seq(())
        new = [self.expand(b, copies) for b in bodies(s)]
        if isinstance(s, For | If) and isinstance(new[0], Seq) and not new[0].stmts:
            return Seq(())
        return with_bodies(s, tuple(new))

    def _decides_selection(self, loop: For) -> bool:
        return any(loop.var in self.deciding(e) for x in stmts_of(loop.body) for e in exprs_of(x))

    def _at(self, loop: For, value: int) -> Stmt:
        number = as_expr(value)
        done: dict[int, Expr] = {}

        def put(e: Expr) -> Expr:
            if loop.var not in self.vars(e):
                return e
            if id(e) not in done:
                done[id(e)] = replaced(e)
            return done[id(e)]

        def replaced(e: Expr) -> Expr:
            if isinstance(e, Var):
                return number
            if isinstance(e, Select):
                cond = put(e.cond)
                if isinstance(cond, Const):
                    return put(e.a if cond.value else e.b)
            return rebuild(e, tuple([put(kid) for kid in children(e)]))

        return map_exprs(loop.body, lambda e: self.simplifier.simplify(put(e)))

    def vars(self, e: Expr) -> frozenset[Var]:
        """The variables that occur in `e`."""
        hit = self._vars.get(id(e))
        if hit is not None:
            return hit[1]
        found = frozenset((e,)) if isinstance(e, Var) else frozenset().union(*[self.vars(k) for k in children(e)])
        self._vars[id(e)] = (e, found)
        return found

    def deciding(self, e: Expr) -> frozenset[Var]:
        """The variables in the conditions of selections in `e`."""
        hit = self._deciding.get(id(e))
        if hit is not None:
            return hit[1]
        found = frozenset().union(*[self.deciding(k) for k in children(e)])
        if isinstance(e, Select):
            found |= self.vars(e.cond)
        self._deciding[id(e)] = (e, found)
        return found
