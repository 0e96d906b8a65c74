"""Unrolled loops: which ones are written out, and which of their iterations need no guard.

A serial loop is unrolled when the statements it would become, counted with all its inner copies, stay within the
`auto_unroll_max_step` of its stage, and everything inside is unrolled too.  Those are written out here whose unrolling
lets selections fold.  Most unrolled loops stay loops, for the compiler of the emitted source to unroll.

A loop that runs over its end asks in every iteration, though most iterations are inside.  A compiler seldom sees that,
and what stands behind a condition shares nothing with other iterations: a quotient, an address.  So the first
iterations, as many as are inside for all threads, are a loop of their own without the guard:

    for item in 0..50: if item*1024 + thread < 50257: S        for item in 0..49: S
                                                               if thread < 81: S        item = 49
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..expr.dtype import BYTES
from ..expr.expr import BufferLoad, Call, Const, Expr, Select, Var, as_expr, binary, same
from ..expr.simplify import Simplifier
from ..expr.storage import ALIGNMENT
from ..expr.visit import children, conjuncts, free_vars, rebuild, substitute, walk
from ..loops.perfect_nest import SEQUENTIAL
from ..loops.stmt import (
    Barrier,
    For,
    ForKind,
    If,
    Instruction,
    Seq,
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


def whole_iterations(s: Stmt, simplifier: Simplifier) -> Stmt:
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
    if not isinstance(s, For) or s.kind not in SEQUENTIAL or s.extent == 1 or not is_split(s):
        return s
    guards = list(dict.fromkeys([g for g in _guards(s.body) if s.var in free_vars(g)]))
    first = _inside(guards, s.var, s.extent, simplifier) if guards else 0
    if first in (0, s.extent):
        return s
    return seq(_iterations(s, 0, first, simplifier), _iterations(s, first, s.extent, simplifier))


def _meets(body: Stmt) -> bool:
    """Whether the threads of a block meet in a statement: pipelines have conditions that are theirs."""
    return any(isinstance(s, Barrier | ThreadReduce) for s in stmts_of(body))


def _is_square(loop: For) -> bool:
    """Whether the iterations are rows of a vector, each read in vectors, of a tile that is fetched ahead."""
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
    """How many of the first iterations need no guard, found by halves."""
    low, high = 0, extent
    while low < high:
        iterations = (low + high + 1) // 2
        own = Var(var.name)
        simplifier.bind(own, 0, iterations - 1)
        if all(simplifier.prove(substitute(g, {var: own})) for g in guards):
            low = iterations
        else:
            high = iterations - 1
    return low


def _iterations(loop: For, start: int, stop: int, simplifier: Simplifier) -> Stmt:
    """The iterations from `start` up to `stop`, without what always holds in them."""
    own = Var(loop.var.name)
    simplifier.bind(own, 0, stop - start - 1)
    value = as_expr(start) if stop - start == 1 else binary("+", own, start)
    body = map_exprs(loop.body, lambda e: simplifier.simplify(substitute(e, {loop.var: value})))
    return body if stop - start == 1 else For(own, stop - start, loop.kind, body, loop.tag)


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
        case Store() | Instruction():
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


Values = Mapping[Var, int]
_NOWHERE: Values = MappingProxyType({})
_NONE = frozenset[Var]()


class _Writer:
    """Writes out unrolled loops whose variable decides a selection (constant matrices), outermost first.

    The copies of a loop share what its variable does not occur in, so an expression is written once for the values of
    the variables that do occur; expressions are known by their identity.
    """

    def __init__(self, simplifier: Simplifier) -> None:
        self.simplifier = simplifier
        self._vars: dict[int, tuple[Expr, tuple[Var, ...]]] = {}
        self._done: dict[tuple[int, tuple[int | None, ...]], Expr] = {}
        self._asked: dict[int, tuple[Expr, frozenset[Var]]] = {}
        self._deciding: dict[tuple[int, tuple[int | None, ...]], frozenset[Var]] = {}

    def expand(self, s: Stmt, at: Values = _NOWHERE, copies: int = 1) -> Stmt:
        """`s` where the variables of written loops have values, one of `copies`: up to `MAX_COPIES` are written."""
        if isinstance(s, For):
            if s.kind is ForKind.UNROLLED and self._decides_selection(s, at):
                copies *= s.extent
                if copies <= MAX_COPIES:
                    return seq(*[self.expand(s.body, {**at, s.var: k}, copies) for k in range(s.extent)])
        elif at and not bodies(s):
            s = map_exprs(s, lambda e: self.written(e, at))
        if isinstance(s, Store) and _stores_itself(s):
            return Seq(())
        new = [self.expand(b, at, copies) for b in bodies(s)]
        if isinstance(s, For | If) and isinstance(new[0], Seq) and not new[0].stmts:
            return Seq(())
        if isinstance(s, If) and at:
            cond = self.written(s.cond, at)
            return new[0] if isinstance(cond, Const) and cond.value else If(cond, new[0])
        return with_bodies(s, tuple(new))

    def _decides_selection(self, loop: For, at: Values) -> bool:
        return any(loop.var in self.deciding(e, at) for x in stmts_of(loop.body) for e in exprs_of(x))

    def written(self, e: Expr, at: Values) -> Expr:
        """`e` with the values of variables, simplified."""
        return self.simplifier.simplify(self._put(e, at))

    def _put(self, e: Expr, at: Values) -> Expr:
        key = _, values = self._key(e, at)
        if values.count(None) == len(values):
            return e
        done = self._done.get(key)
        if done is None:
            done = self._done[key] = self._replaced(e, at)
        return done

    def _replaced(self, e: Expr, at: Values) -> Expr:
        if isinstance(e, Var):
            return as_expr(at[e])
        if isinstance(e, Select):
            cond = self._put(e.cond, at)
            if isinstance(cond, Const):
                return self._put(e.a if cond.value else e.b, at)
        return rebuild(e, tuple([self._put(kid, at) for kid in children(e)]))

    def _key(self, e: Expr, at: Values) -> tuple[int, tuple[int | None, ...]]:
        """An expression and the values of what occurs in it, None for what has none yet."""
        return id(e), tuple(map(at.get, self.vars(e)))

    def vars(self, e: Expr) -> tuple[Var, ...]:
        """The variables that occur in `e`."""
        hit = self._vars.get(id(e))
        if hit is None:
            found = (e,) if isinstance(e, Var) else tuple(dict.fromkeys(v for k in children(e) for v in self.vars(k)))
            hit = self._vars[id(e)] = (e, found)
        return hit[1]

    def deciding(self, e: Expr, at: Values) -> frozenset[Var]:
        """The variables without a value in the conditions of selections in `e` that are not decided."""
        if self.asked(e) <= at.keys():
            return _NONE
        key = self._key(e, at)
        found = self._deciding.get(key)
        if found is None:
            found = self._deciding[key] = self._deciding_in(e, at)
        return found

    def _deciding_in(self, e: Expr, at: Values) -> frozenset[Var]:
        asked = _NONE
        if isinstance(e, Select):
            cond = self.written(e.cond, at)
            if isinstance(cond, Const):
                return self.deciding(e.a if cond.value else e.b, at)
            asked = frozenset(self.vars(cond))
        return asked.union(*[self.deciding(kid, at) for kid in children(e)])

    def asked(self, e: Expr) -> frozenset[Var]:
        """The variables in the conditions of all selections in `e`."""
        hit = self._asked.get(id(e))
        if hit is None:
            found = _NONE.union(*[self.asked(k) for k in children(e)])
            hit = self._asked[id(e)] = (e, found | frozenset(self.vars(e.cond)) if isinstance(e, Select) else found)
        return hit[1]
