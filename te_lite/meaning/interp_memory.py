"""Memory that knows who touched it: every access of a lowered program is checked here.

A buffer is kept with one copy per owner (the lanes outside its Alloc), all in one flat array.  Beside the data
there is a bit per element that says whether it was written, and for every *level* of parallelism around the
accesses the last writer and the reader of each element, stamped with the level's epoch:

    level       agents                  a new epoch starts at
    parallel    the loop's iterations   the loop
    vectorized  the loop's iterations   the loop
    block       blocks of a kernel      the kernel
    thread      all threads             the kernel, a barrier, a thread reduction

Two agents that touch an element in one epoch, at least one of them writing, are a race.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

from ..loops.stmt import Buffer
from .interp_expr import Code, Mask, Value

Run = Callable[[Mask], None]


class Level:
    """`count` agents; `who` is the agent of each lane; `written` are the buffers they store to."""

    def __init__(self, name: str, who: Value, count: int, written: frozenset[Buffer]) -> None:
        self.name, self.who, self.count, self.written = name, who, count, written
        self.base: Value = np.int64(0)
        self._epoch = 0

    def advance(self, where: Mask = None) -> None:
        """Start a new epoch (of the agents `where`)."""
        self._epoch += 1
        new = np.int64(self._epoch * (self.count + 1))
        self.base = new if where is None else np.where(where, new, self.base)

    def race(self) -> str:
        since = " since the last barrier" if self.name == "thread" else ""
        return f"race: another {self.name} lane wrote or read the element{since}"


class Memory:
    """The storage of one buffer: `copies` of it; the copy of a lane starts at `offset` (None: 0).

    It belongs to one agent of the outer `depth` levels, which therefore need no watch.
    """

    def __init__(self, buffer: Buffer, copies: int = 1, offset: Value = None, depth: int = 0) -> None:
        self.buffer, self.offset, self.depth = buffer, offset, depth
        self._total = buffer.size * copies
        self._stamps: dict[tuple[Level, str], Any] = {}
        self.data: Any = None
        self.written: Any = None

    def bind(self, data: Any, is_input: bool) -> None:
        """Use the elements of an argument; those of an input are written already."""
        self.data = data
        self.written = None if is_input else np.zeros(data.size, bool)

    def allocate(self) -> None:
        """Fresh elements, none written.  Who touched the old ones stays known: the place may be the same."""
        self.data = np.empty(self._total, self.buffer.dtype)
        self.written = np.zeros(self._total, bool)

    def stamps(self, level: Level, kind: str) -> Any:
        key = (level, kind)
        if key not in self._stamps:
            self._stamps[key] = np.full(self.data.size, -1, np.int64)
        return self._stamps[key]


class ActiveLanes(Protocol):
    """A statement within its lanes; `shape` is the lanes', innermost loop first."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    def full(self, x: Value, mask: Mask) -> Value:
        """`x` in every lane, or in the active ones as a one-dimensional array."""
        ...

    def fault(self, law: str, bad: Value, mask: Mask, buffer: Buffer, index: Value) -> NoReturn:
        """Raise InterpError for the first bad lane; under a mask `bad` and `index` are of the active lanes."""
        ...


def load_code(place: ActiveLanes, mem: Memory, index: Code, levels: tuple[Level, ...]) -> Code:
    """Checked reads of `mem[index]`, watched at `levels`."""
    if place.shape == ():
        return Code(_scalar_load(place, mem, index), pure=False)
    spread = bool(levels)
    address = _address(place, mem, index, spread)

    def run(mask: Mask) -> Value:
        addr = address(mask)
        if mem.written is not None:
            known = mem.written[addr]
            if not known.all():
                place.fault("reads an uninitialised element", ~known, mask, mem.buffer, addr % mem.buffer.size)
        for level in levels:
            _note_read(place, mem, level, addr, mask)
        value = mem.data[addr]
        if mask is None:
            return value
        out = np.zeros(place.shape, value.dtype)
        out[np.broadcast_to(mask, place.shape)] = value
        return out

    return Code(run, pure=False)


