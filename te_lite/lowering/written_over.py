"""Which arguments of a program may lie where a result lies: each element is written over the one it was read for.

    for i in 0..n:  y[i] = f(x[i], z[i // 4])          x and y may be one memory; z and y may not

The last nest that reads `x` must be the one that writes `y`, and read it nowhere but in the value that is stored, at
the place where that is stored; and no two iterations of its loops may store the same element.  Then each element of `x`
is read before it is overwritten, and by nobody after, in whatever order threads run and compilers put what does not
depend on each other: what is stored depends on it.  Nests before that one may read `x` as they like, they have ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from math import prod

from ..expr.element import Buffer, BufferLoad
from ..expr.expr import Expr
from ..expr.node import same
from ..expr.visit import walk
from ..loops.stmt import For, LoweredFunc, Stmt, Store, bodies, exprs_of, flattened, stmts_of, written_by
from ..meaning.independent import apart

Pairs = tuple[tuple[int, int], ...]


def written_over(func: LoweredFunc) -> Pairs:
    """Pairs `(result, argument)` of positions in `func.args`: the program is right where both lie at one address.

    Of several pairs with one result, or with one argument, one may be made use of.
    """
    pairs = [(j, n) for j, a in enumerate(func.args) for n, b in enumerate(func.args) if j != n and _alike(a, b)]
    if not pairs:
        return ()
    nests = list(flattened(func.body, [], lambda buffer: buffer.scope == "global"))
    stored = [{b for s in stmts_of(nest) for b in written_by(s)} for nest in nests]
    read = [{e.buffer for e in _loads(nest)} for nest in nests]
    last = {b: k for k, buffers in enumerate(read) for b in buffers}
    sole = {j: _sole_store(nests, stored, func.args[j]) for j in dict.fromkeys([j for j, _ in pairs])}
    found = list[tuple[int, int]]()
    for j, n in pairs:
        at, store = sole[j]
        argument = func.args[n]
        given = store is not None and last.get(argument) == at and not any(argument in buffers for buffers in stored)
        if store is not None and given and _read_in_place(nests[at], store, argument):
            found.append((j, n))
    return tuple(found)


def _sole_store(
    nests: Sequence[Stmt], stored: Sequence[Collection[Buffer]], result: Buffer
) -> tuple[int, Store | None]:
    """The nest that alone writes a buffer, and the statement in it; none where an element is stored twice."""
    writers = [k for k, buffers in enumerate(stored) if result in buffers]
    store = _only_store(nests[writers[0]], result) if len(writers) == 1 else None
    return (writers[0], store) if store is not None and _once(nests[writers[0]], store) else (-1, None)


def _alike(a: Buffer, b: Buffer) -> bool:
    return a.size == b.size and a.dtype == b.dtype


def _loads(nest: Stmt) -> Iterator[BufferLoad]:
    """All that a nest reads, indices of what it reads included."""
    for s in stmts_of(nest):
        for e in exprs_of(s):
            yield from _loads_of(e)


def _loads_of(e: Expr) -> list[BufferLoad]:
    return [x for x in walk(e) if isinstance(x, BufferLoad)]


def _only_store(nest: Stmt, result: Buffer) -> Store | None:
    """The statement that alone writes a result, element by element."""
    writers = [s for s in stmts_of(nest) if result in written_by(s)]
    return writers[0] if len(writers) == 1 and isinstance(writers[0], Store) else None


def _read_in_place(nest: Stmt, store: Store, argument: Buffer) -> bool:
    """Whether a nest reads an argument for the element that it stores at its place, and for nothing else."""
    here = [e for e in _loads_of(store.value) if e.buffer is argument]
    everywhere = [e for e in _loads(nest) if e.buffer is argument]
    return len(here) == len(everywhere) and all(same(e.index, store.index) for e in here)


def _once(nest: Stmt, store: Store) -> bool:
    """Whether no element is stored twice.

    So it is where there are no more iterations than elements, all of which a program stores, and where the iterations
    of every loop around it touch elements of their own.
    """
    around = _around(nest, store)
    if prod([loop.extent for loop in around]) == store.buffer.size:
        return True
    return all(apart(loop, [store.buffer]) for loop in around)


def _around(s: Stmt, store: Store) -> list[For]:
    """The loops around a statement, which is inside of `s`."""
    while s is not store:
        inside = next(b for b in bodies(s) if any(x is store for x in stmts_of(b)))
        if isinstance(s, For):
            return [s, *_around(inside, store)]
        s = inside
    return []
