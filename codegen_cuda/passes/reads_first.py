"""Epilogue loads before stores: what is added to the results of a thread is read before the first is written.

    for i, j: C[i, j] = sums[i, j] + R[i, j]          for i, j: first[i, j] = R[i, j]
                                                      for i, j: C[i, j] = sums[i, j] + first[i, j]

To a compiler that does not know that `R` and `C` are different memory each read must wait for the write before it, and
each takes the way to memory and back.  It knows from `__restrict__` at the parameters of a kernel; those of kernels
that wait for the one before them come out of an instruction (`dependent_launch.py`).  Reads through the read-only cache
(`ld.global.nc`) would not wait for writes, but ptxas moves them even above the instruction that waits
(docs/results/networks.md says what that cost).

At most `MOST_WORDS` registers hold what is read of a tensor; more are read in parts, by outer iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from te_lite.expr.dtype import BYTES
from te_lite.expr.element import Buffer, BufferLoad
from te_lite.expr.expr import Binary, Call, Cast, Expr, Var, same
from te_lite.expr.visit import children, free_vars, transform, walk
from te_lite.loops.perfect_nest import OF_ONE_THREAD, iteration, nested, perfect_nest
from te_lite.loops.stmt import Alloc, For, If, Stmt, Store, bodies, map_exprs, seq, with_bodies

MOST_WORDS = 64
WORD = 4


def with_reads_first(s: Stmt, written: frozenset[Buffer]) -> Stmt:
    """A kernel that writes to the buffers `written`, with all such nests of loops in two."""
    loops, inner = perfect_nest(s, lambda loop: loop.kind in OF_ONE_THREAD)
    reads = _reads(loops, inner, written)
    if not reads:
        return with_bodies(s, tuple([with_reads_first(b, written) for b in bodies(s)]))
    outer = next(k for k in range(len(loops) + 1) if max([r.words(loops[k:]) for r in reads]) <= MOST_WORDS)
    return nested(loops[:outer], in_two(loops[outer:], inner, reads))


@dataclass(frozen=True)
class Read:
    """A read that every result makes, and the variables that it and its condition depend on."""

    load: BufferLoad
    moved_by: frozenset[Var]

    def loops(self, loops: Sequence[For]) -> list[For]:
        """Those of the loops that move it."""
        return [x for x in loops if x.var in self.moved_by]

    def words(self, loops: Sequence[For]) -> int:
        """The registers for what it reads in the loops."""
        return -(-prod([x.extent for x in self.loops(loops)]) * BYTES[self.load.dtype] // WORD)


def _parts(inner: Stmt) -> tuple[tuple[Expr, ...], Store | None]:
    """The condition around a store, if it has one, and the store; None for other statements."""
    match inner:
        case Store():
            return (), inner
        case If(cond=cond, then=Store() as store):
            return (cond,), store
    return (), None


def _reads(loops: Sequence[For], inner: Stmt, written: frozenset[Buffer]) -> list[Read]:
    """The distinct reads of global memory by results, which lie in registers; none where there is one write."""
    conds, store = _parts(inner)
    if store is None or store.buffer.storage != "global" or prod([x.extent for x in loops]) == 1:
        return []
    certain = list(certain_reads(store.value))
    if not any(e.buffer.storage == "local" for e in certain):
        return []
    guards = frozenset().union(*map(free_vars, conds))
    found: list[Read] = []
    for e in certain:
        if e.buffer.storage == "global" and e.buffer not in written and not any(same(e, x.load) for x in found):
            found.append(Read(e, guards | free_vars(e.index)))
    return found if all(not loads(x.load.index) for x in found) else []


def certain_reads(e: Expr) -> Iterator[BufferLoad]:
    """The reads that a value always makes."""
    match e:
        case BufferLoad():
            yield e
        case Binary() | Cast() | Call() if not (isinstance(e, Call) and e.func == "if_then_else"):
            for x in children(e):
                yield from certain_reads(x)


def loads(e: Expr) -> bool:
    """Whether an expression reads memory."""
    return any(isinstance(x, BufferLoad) for x in walk(e))


def in_two(loops: Sequence[For], inner: Stmt, reads: Sequence[Read]) -> Stmt:
    """Loops around a statement, first with all reads alone, then with the statement, which has what they read."""
    first = [Buffer(f"{r.load.buffer.name}_first", r.load.dtype, _shape(r.loops(loops)), "local") for r in reads]
    places = [BufferLoad(b, iteration(r.loops(loops))) for b, r in zip(first, reads, strict=True)]

    def held(e: Expr) -> Expr | None:
        found = zip(places, reads, strict=True) if isinstance(e, BufferLoad) else ()
        return next((at for at, r in found if same(e, r.load)), None)

    filled = [
        nested(r.loops(loops), _guarded(inner, Store(at.buffer, at.index, r.load)))
        for at, r in zip(places, reads, strict=True)
    ]
    out = seq(*filled, nested(loops, map_exprs(inner, lambda e: transform(e, held))))
    for buffer in first:
        out = Alloc(buffer, out)
    return out


def _shape(loops: Sequence[For]) -> tuple[int, ...]:
    return tuple([x.extent for x in loops]) or (1,)


def _guarded(inner: Stmt, store: Store) -> Stmt:
    return If(inner.cond, store) if isinstance(inner, If) else store
