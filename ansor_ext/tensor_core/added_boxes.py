"""Arrays that products are added to, fetched by the copy engine into the boxes that results are stored from.

    before the products of a part:  wait until the engine has read all boxes; fetch R into the first ones
    for box:  wait until R has arrived; place[i, j] = f(d[j, i], place[i, j]); all threads meet; have it stored
              wait until the engine has read it; fetch R of a box further on into its place

Threads that read such an array themselves ask for some bytes of many rows, and wait for them when products are done.
A box of R comes while the tiles of the part do, and takes no room of its own: each thread replaces what it reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from te_lite.expr.expr import BufferLoad, Expr, as_expr, binary, same
from te_lite.expr.simplify import Simplifier
from te_lite.expr.visit import walk
from te_lite.loops.stmt import Buffer, For, Stmt, Store, seq

from .copy_boxes import Box
from .instructions import RingCall


@dataclass(frozen=True)
class Fetching:
    """Where boxes may be fetched: in the `part`-th part that a group computes, with `room` bytes for those of all."""

    part: Expr
    room: int


@dataclass(frozen=True)
class AddedBoxes:
    """Boxes of the array of `load`, `count` of a part, of which a group has some `places` in shared memory.

    A thread reads two neighbours to `pair`; `barriers` say what has arrived, `part` which one of its group's it is.
    """

    load: BufferLoad
    count: int
    places: int
    pair: Buffer
    barriers: Buffer
    part: Expr

    def barrier(self, place: Expr) -> BufferLoad:
        return BufferLoad(self.barriers, place)

    def fetch(self, box: Box, to: BufferLoad, at: Sequence[Expr], place: Expr, nbytes: int) -> Stmt:
        """One thread has a box fetched."""
        whole, full = replace(box, buffer=self.load.buffer), self.barrier(place)
        call = RingCall(f"box_fetch_{len(at)}d", (to, full, *at[::-1]), box=whole)
        return seq(RingCall("ring_expect", (full, as_expr(nbytes))), call)

    def wait(self, number: Expr, place: Expr, ranges: Simplifier) -> RingCall:
        """All threads of a group wait for the box of a number."""
        before = binary("*", self.part, self.count // self.places)
        parity = binary("%", binary("+", before, binary("//", number, self.places)), 2)
        return RingCall("ring_await", (self.barrier(place), ranges.simplify(parity)))

    def read(self, pair: For, to: Store) -> Stmt:
        """What a thread replaces of a box, which it reads before."""
        return replace(pair, body=Store(self.pair, pair.var, BufferLoad(to.buffer, to.index)))


def added_boxes(store: Store, count: int, nbytes: int, groups: int, fetching: Fetching) -> AddedBoxes | None:
    """Boxes of so many bytes of an array that is read where a result is stored, alone of its size; None without."""
    result, loads = store.buffer, list[BufferLoad]()
    for x in walk(store.value):
        if isinstance(x, BufferLoad) and x.buffer.storage == "global" and x.buffer.size >= result.size:
            loads += [] if any(same(x, y) for y in loads) else [x]
    room = fetching.room // (groups * nbytes)
    places = max([n for n in range(1, count + 1) if count % n == 0 and n <= room], default=0)
    if len(loads) != 1 or not places or not _alike(loads[0], store):
        return None
    pair = Buffer("added", loads[0].buffer.dtype, (2,), "local")
    arrived = Buffer("arrived", "int64", (groups * places,), "shared")
    return AddedBoxes(loads[0], count, places, pair, arrived, fetching.part)


def _alike(load: BufferLoad, store: Store) -> bool:
    """Whether what is read lies as what is stored, and is of the same elements: a thread finds it in a box of these."""
    x, y = load.buffer, store.buffer
    return (x.shape, x.dtype) == (y.shape, y.dtype) and same(load.index, store.index)
