"""Hoisting of guarded reads: all iterations of a loop read before the first update under a condition.

    unrolled u: if i(u) < n: m, q = f(m, q, x[i(u)])      unrolled u: if i(u) < n: v[u] = x[i(u)]
                                                          unrolled u: if i(u) < n: m, q = f(m, q, v[u])

A long update becomes a jump, and a read behind a jump waits for all updates before it: a thread has one load under way
where eight were meant.  A read alone is an instruction with a condition.  What one number is updated with, as a sum,
compilers order so themselves.
"""

from __future__ import annotations

from collections.abc import Collection

from te_lite.expr.element import Buffer
from te_lite.expr.expr import same
from te_lite.expr.visit import free_vars
from te_lite.loops.perfect_nest import perfect_nest
from te_lite.loops.stmt import ForKind, If, Stmt, Store, bodies, flattened, with_bodies

from .reads_first import MOST_WORDS, Read, certain_reads, in_two, loads


def with_guarded_reads_first(s: Stmt, written: Collection[Buffer]) -> Stmt:
    """A kernel that writes to the buffers `written`, with such loops in two."""
    loops, inner = perfect_nest(s, lambda loop: loop.kind is ForKind.UNROLLED)
    if loops and isinstance(inner, If):
        reads = _reads(inner, written)
        if reads and sum([r.words(loops) for r in reads]) <= MOST_WORDS:
            return in_two(loops, inner, reads)
    return with_bodies(s, tuple([with_guarded_reads_first(b, written) for b in bodies(s)]))


def _reads(inner: If, written: Collection[Buffer]) -> list[Read]:
    """The distinct reads of memory by updates of several numbers; none where there is anything else."""
    found: list[Read] = []
    updates = list(flattened(inner.then, []))
    if len(updates) < 2 or not all(isinstance(x, Store) and _is_number(x.buffer) for x in updates):
        return []
    for update in updates:
        assert isinstance(update, Store)
        for e in certain_reads(update.value):
            known = e.buffer.storage != "global" or e.buffer in written or any(same(e, x.load) for x in found)
            if not known and not loads(e.index):
                found.append(Read(e, frozenset(free_vars(inner.cond) | free_vars(e.index))))
    return found


def _is_number(buffer: Buffer) -> bool:
    return buffer.storage == "local" and buffer.size == 1
