"""Put barriers where threads of a block meet in memory.

Between two accesses of one buffer by several threads, a write and a read in either order, a barrier must stand: one
thread may read what another wrote.  Threads meet in shared memory, and in a global buffer that a kernel writes and
reads, as where an output is computed inside the kernel of its reader; not where each thread keeps to elements of its
own.  A barrier is put as far out as possible: before a whole loop where nothing inside the loop asks for more.  Loop
bodies are looked at twice, so that the end of one iteration meets the start of the next.  Writes alone never conflict:
threads write elements of their own (the interpreter refuses anything else).  Pipelined buffers have barriers of their
own already (`double_buffer.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..expr.expr import BufferLoad
from ..expr.visit import walk
from ..loops.stmt import (
    Barrier,
    Buffer,
    For,
    If,
    Instruction,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
    bodies,
    exprs_of,
    seq,
    stmts_of,
    with_bodies,
    written_by,
)
from ..meaning.independent import apart


@dataclass(frozen=True)
class Pending:
    """Buffers where threads meet that were read and written since the last barrier."""

    reads: frozenset[Buffer] = frozenset()
    writes: frozenset[Buffer] = frozenset()

    def join(self, other: Pending) -> Pending:
        return Pending(self.reads | other.reads, self.writes | other.writes)

    def within(self, buffers: frozenset[Buffer]) -> Pending:
        return Pending(self.reads & buffers, self.writes & buffers)

    def conflicts(self, later: Pending) -> bool:
        return bool(self.writes & later.reads or self.reads & later.writes)


def insert_barriers(kernel: Stmt, threads: Sequence[For]) -> Stmt:
    """The body of a kernel with the barriers it needs; `threads` are the thread loops around it."""
    accesses = Accesses()
    return _Barriers(meeting_places(accesses.of(kernel), threads), accesses).visit(kernel, Pending())[0]


class Accesses:
    """The buffers that are read and written under statements, each looked at once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Stmt, Pending]] = {}

    def of(self, s: Stmt) -> Pending:
        known = self._known.get(id(s))
        if known is None:
            inner = [self.of(b) for b in bodies(s)]
            reads = {x.buffer for e in exprs_of(s) for x in walk(e) if isinstance(x, BufferLoad)}
            reads.update(*[b.reads for b in inner])
            writes = set(written_by(s)).union(*[b.writes for b in inner])
            known = self._known[id(s)] = s, Pending(frozenset(reads), frozenset(writes))
        return known[1]


def meeting_places(touched: Pending, threads: Sequence[For]) -> frozenset[Buffer]:
    """The buffers of a kernel in which a thread may read what another one wrote."""
    both = {b for b in touched.reads & touched.writes if b.storage == "global"}
    own = both
    for loop in threads if both else ():
        own = apart(loop, own) if loop.extent > 1 else own
    shared = [b for b in touched.reads | touched.writes if b.storage == "shared" and not b.pipelined]
    return frozenset([*(both - own), *shared])


@dataclass(frozen=True)
class _Barriers:
    """Puts them between the accesses of `places`.

    What becomes of a statement after certain accesses is kept: a loop asks for it three times, and so does each of
    the loops inside of it.
    """

    places: frozenset[Buffer]
    touched: Accesses
    _known: dict[tuple[int, Pending], tuple[Stmt, Stmt, Pending]] = field(default_factory=dict)

    def accesses(self, s: Stmt) -> Pending:
        return self.touched.of(s).within(self.places)

    def visit(self, s: Stmt, pending: Pending) -> tuple[Stmt, Pending]:
        """The statement with its barriers, itself where it needs none, and what is pending after it."""
        key = (id(s), pending)
        if key not in self._known:
            self._known[key] = (s, *self._visit(s, pending))
        return self._known[key][1:]

    def _visit(self, s: Stmt, pending: Pending) -> tuple[Stmt, Pending]:
        match s:
            case Store() | If() | ThreadReduce() | Instruction():
                own = self.accesses(s)
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
                    y, pending = self.visit(x, pending)
                    new.append(y)
                same = all(x is y for x, y in zip(stmts, new, strict=True))
                return (s if same else seq(*new)), pending
            case For():
                return self.visit_loop(s, pending)
            case _:
                (inner,) = bodies(s)
                body, after = self.visit(inner, pending)
                return (s if body is inner else with_bodies(s, (body,))), after

    def visit_loop(self, loop: For, pending: Pending) -> tuple[Stmt, Pending]:
        """A loop needs a barrier before it only when its body does not begin with one of its own."""
        own = self.accesses(loop)
        body: Stmt = loop.body
        if own.conflicts(own):
            _, end = self.visit(loop.body, Pending())
            body, after = self.visit(loop.body, end)
            again, _ = self.visit(body, pending)
            barrier = _count(again) > _count(body)
        else:
            barrier, after = pending.conflicts(own), own
        new = loop if body is loop.body else with_bodies(loop, (body,))
        before = Pending() if barrier else pending
        return (seq(Barrier(), new) if barrier else new), before.join(after)


def _count(s: Stmt) -> int:
    return sum(isinstance(x, Barrier) for x in stmts_of(s))
