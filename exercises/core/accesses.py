"""Every access of a lowered program: the indices in the order of its loops, lines fetched, banks asked, threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.element import Buffer, BufferLoad
from te_lite.expr import Expr
from te_lite.stmt import For, LoweredFunc, Stmt, Store, bodies
from te_lite.swizzle import bank_conflicts
from te_lite.verify_points import value_at
from te_lite.visit import walk

WARP = 32


@dataclass(frozen=True)
class Access:
    """One load or store in the program's text, with the loops around it, outermost first."""

    buffer: Buffer
    index: Expr
    loops: tuple[For, ...]

    def indices(self) -> np.ndarray:
        """The element of every turn of the loops, in their order; guards are not looked at."""
        return self._at({})

    def of_warp(self) -> np.ndarray:
        """The elements that the first 32 threads of the block touch while all other loops stand at 0."""
        threads = {loop.tag: loop for loop in self.loops if loop.tag.startswith("threadIdx")}
        sizes = [threads[t].extent if t in threads else 1 for t in ("threadIdx.x", "threadIdx.y", "threadIdx.z")]
        lane, place = np.arange(min(WARP, int(np.prod(sizes)))), {}
        for tag, size in zip(("threadIdx.x", "threadIdx.y", "threadIdx.z"), sizes, strict=True):
            if tag in threads:
                place[threads[tag].var] = lane % size
            lane = lane // size
        rest = {loop.var: 0 for loop in self.loops if loop.var not in place}
        return np.broadcast_to(value_at(self.index, rest | place), len(lane))

    def _at(self, values: dict[Any, Any]) -> np.ndarray:
        sizes = [loop.extent for loop in self.loops]
        grid = np.indices(sizes).reshape(len(sizes), -1)
        points = {loop.var: turns for loop, turns in zip(self.loops, grid, strict=True)}
        return np.broadcast_to(value_at(self.index, values | points), grid.shape[1])


def accesses(func: LoweredFunc) -> list[Access]:
    """All of a program, loads of a statement before its store."""
    return list(_accesses(func.body, ()))


def _accesses(stmt: Stmt, loops: tuple[For, ...]) -> Iterator[Access]:
    if isinstance(stmt, Store):
        for e in (*walk(stmt.value), *walk(stmt.index)):
            if isinstance(e, BufferLoad):
                yield Access(e.buffer, e.index, loops)
        yield Access(stmt.buffer, stmt.index, loops)
    inner = (*loops, stmt) if isinstance(stmt, For) else loops
    for body in bodies(stmt):
        yield from _accesses(body, inner)


def lines_fetched(found: list[Access], lines: int, line_bytes: int = 64) -> int:
    """How many lines are fetched when the accesses of one statement go through a cache that keeps `lines` of them.

    The cache drops the line that was used longest ago.
    """
    streams = [a.indices() * np.dtype(a.buffer.dtype).itemsize // line_bytes for a in found]
    cache: OrderedDict[tuple[int, int], None] = OrderedDict()
    fetched = 0
    for turn in np.stack(streams, axis=1).tolist():
        for key in enumerate(turn):
            fetched += key not in cache
            cache[key] = None
            cache.move_to_end(key)
            if len(cache) > lines:
                cache.popitem(last=False)
    return fetched


def conflicts(access: Access) -> int:
    """How often a bank of shared memory is asked at once by the threads of a warp."""
    size = np.dtype(access.buffer.dtype).itemsize
    return bank_conflicts((access.of_warp() * size).tolist(), size)


def lines_of_warp(access: Access, line_bytes: int = 128) -> int:
    """How many lines of global memory the threads of a warp touch at once."""
    return len(np.unique(access.of_warp() * np.dtype(access.buffer.dtype).itemsize // line_bytes))
