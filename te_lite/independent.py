"""When do the iterations of a loop not depend on each other?  A dependence test on affine sums.

The test is sound, not complete: every access of a buffer that the loop writes must be at `g(v) + outer + inner`,
with the same `g` and `outer` in all of them, where `g` depends on the loop variable only and its values lie farther
apart than the range of the parts `inner` (variables of loops inside and constants).  Then no element is touched
by two iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from .expr import Binary, BufferLoad, Const, Expr, Var
from .interp_expr import Value, evaluate
from .stmt import Alloc, Barrier, Buffer, For, ForKind, Stmt, Store, ThreadReduce, exprs_of, stmts_of
from .visit import children, free_vars, walk

Terms = Mapping[Expr, int]
_MAX_POINTS = 4096


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
    extents: dict[Var, int] = {}
    for s in inside:
        if isinstance(s, For):
            extents[s.var] = max(s.extent, extents.get(s.var, 0))
    groups: dict[Buffer, list[Expr]] = {b: [] for b in written}
    for buffer, index in _accesses(inside):
        if buffer in written:
            groups[buffer].append(index)
    return all(_apart(indices, loop, extents) for indices in groups.values())


def _joins(s: Stmt, private_scopes: tuple[str, ...]) -> bool:
    match s:
        case Barrier() | ThreadReduce():
            return True
        case For(kind=kind):
            return kind in (ForKind.BLOCK, ForKind.THREAD)
        case Alloc(buffer=buffer):
            return buffer.scope not in private_scopes
    return False


def _accesses(inside: tuple[Stmt, ...]) -> Iterator[tuple[Buffer, Expr]]:
    for s in inside:
        if isinstance(s, Store):
            yield s.buffer, s.index
        for e in exprs_of(s):
            for node in walk(e):
                if isinstance(node, BufferLoad):
                    yield node.buffer, node.index


def _apart(indices: list[Expr], loop: For, extents: Mapping[Var, int]) -> bool:
    """The condition of the module's docstring for one buffer."""
    common: tuple[Terms, Terms] | None = None
    low, high = 0, 0
    for k, index in enumerate(indices):
        parts = _parts(index, loop.var, extents)
        if parts is None:
            return False
        mine, outer, lo, hi = parts
        common = common if common is not None else (mine, outer)
        if not (_same_terms(mine, common[0]) and _same_terms(outer, common[1])):
            return False
        low, high = (lo, hi) if k == 0 else (min(low, lo), max(high, hi))
    if common is None or not common[0]:
        return False
    values = {loop.var: np.arange(loop.extent)}
    g = np.sort(sum(evaluate(e, values) * c for e, c in common[0].items()))
    return bool((np.diff(g) > high - low).all())


def _same_terms(a: Terms, b: Terms) -> bool:
    return len(a) == len(b) and all(b.get(e) == c for e, c in a.items())


def _parts(
    index: Expr, var: Var, extents: Mapping[Var, int]
) -> tuple[dict[Expr, int], dict[Expr, int], int, int] | None:
    """`index` as terms of `var`, terms of outer variables, and the bounds of the rest; None if they mix."""
    terms: dict[Expr, int] = {}
    lo = hi = _add_terms(index, 1, terms)
    mine: dict[Expr, int] = {}
    outer: dict[Expr, int] = {}
    for e, c in terms.items():
        used = free_vars(e)
        inner = used & extents.keys()
        if any(isinstance(x, BufferLoad) for x in walk(e)) or (inner and inner != used):
            return None
        if inner:
            bounds = _bounds(e, extents)
            if bounds is None:
                return None
            lo, hi = lo + min(c * b for b in bounds), hi + max(c * b for b in bounds)
        elif var in used:
            if len(used) > 1 or not _total(e):
                return None
            mine[e] = c
        else:
            outer[e] = c
    return mine, outer, lo, hi


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


def _bounds(e: Expr, extents: Mapping[Var, int]) -> tuple[int, int] | None:
    """The extreme values of `e` over the loops of its variables; None if there are too many points to try."""
    if isinstance(e, Var):
        return 0, extents[e] - 1
    used = sorted(free_vars(e), key=lambda v: v.name)
    if np.prod([extents[v] for v in used]) > _MAX_POINTS or not _total(e):
        return None
    grid: dict[Var, Value] = {}
    for k, v in enumerate(used):
        grid[v] = np.arange(extents[v]).reshape([-1 if j == k else 1 for j in range(len(used))])
    value = evaluate(e, grid)
    return int(value.min()), int(value.max())


def _total(e: Expr) -> bool:
    """No division by a variable anywhere in `e`."""
    return all(
        not (isinstance(x, Binary) and x.op in ("//", "%", "/")) or isinstance(children(x)[1], Const) for x in walk(e)
    )
