"""Copies into pipelined tiles that go through registers: read in vectors when an iteration begins, stored when it ends.

A tile that is stored in another order than it is read (transposed) cannot be copied by vectors: asynchronous
copies of its elements are four times as many instructions.  So a thread reads four neighbours at once, lets them come
while it computes, and stores them before the barrier: one by one or, where it copies squares, four neighbours at once,
of which each comes from another vector.

    for v: copy_async<4>(tile + 0, A + 0) ... (tile + 396, A + 3)         for v: fetched[v] = vector of A
                                                                          ... compute ...
                                                                          for v: tile[0], ... tile[396] = fetched[v]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from codegen_cuda.program.cuda_program import VECTOR_BYTES
from codegen_cuda.program.indices import vector_start
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Var, as_expr
from te_lite.expr.visit import free_vars, substitute
from te_lite.loops.perfect_nest import SEQUENTIAL, iteration
from te_lite.loops.stmt import Buffer, For, ForKind, If, Seq, Stmt, Store, map_exprs, seq

from .async_copy import moved

MOST_BYTES = 128
"""What a thread may hold of the next tile."""


@dataclass(frozen=True)
class Staged:
    """Copies in two halves: `reads` into `registers`, and `stores` from them; what is copied as before reads only."""

    reads: Stmt
    stores: tuple[Stmt, ...]
    registers: tuple[Buffer, ...]


def staged(copies: Stmt) -> Staged:
    """The halves of a sequence of copies into shared memory."""
    reads: list[Stmt] = []
    stores: list[Stmt] = []
    registers: list[Buffer] = []
    for copy in copies.stmts if isinstance(copies, Seq) else (copies,):
        around, inner = enclosing(copy)
        loops = [x for x in around if isinstance(x, For)]
        if isinstance(inner, Store) and _is_turned(around, inner):
            held = Buffer(f"{inner.buffer.name}_fetched", inner.buffer.dtype, tuple([x.extent for x in loops]), "local")
            place = iteration(loops)
            reads.append(_written_out(around, Store(held, place, inner.value)))
            stores.append(_stored(around, Store(inner.buffer, inner.index, BufferLoad(held, place))))
            registers.append(held)
        else:
            reads.append(copy)
    return Staged(seq(*reads), tuple(stores), tuple(registers))


def written_out(s: Stmt) -> Iterator[Stmt]:
    """A store in loops as one statement for each iteration of all of them but the innermost one."""
    if not isinstance(s, For) or s.kind is ForKind.VECTORIZED or not isinstance(s.body, For | If):
        yield s
        return
    for n in range(s.extent):
        yield from written_out(map_exprs(s.body, partial(substitute, env={s.var: as_expr(n)})))


def enclosing(s: Stmt) -> tuple[list[For | If], Stmt]:
    """The loops and conditions of which each encloses the next one and nothing else, and what the last one encloses."""
    around: list[For | If] = []
    while isinstance(s, For | If):
        around.append(s)
        s = s.body if isinstance(s, For) else s.then
    return around, s


def _is_turned(around: Sequence[For | If], s: Store) -> bool:
    """Whether the lanes of the innermost loop are neighbours where they are read, and none where they are stored; all
    of them are copied, or none is."""
    loops, found = [x for x in around if isinstance(x, For)], moved(s.value)
    if not loops or loops[-1].kind is not ForKind.VECTORIZED or found is None:
        return False
    *outer, lane = loops
    small = prod([x.extent for x in loops]) * BYTES[s.buffer.dtype] <= MOST_BYTES
    plain = all(x.kind in SEQUENTIAL for x in outer)
    whole = all(lane.var not in free_vars(x.cond) for x in around if isinstance(x, If))
    vector = lane.extent * BYTES[s.buffer.dtype] <= VECTOR_BYTES
    read, stored = [vector_start(index, lane.var, lane.extent) for index in (found[0].index, s.index)]
    return small and plain and whole and vector and read is not None and stored is None


def _stored(around: Sequence[For | If], s: Store) -> Stmt:
    """`s` in the loops and conditions of a copy, that along neighbours where it stores innermost, if there is one."""
    asked = set[Var]().union(*[free_vars(x.cond) for x in around if isinstance(x, If)])
    beside = [x for x in around if isinstance(x, For) and x.var not in asked and _is_vector(s, x)]
    if not beside:
        return _written_out(around, s)
    *_, lane = beside
    others = [_as(x, ForKind.UNROLLED) for x in around if x is not lane]
    return _written_out([*others, _as(lane, ForKind.VECTORIZED)], s)


def _is_vector(s: Store, loop: For) -> bool:
    small = loop.extent > 1 and loop.extent * BYTES[s.buffer.dtype] <= VECTOR_BYTES
    return small and vector_start(s.index, loop.var, loop.extent) is not None


def _as(x: For | If, kind: ForKind) -> For | If:
    return replace(x, kind=kind) if isinstance(x, For) else x


def _written_out(around: Sequence[For | If], s: Store) -> Stmt:
    """`s` in the loops and conditions of a copy, whose innermost loop is that of its lanes."""
    body: Stmt = s
    for x in reversed(around):
        match x:
            case If(cond=cond):
                body = If(cond, body)
            case For(kind=ForKind.VECTORIZED):
                body = replace(x, body=body)
            case For():
                body = replace(x, body=body, kind=ForKind.UNROLLED)
    return body
