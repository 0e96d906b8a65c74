"""When do the iterations of a loop not depend on each other?  A dependence test on affine sums.

The test is sound, not complete: every access of a buffer that the loop writes must be at `g(v) + outer + inner`,
with the same `g` and `outer` in all of them, where `g` depends on the loop variable only, and `inner` on variables
of loops inside and constants.  If all sums of a value of `g` and a value that any `inner` takes are different, then
no element is touched by two iterations.  Where there are too many sums, the values of `g` must lie farther apart
than the range of `inner`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ..expr.expr import Binary, BufferLoad, Const, Expr, Var
from ..expr.visit import children, free_vars, walk
from ..loops.stmt import (
    Alloc,
    Barrier,
    Buffer,
    For,
    ForKind,
    Instruction,
    Stmt,
    Store,
    ThreadReduce,
    exprs_of,
    stmts_of,
)
from .interp_expr import Value, evaluate

Terms = Mapping[Expr, int]
_MAX_SUMS = 1 << 14


def independent(loop: For, private_scopes: tuple[str, ...]) -> bool:
    """Whether the iterations of `loop` touch disjoint elements of every buffer that they write.

    Buffers allocated inside must be of `private_scopes`: an iteration has its own.  False if the loop contains
    anything that joins threads.
    """
    inside = tuple(stmts_of(loop.body))
    if any(_joins(s, private_scopes) for s in inside):
        return False
    private = {s.buffer for s in inside if isinstance(s, Alloc)}
    written = {s.buffer for s in inside if isinstance(s, Store)} - private
    extents = _extents(inside)
    groups: dict[Buffer, list[Expr]] = {b: [] for b in written}
    for buffer, index in _accesses(inside):
        if buffer in written:
            groups[buffer].append(index)
    return all(_apart(indices, loop, extents) for indices in groups.values())


def apart(loop: For, buffers: Iterable[Buffer]) -> set[Buffer]:
    """Those of `buffers`, which are touched in `loop`, of which no element is touched by two of its iterations."""
    inside = tuple(stmts_of(loop.body))
    groups: dict[Buffer, list[Expr]] = {b: [] for b in buffers}
    for buffer, index in _accesses(inside):
        if buffer in groups:
            groups[buffer].append(index)
    extents = _extents(inside)
    return {b for b, indices in groups.items() if _apart(indices, loop, extents)}


def _extents(inside: tuple[Stmt, ...]) -> dict[Var, int]:
    """How far each loop variable runs at most."""
    extents: dict[Var, int] = {}
    for s in inside:
        if isinstance(s, For):
            extents[s.var] = max(s.extent, extents.get(s.var, 0))
    return extents


def _joins(s: Stmt, private_scopes: tuple[str, ...]) -> bool:
    match s:
        case Barrier() | ThreadReduce() | Instruction():
            return True
        case For(kind=kind):
            return kind in (ForKind.BLOCK, ForKind.THREAD)
        case Alloc(buffer=buffer):
            return buffer.storage not in private_scopes
    return False


def _accesses(inside: tuple[Stmt, ...]) -> Iterator[tuple[Buffer, Expr]]:
    for s in inside:
        if isinstance(s, Store):
            yield s.buffer, s.index
        for e in exprs_of(s):
            for node in walk(e):
                if isinstance(node, BufferLoad):
                    yield node.buffer, node.index


@dataclass(frozen=True)
class _Part:
    """The values a sum may take: all of them, or None if they are many; and its bounds."""

    values: Value
    low: int
    high: int


@dataclass(frozen=True)
class _Index:
    """An index as terms of the loop variable, terms of outer variables, and the rest."""

    mine: Terms
    outer: Terms
    inner: _Part


def _apart(indices: list[Expr], loop: For, extents: Mapping[Var, int]) -> bool:
    """The condition of the module's docstring for one buffer."""
    parts: list[_Index] = []
    terms = _Terms(loop.var, extents)
    for index in indices:
        part = terms.parts(index)
        if part is None or not part.mine:
            return False
        if parts and not (_same_terms(part.mine, parts[0].mine) and _same_terms(part.outer, parts[0].outer)):
            return False
        parts.append(part)
    variable = {loop.var: np.arange(loop.extent)}
    g = np.sort(sum(evaluate(e, variable) * c for e, c in parts[0].mine.items()))
    return _sums_differ(g, [p.inner for p in parts])


