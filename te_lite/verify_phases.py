"""Which statements of a kernel's body may run, in two threads, between the same two barriers?

The body of a kernel has one answer for each part: what stands before its first barrier, what stands behind its last
one, and whether there is a way through it without any.  What stands behind the last barrier of one part meets what
stands before the first one of the next, and the end of a loop's body meets its beginning.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import reduce

from .stmt import Alloc, Barrier, For, ForKind, If, Seq, Stmt, ThreadReduce

Statements = frozenset[int]
"""Statements by identity."""


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
        self._together: dict[int, set[int]] = {}
        self._part(body)

    def meet(self, some: Iterable[int], others: set[int]) -> bool:
        """Whether one of `some` statements may run beside one of the `others`."""
        return any(not others.isdisjoint(self._together.get(s, ())) for s in some)

    def _part(self, s: Stmt) -> _Part:
        match s:
            case Barrier():
                return _Part(free=False)
            case ThreadReduce():
                return self._then(self._single(s), _Part(free=False))
            case Seq(stmts=stmts):
                return reduce(self._then, map(self._part, stmts), _Part())
            case If(then=then):
                inner = self._part(then)
                return self._then(self._single(s), _Part(inner.before, inner.behind))
            case For(kind=ForKind.THREAD, body=body) | Alloc(body=body):
                return self._part(body)
            case For(body=body):
                return self._again(self._part(body))
        return self._single(s)

    def _single(self, s: Stmt) -> _Part:
        own = frozenset([id(s)]) if id(s) in self._among else frozenset[int]()
        return self._again(_Part(own, own))

    def _then(self, a: _Part, b: _Part) -> _Part:
        """One part after the other."""
        self._join(a.behind, b.before)
        before = a.before | b.before if a.free else a.before
        behind = a.behind | b.behind if b.free else b.behind
        return _Part(before, behind, a.free and b.free)

    def _again(self, a: _Part) -> _Part:
        """A part that runs several times, or in several threads."""
        self._join(a.behind, a.before)
        return a

    def _join(self, some: Statements, others: Statements) -> None:
        if some and others:
            for s in some:
                self._together.setdefault(s, set()).update(others)
            for s in others:
                self._together.setdefault(s, set()).update(some)
