"""Which statements of a kernel's body may run, in two threads, between the same two barriers?

The body of a kernel has one answer for each part: what stands before its first barrier, what stands behind its last
one, and whether there is a way through it without any.  What stands behind the last barrier of one part meets what
stands before the first one of the next, in the same iterations of all loops around; and the end of a loop's body meets
its beginning, in different iterations of that loop.  Neighbours in a sequence that hold no others meet the same
statements, and one another: one of them stands for all.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby, product

from ..expr.expr import Var
from ..loops.stmt import Alloc, Barrier, For, ForKind, If, Seq, Stmt, ThreadReduce

_OTHERS = Alloc, Barrier, For, If, Seq, ThreadReduce
"""Statements that hold others or end a phase."""

Statements = frozenset[int]
"""Statements by identity."""
Loops = frozenset[Var]
"""Loops by their variables."""


@dataclass(frozen=True, slots=True)
class _Part:
    """`before` the first barrier, `behind` the last one; `free` if there is a way through without any."""

    before: Statements = frozenset()
    behind: Statements = frozenset()
    free: bool = True


class Phases:
    """The pairs of the statements `among` that no barrier keeps apart, under `body`."""

    def __init__(self, body: Stmt, among: Container[int]) -> None:
        self._among = among
        self._together: dict[tuple[int, int], Loops] = {}
        self._same: dict[int, int] = {}
        self._part(body, frozenset())

    def meet(self, some: Iterable[int], others: Iterable[int]) -> Loops | None:
        """The loops that are in the same iteration wherever one of `some` statements meets one of the `others`.

        None where none does.
        """
        alike = [{self._same.get(a, a) for a in each} for each in (some, others)]
        pairs = list(product(*alike))
        found = [self._together[p] for p in pairs if p in self._together]
        return frozenset.intersection(*found) if found else None

    def _part(self, s: Stmt, loops: Loops) -> _Part:
        match s:
            case Barrier():
                return _Part(free=False)
            case ThreadReduce():
                return self._then(self._single(s, loops), _Part(free=False), loops)
            case Seq(stmts=stmts):
                parts = [self._part(x, loops) for x in self._different(stmts)]
                return reduce(lambda a, b: self._then(a, b, loops), parts, _Part())
            case If(then=then):
                inner = self._part(then, loops)
                return self._then(self._single(s, loops), _Part(inner.before, inner.behind), loops)
            case For(kind=ForKind.THREAD, body=body) | Alloc(body=body):
                return self._part(body, loops)
            case For(var=var, body=body):
                return self._again(self._part(body, loops | {var}), loops)
        return self._single(s, loops)

    def _different(self, stmts: Sequence[Stmt]) -> Iterator[Stmt]:
        """Those of a sequence that others do not stand for."""
        for is_other, run in groupby(stmts, lambda x: isinstance(x, _OTHERS)):
            if is_other:
                yield from run
                continue
            leaves = [x for x in run if id(x) in self._among]
            self._same.update({id(x): id(leaves[0]) for x in leaves})
            yield from leaves[:1]

    def _single(self, s: Stmt, loops: Loops) -> _Part:
        own = frozenset([id(s)]) if id(s) in self._among else frozenset[int]()
        return self._again(_Part(own, own), loops)

    def _then(self, a: _Part, b: _Part, loops: Loops) -> _Part:
        """One part after the other."""
        self._join(a.behind, b.before, loops)
        before = a.before | b.before if a.free else a.before
        behind = a.behind | b.behind if b.free else b.behind
        return _Part(before, behind, a.free and b.free)

    def _again(self, a: _Part, loops: Loops) -> _Part:
        """A part that runs several times, or in several threads."""
        self._join(a.behind, a.before, loops)
        return a

    def _join(self, some: Statements, others: Statements, loops: Loops) -> None:
        """Note that statements meet in the same iterations of `loops`; of several such sets the common part counts."""
        for a in some:
            for b in others:
                for pair in ((a, b), (b, a)):
                    self._together[pair] = self._together.get(pair, loops) & loops
