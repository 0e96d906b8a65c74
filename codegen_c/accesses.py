"""Where a buffer is read and written under a statement."""

from __future__ import annotations

from collections.abc import Iterator

from te_lite.expr import BufferLoad, Expr
from te_lite.stmt import Buffer, For, ForKind, Stmt, Store, bodies, exprs_of
from te_lite.visit import children


def accesses(s: Stmt, buffer: Buffer, lane: For | None = None) -> Iterator[tuple[Expr, For | None]]:
    """The indices at which `buffer` is read and written, each with the vector loop around it."""
    if isinstance(s, Store) and s.buffer is buffer:
        yield s.index, lane
    for e in exprs_of(s):
        for index in _loaded(e, buffer):
            yield index, lane
    around = s if isinstance(s, For) and s.kind is ForKind.VECTORIZED else lane
    for b in bodies(s):
        yield from accesses(b, buffer, around)


def _loaded(e: Expr, buffer: Buffer) -> Iterator[Expr]:
    if isinstance(e, BufferLoad) and e.buffer is buffer:
        yield e.index
    for k in children(e):
        yield from _loaded(k, buffer)
