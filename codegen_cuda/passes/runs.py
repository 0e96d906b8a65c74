"""Runs of statements that work on one element of memory, to be computed in a register and stored once.

    O[i] = 0;  O[i] = O[i] + x;  O[i] = O[i] + y;       ->       float sum = 0;  sum += x;  sum += y;  O[i] = sum;

Reductions over constants (the matrices of a Winograd transform) are written out like that by the hundred.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from te_lite.expr.expr import BufferLoad, Expr, same
from te_lite.expr.visit import children
from te_lite.loops.stmt import Buffer, Stmt, Store

SHORTEST = 3


def split_runs(stmts: Sequence[Stmt]) -> Iterator[tuple[Store, ...] | Stmt]:
    """The statements in order, those of each run together."""
    run: list[Store] = []
    for s in stmts:
        if run and isinstance(s, Store) and _continues(run[0], s):
            run.append(s)
            continue
        yield from _closed(run)
        run = []
        if isinstance(s, Store) and s.buffer.storage != "local" and not any(True for _ in reads_of(s.value, s.buffer)):
            run = [s]
        else:
            yield s
    yield from _closed(run)


def _closed(run: list[Store]) -> Iterator[tuple[Store, ...] | Stmt]:
    yield from [tuple(run)] if len(run) >= SHORTEST else run


def _continues(first: Store, s: Store) -> bool:
    """`s` stores the same element and reads no other of the buffer."""
    if s.buffer is not first.buffer or not same(s.index, first.index):
        return False
    return all(same(e.index, first.index) for e in reads_of(s.value, s.buffer))


def reads_of(e: Expr, buffer: Buffer) -> Iterator[BufferLoad]:
    """The reads of `buffer` in `e`, indices of other reads included."""
    stack = [e]
    while stack:
        node = stack.pop()
        if isinstance(node, BufferLoad) and node.buffer is buffer:
            yield node
        stack.extend(children(node))
