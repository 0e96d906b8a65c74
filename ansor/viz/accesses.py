"""Every access of a lowered program with the loops around it, and which elements a warp touches at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.expr.element import Buffer, BufferLoad
from te_lite.expr.expr import Expr
from te_lite.expr.visit import walk
from te_lite.loops.stmt import For, ForKind, If, Instruction, LoweredFunc, Stmt, Store, bodies, exprs_of
from te_lite.verify.verify_points import value_at

from .banks import bank_conflicts

WARP = 32
AXES = ("threadIdx.x", "threadIdx.y", "threadIdx.z")
MOST_BYTES = 16
"""Of one access of a thread."""
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Access:
    """One load or store in the program's text, with the loops and guards around it, outermost first.

    Of a load of matrices the first `rows` threads give the address of 16 bytes each.
    """

    buffer: Buffer
    index: Expr
    loops: tuple[For, ...]
    guards: tuple[Expr, ...] = ()
    writes: bool = False
    rows: int = 0

    def indices(self) -> Array:
        """The element of every iteration of the loops, in their order; guards are not looked at."""
        sizes = [loop.extent for loop in self.loops]
        grid = np.indices(sizes).reshape(len(sizes), -1)
        points = {loop.var: turns for loop, turns in zip(self.loops, grid, strict=True)}
        return np.broadcast_to(value_at(self.index, points), grid.shape[1])

    def of_warp(self, lane: int = 0) -> Array:
        """The elements that the first 32 threads of the block touch while all other loops stand at 0, those of
        vectors at `lane`; guards are not looked at."""
        threads = self._threads()
        return np.broadcast_to(value_at(self.index, self._turns(threads, lane)), len(threads))

    def _threads(self) -> Array:
        extents = [loop.extent for loop in self.loops if loop.tag in AXES]
        return np.arange(min(self.rows or WARP, int(np.prod(extents))))

    def _turns(self, threads: Array, lane: int) -> dict[Any, Any]:
        place: dict[Any, Any] = {}
        for tag in AXES:
            for loop in [x for x in self.loops if x.tag == tag]:
                place[loop.var], threads = threads % loop.extent, threads // loop.extent
        vectors = {loop.var: lane for loop in self.loops if loop.kind is ForKind.VECTORIZED}
        return {loop.var: 0 for loop in self.loops} | vectors | place

    @property
    def nbytes(self) -> int:
        """The bytes that a thread asks for at once: 16 of a load of matrices, a vector where it lies together."""
        size = np.dtype(self.buffer.dtype).itemsize
        width = next((loop.extent for loop in self.loops if loop.kind is ForKind.VECTORIZED), 1)
        beside = bool((self.of_warp(width - 1) - self.of_warp() == width - 1).all())
        return MOST_BYTES if self.rows else size * width if beside and size * width <= MOST_BYTES else size

    def asked(self) -> dict[int, int]:
        """The first byte that each thread of the first warp asks for, in the first iteration of all other loops;
        without those that a guard holds back.
        """
        threads = self._threads()
        at, keep = self._turns(threads, 0), np.ones(len(threads), bool)
        for guard in self.guards:
            keep &= np.broadcast_to(value_at(guard, at), len(threads))
        starts = self.of_warp() * np.dtype(self.buffer.dtype).itemsize
        return {int(t): int(start) for t, start in zip(threads[keep], starts[keep], strict=True)}

    @property
    def conflicts(self) -> int:
        """How often shared memory is asked for what the first warp asks for at once."""
        return bank_conflicts(self.asked().values(), self.nbytes)


def accesses(func: LoweredFunc) -> list[Access]:
    """All of a program, loads of a statement before its store."""
    return list(_accesses(func.body, (), ()))


def _accesses(stmt: Stmt, loops: tuple[For, ...], guards: tuple[Expr, ...]) -> Iterator[Access]:
    match stmt:
        case Store(buffer=buffer, index=index, value=value):
            for e in (*walk(value), *walk(index)):
                if isinstance(e, BufferLoad):
                    yield Access(e.buffer, e.index, loops, guards)
            yield Access(buffer, index, loops, guards, writes=True)
        case Instruction(rows=rows) if rows:
            row = next(touch.first for touch in stmt.touches() if touch.storage == "shared")
            yield Access(row.buffer, row.index, loops, guards, rows=rows)
        case _:
            for e in [x for own in exprs_of(stmt) for x in walk(own) if isinstance(x, BufferLoad)]:
                yield Access(e.buffer, e.index, loops, guards)
    inner = (*loops, stmt) if isinstance(stmt, For) else loops
    held = (*guards, stmt.cond) if isinstance(stmt, If) else guards
    for body in bodies(stmt):
        yield from _accesses(body, inner, held)