def store_code(place: ActiveLanes, mem: Memory, index: Code, value: Code, levels: tuple[Level, ...]) -> Run:
    """Checked writes of `value` to `mem[index]`, watched at `levels`; the value is computed first."""
    if place.shape == ():
        return _scalar_store(place, mem, index, value)
    address = _address(place, mem, index, spread=True)

    def run(mask: Mask) -> None:
        new = value.run(mask)
        addr = address(mask)
        for level in levels:
            _note_write(place, mem, level, addr, mask)
        mem.data[addr] = new if mask is None else place.full(new, mask)
        mem.written[addr] = True

    return run


def _address(place: ActiveLanes, mem: Memory, index: Code, spread: bool) -> Callable[[Mask], Value]:
    """Positions in `mem.data`: one per active lane if there is a mask or `spread`, else of the index's shape."""
    size, offset = mem.buffer.size, mem.offset

    def compute(mask: Mask) -> Value:
        idx = index.run(mask)
        flat = spread or mask is not None
        if flat:
            idx = place.full(idx, mask)
        if idx.min() < 0 or idx.max() >= size:
            place.fault("index out of bounds", (idx < 0) | (idx >= size), mask, mem.buffer, idx)
        idx = idx.astype(np.intp)
        return idx if offset is None else idx + (place.full(offset, mask) if flat else offset)

    if not index.fixed:
        return compute
    idx = index.run(None)
    if idx.min() < 0 or idx.max() >= size:
        return compute
    known = compute(None)
    return lambda mask: known if mask is None else place.full(known, mask)


def _scalar_load(place: ActiveLanes, mem: Memory, index: Code) -> Callable[[Mask], Value]:
    size, position = mem.buffer.size, index.run

    def run(mask: Mask) -> Value:
        i = int(position(None))
        if not 0 <= i < size:
            place.fault("index out of bounds", np.True_, None, mem.buffer, np.int64(i))
        if mem.written is not None and not mem.written[i]:
            place.fault("reads an uninitialised element", np.True_, None, mem.buffer, np.int64(i))
        return mem.data[i]

    return run


def _scalar_store(place: ActiveLanes, mem: Memory, index: Code, value: Code) -> Run:
    size, position, new = mem.buffer.size, index.run, value.run

    def run(mask: Mask) -> None:
        x = new(None)
        i = int(position(None))
        if not 0 <= i < size:
            place.fault("index out of bounds", np.True_, None, mem.buffer, np.int64(i))
        mem.data[i] = x
        mem.written[i] = True

    return run


def _me(place: ActiveLanes, level: Level, mask: Mask) -> tuple[Value, Value]:
    """The epoch's first stamp and the stamp of each active lane."""
    base = level.base if level.base.ndim == 0 else place.full(level.base, mask)
    return base, place.full(level.base + level.who, mask)


def _note_read(place: ActiveLanes, mem: Memory, level: Level, addr: Value, mask: Mask) -> None:
    base, me = _me(place, level, mask)
    last = mem.stamps(level, "write")[addr]
    race = (last >= base) & (last != me)
    if race.any():
        place.fault(f"reads in a {level.race()}", race, mask, mem.buffer, addr % mem.buffer.size)
    readers = mem.stamps(level, "read")
    last = readers[addr]
    readers[addr] = me
    many = (readers[addr] != me) | ((last >= base) & (last != me))
    if many.any():
        readers[addr[many]] = (base if base.ndim == 0 else base[many]) + level.count


def _note_write(place: ActiveLanes, mem: Memory, level: Level, addr: Value, mask: Mask) -> None:
    base, me = _me(place, level, mask)
    writers, readers = mem.stamps(level, "write"), mem.stamps(level, "read")
    for last in (writers[addr], readers[addr]):
        race = (last >= base) & (last != me)
        if race.any():
            place.fault(f"writes in a {level.race()}", race, mask, mem.buffer, addr % mem.buffer.size)
    writers[addr] = me
    twice = writers[addr] != me
    if twice.any():
        place.fault(f"{level.name} lanes write the same element", twice, mask, mem.buffer, addr % mem.buffer.size)
