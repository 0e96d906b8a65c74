"""Put barriers where threads of a block meet in shared memory.

Between two accesses of one shared buffer, a write and a read in either order, a barrier must stand: one thread
may read what another wrote.  It is put as far out as possible: before a whole loop where nothing inside the loop
asks for more.  Loop bodies are looked at twice, so that the end of one iteration meets the start of the next.
Writes alone never conflict: threads write elements of their own (the interpreter refuses anything else).
Pipelined buffers have barriers of their own already (`double_buffer.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from .expr import BufferLoad, Expr
from .stmt import Barrier, Buffer, For, If, Seq, Stmt, Store, ThreadReduce, bodies, exprs_of, seq, stmts_of, with_bodies
from .visit import walk


@dataclass(frozen=True)
class Pending:
    """Shared buffers read and written since the last barrier."""

    reads: frozenset[Buffer] = frozenset()
    writes: frozenset[Buffer] = frozenset()

    def join(self, other: Pending) -> Pending:
        return Pending(self.reads | other.reads, self.writes | other.writes)

    def conflicts(self, later: Pending) -> bool:
        return bool(self.writes & later.reads or self.reads & later.writes)


def insert_barriers(kernel: Stmt) -> Stmt:
    """The body of a kernel with the barriers it needs."""
    return _visit(kernel, Pending())[0]


def _is_watched(buffer: Buffer) -> bool:
    return buffer.storage == "shared" and not buffer.pipelined


def _shared_reads(exprs: tuple[Expr, ...]) -> frozenset[Buffer]:
    return frozenset(x.buffer for e in exprs for x in walk(e) if isinstance(x, BufferLoad) and _is_watched(x.buffer))


def accesses(s: Stmt) -> Pending:
    """All shared accesses under a statement."""
    out = Pending()
    for x in stmts_of(s):
        writes = frozenset({x.buffer} if isinstance(x, Store) and _is_watched(x.buffer) else ())
        out = out.join(Pending(_shared_reads(exprs_of(x)), writes))
    return out


def _visit(s: Stmt, pending: Pending) -> tuple[Stmt, Pending]:
    match s:
        case Store() | If() | ThreadReduce():
            own = accesses(s)
            barrier = pending.conflicts(own)
            after = own if barrier else pending.join(own)
            if isinstance(s, ThreadReduce):
                after = Pending()
            return (seq(Barrier(), s) if barrier else s), after
        case Barrier():
            return s, Pending()
        case Seq(stmts=stmts):
            new = []
            for x in stmts:
                y, pending = _visit(x, pending)
                new.append(y)
            return seq(*new), pending
        case For():
            return _visit_loop(s, pending)
        case _:
            (inner,) = bodies(s)
            body, after = _visit(inner, pending)
            return with_bodies(s, (body,)), after


def _visit_loop(loop: For, pending: Pending) -> tuple[Stmt, Pending]:
    """A loop needs a barrier before it only when its body does not begin with one of its own."""
    own = accesses(loop)
    body: Stmt = loop.body
    if own.conflicts(own):
        _, end = _visit(loop.body, Pending())
        body, after = _visit(loop.body, end)
        again, _ = _visit(body, pending)
        barrier = _count(again) > _count(body)
    else:
        barrier, after = pending.conflicts(own), own
    new = with_bodies(loop, (body,))
    before = Pending() if barrier else pending
    return (seq(Barrier(), new) if barrier else new), before.join(after)


def _count(s: Stmt) -> int:
    return sum(isinstance(x, Barrier) for x in stmts_of(s))