def _sums_differ(g: Value, parts: list[_Part]) -> bool:
    """Whether no two sums of a value of `g` (sorted) and one of any part are equal."""
    if all(p.values is not None for p in parts):
        inner = np.unique(np.concatenate([p.values for p in parts]))
        if g.size * inner.size <= _MAX_SUMS:
            return bool(np.unique(np.add.outer(g, inner)).size == g.size * inner.size)
    spread = max(p.high for p in parts) - min(p.low for p in parts)
    return bool((np.diff(g) > spread).all())


def _same_terms(a: Terms, b: Terms) -> bool:
    return len(a) == len(b) and all(b.get(e) == c for e, c in a.items())


class _Terms:
    """What the terms of sums depend on, each looked at once."""

    def __init__(self, var: Var, extents: Mapping[Var, int]) -> None:
        self.var = var
        self.extents = extents
        self._known: dict[Expr, _Part | str | None] = {}

    def parts(self, index: Expr) -> _Index | None:
        """`index` split into its parts; None if they mix."""
        terms: dict[Expr, int] = {}
        constant = _add_terms(index, 1, terms)
        mine: dict[Expr, int] = {}
        outer: dict[Expr, int] = {}
        inner = _Part(np.array([constant]), constant, constant)
        for e, c in terms.items():
            if e not in self._known:
                self._known[e] = self._place(e)
            match self._known[e]:
                case None:
                    return None
                case _Part() as part:
                    inner = _plus(inner, part, c)
                case place:
                    (mine if place == "mine" else outer)[e] = c
        return _Index(mine, outer, inner)

    def _place(self, e: Expr) -> _Part | str | None:
        """The values of a term of inner variables, `mine`, `outer`, or None for one that mixes variables."""
        used = free_vars(e)
        inside = used & self.extents.keys()
        if any(isinstance(x, BufferLoad) for x in walk(e)) or not _total(e) or (inside and inside != used):
            return None
        if inside:
            return _range(e, self.extents)
        if self.var in used:
            return "mine" if len(used) == 1 else None
        return "outer"


def _plus(a: _Part, b: _Part, scale: int) -> _Part:
    """`a + b * scale`, taken as independent of each other."""
    ends = (b.low * scale, b.high * scale)
    values = None
    if a.values is not None and b.values is not None and a.values.size * b.values.size <= _MAX_SUMS:
        values = np.unique(np.add.outer(a.values, b.values * scale))
    return _Part(values, a.low + min(ends), a.high + max(ends))


def _add_terms(e: Expr, scale: int, terms: dict[Expr, int]) -> int:
    """Add `e * scale` to a sum of scaled terms; its constant part is returned."""
    match e:
        case Const(value=value):
            return int(value) * scale
        case Binary(op="+", a=a, b=b):
            return _add_terms(a, scale, terms) + _add_terms(b, scale, terms)
        case Binary(op="-", a=a, b=b):
            return _add_terms(a, scale, terms) + _add_terms(b, -scale, terms)
        case Binary(op="*", a=a, b=Const(value=value)) | Binary(op="*", a=Const(value=value), b=a):
            return _add_terms(a, scale * int(value), terms)
    terms[e] = terms.get(e, 0) + scale
    return 0


def _range(e: Expr, extents: Mapping[Var, int]) -> _Part | None:
    """The values of `e` over the loops of its variables; None if there are too many points to try."""
    used = sorted(free_vars(e), key=lambda v: v.name)
    if math.prod(extents[v] for v in used) > _MAX_SUMS:
        return _Part(None, 0, extents[e] - 1) if isinstance(e, Var) else None
    grid: dict[Var, Value] = {}
    for k, v in enumerate(used):
        grid[v] = np.arange(extents[v]).reshape([-1 if j == k else 1 for j in range(len(used))])
    values = np.unique(evaluate(e, grid))
    return _Part(values, int(values[0]), int(values[-1]))


def _total(e: Expr) -> bool:
    """No division by a variable anywhere in `e`."""
    return all(
        not (isinstance(x, Binary) and x.op in ("//", "%", "/")) or isinstance(children(x)[1], Const) for x in walk(e)
    )
