"""Sink virtual threads to the statements that differ between them.

A loop over virtual threads (and a vectorized loop that is not innermost) asserts that its iterations are
independent.  It is pushed inwards to single statements, so barriers and loads that all iterations share stay
outside; storage that the iterations fill differently gets one copy each.
"""

from __future__ import annotations

from dataclasses import replace

from ..expr.expr import BufferLoad, Expr, Var, as_expr, binary
from ..expr.simplify import Simplifier
from ..expr.visit import substitute, transform, walk
from ..loops.stmt import (
    Alloc,
    Buffer,
    For,
    ForKind,
    If,
    Instruction,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    allocated,
    bodies,
    exprs_of,
    map_exprs,
    seq,
    stmts_of,
    with_bodies,
    written_by,
)


def sink_lanes(s: Stmt, simplifier: Simplifier) -> Stmt:
    """Sink every VTHREAD loop, and every VECTORIZED loop that has loops inside."""
    s = with_bodies(s, tuple([sink_lanes(b, simplifier) for b in bodies(s)]))
    match s:
        case For(kind=ForKind.VTHREAD):
            return _sink(s, ForKind.UNROLLED, simplifier)
        case For(kind=ForKind.VECTORIZED) if any(isinstance(x, For | Alloc | ThreadReduce) for x in stmts_of(s.body)):
            return _sink(s, ForKind.VECTORIZED, simplifier)
    return s


def _sink(loop: For, kind: ForKind, simplifier: Simplifier) -> Stmt:
    return _Sinker(loop, kind, simplifier).visit(loop.body)


class _Sinker:
    """Takes a loop down to the statements that differ between its iterations, with copies of buffers that do."""

    def __init__(self, loop: For, kind: ForKind, simplifier: Simplifier) -> None:
        self.loop = loop
        self.kind = kind
        self.simplifier = simplifier
        self.differing = _differing_buffers(loop)
        self.copies = {b: replace(b, shape=(loop.extent, b.size), strides=None) for b in self.differing}

    def visit(self, s: Stmt) -> Stmt:
        match s:
            case Store() | If() | Instruction() if self._depends(s):
                return _around(self.loop, self._rewritten(s), self.kind)
            case ThreadReduce() if self._depends(s):
                return _write_out(self.loop, self._swapped(s), self.copies, self.simplifier)
            case Alloc(buffer=buffer, body=body) if buffer in self.copies:
                return Alloc(self.copies[buffer], self.visit(body))
            case Seq(stmts=stmts):
                return seq(*[self.visit(x) for x in stmts])
            case For(kind=ForKind.VECTORIZED) if any(self._depends(x) for x in stmts_of(s.body)):
                return _around(self.loop, self._rewritten(s), self.kind)
        return with_bodies(s, tuple([self.visit(b) for b in bodies(s)]))

    def _depends(self, s: Stmt) -> bool:
        stored = isinstance(s, Store) and s.buffer in self.differing
        return stored or any(_touches(e, self.loop.var, self.differing) for e in exprs_of(s))

    def _rewritten(self, s: Stmt) -> Stmt:
        return _redirect(self._swapped(s), self.copies, self.loop.var, self.simplifier)

    def _swapped(self, s: Stmt) -> Stmt:
        """`s` with its reads turned to the copies."""
        return map_exprs(s, lambda e: transform(e, self._swap))

    def _swap(self, e: Expr) -> Expr | None:
        if isinstance(e, BufferLoad) and e.buffer in self.copies:
            offset = binary("*", self.loop.var, e.buffer.size)
            index = self.simplifier.simplify(binary("+", transform(e.index, self._swap), offset))
            return BufferLoad(self.copies[e.buffer], index)
        return None


def _around(loop: For, body: Stmt, kind: ForKind) -> Stmt:
    """The loop around a statement; only an innermost loop can be lanes of a vector."""
    nested = kind is ForKind.VECTORIZED and any(isinstance(x, For) for x in stmts_of(body))
    return replace(loop, body=body, kind=ForKind.SERIAL if nested else kind)


def _redirect(s: Stmt, copies: dict[Buffer, Buffer], var: Var, simplifier: Simplifier) -> Stmt:
    """Stores and allocations of differing buffers go to their copies."""
    match s:
        case Store(buffer=buffer, index=index, value=value) if buffer in copies:
            moved = simplifier.simplify(binary("+", index, binary("*", var, buffer.size)))
            return Store(copies[buffer], moved, value)
        case Alloc(buffer=buffer, body=body) if buffer in copies:
            return Alloc(copies[buffer], _redirect(body, copies, var, simplifier))
        case _:
            return with_bodies(s, tuple([_redirect(b, copies, var, simplifier) for b in bodies(s)]))


def _touches(e: Expr, var: Var, buffers: set[Buffer]) -> bool:
    return any(x is var or (isinstance(x, BufferLoad) and x.buffer in buffers) for x in walk(e))


def _differing_buffers(loop: For) -> set[Buffer]:
    """The buffers allocated inside whose contents depend on the loop variable."""
    inside = {s.buffer for s in stmts_of(loop.body) if isinstance(s, Alloc)}
    differing: set[Buffer] = set()
    while True:
        found = {b for b in _written_differently(loop.body, loop.var, differing, False) if b in inside}
        if found <= differing:
            return differing
        differing |= found


def _written_differently(s: Stmt, var: Var, differing: set[Buffer], guarded: bool) -> set[Buffer]:
    match s:
        case Store(buffer=buffer, index=index, value=value):
            own = guarded or _touches(index, var, differing) or _touches(value, var, differing)
            return {buffer} if own else set()
        case ThreadReduce() | Instruction():
            return set(written_by(s)) if guarded or any(_touches(e, var, differing) for e in exprs_of(s)) else set()
        case If(cond=cond, then=then):
            return _written_differently(then, var, differing, guarded or _touches(cond, var, differing))
        case _:
            out: set[Buffer] = set()
            for b in bodies(s):
                out |= _written_differently(b, var, differing, guarded)
            return out


def _write_out(loop: For, s: Stmt, copies: dict[Buffer, Buffer], simplifier: Simplifier) -> Stmt:
    """A reduction across threads once for every value of the loop variable, each into its copy of the results."""
    assert isinstance(s, ThreadReduce)
    out: list[Stmt] = []
    for value in range(loop.extent):
        env: dict[Var, Expr] = {loop.var: as_expr(value)}
        src = tuple([simplifier.simplify(substitute(e, env)) for e in s.src])
        results = tuple([Buffer(b.name, b.dtype, (1,), "local") for b in s.dst])
        pairs = zip(s.dst, results, strict=True)
        stores = [Store(copies.get(b, b), as_expr(value if b in copies else 0), r[0]) for b, r in pairs]
        out.append(allocated(results[::-1], seq(replace(s, dst=results, src=src), *stores)))
    return seq(*out)
