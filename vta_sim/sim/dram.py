"""The memory outside the chip: pages handed out by first fit, and addresses checked against what was handed out.

The byte address of page k is (k + 1) * 4096, so 0 is never valid.  Instructions name elements: the element address is
the byte address divided by the size of an element.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.config import PAGE_BYTES
from ..core.errors import MachineError
from ..isa.fields import Ints

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, eq=False)
class Buffer:
    """A piece of DRAM: its first byte address, and its bytes, which the host and the machine share."""

    address: int
    data: Bytes = field(repr=False)

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.data)

    def view(self, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """The beginning of the buffer as an array that shares its memory."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize
        law = "the array must fit the buffer"
        require(count <= self.size, MachineError, "DRAM buffer", law, array_bytes=count, buffer_bytes=self.size)
        out: np.ndarray[Any, Any] = self.data[:count].view(dtype).reshape(shape)
        return out

    def write(self, array: np.ndarray[Any, Any]) -> None:
        """Copy an array to the beginning of the buffer."""
        self.view(array.dtype, array.shape)[...] = array


class Dram:
    """Buffers by address."""

    def __init__(self) -> None:
        self._pages = 0
        self._free: list[tuple[int, int]] = []  # (pages, first page), sorted
        self._sizes: dict[int, int] = {}  # address -> pages
        self._addresses: list[int] = []  # sorted
        self._buffers: dict[int, Buffer] = {}

    def alloc(self, size: int) -> Buffer:
        """A buffer of `size` bytes that hold zeros.  Raises MachineError unless `size` is positive."""
        require(size > 0, MachineError, "DRAM", "a buffer needs at least one byte", size=size)
        pages = -(-size // PAGE_BYTES)
        k = bisect_right(self._free, (pages, -1))
        if k < len(self._free):
            pages, first = self._free.pop(k)
        else:
            first = self._pages
            self._pages += pages
        buffer = Buffer((first + 1) * PAGE_BYTES, np.zeros(size, np.uint8))
        self._sizes[buffer.address] = pages
        self._buffers[buffer.address] = buffer
        insort(self._addresses, buffer.address)
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Give a buffer back.  Raises MachineError when it is not one of this memory, or was given back before."""
        mine = self._buffers.get(buffer.address) is buffer
        require(mine, MachineError, "DRAM", "only a living buffer can be freed", address=hex(buffer.address))
        del self._buffers[buffer.address]
        self._addresses.remove(buffer.address)
        insort(self._free, (self._sizes.pop(buffer.address), buffer.address // PAGE_BYTES - 1))

    def find(self, start: int, size: int) -> tuple[Buffer, int]:
        """The buffer that holds `size` bytes from an address, and the offset in it.  Raises MachineError."""
        k = bisect_right(self._addresses, start) - 1
        buffer = self._buffers[self._addresses[k]] if k >= 0 else None
        inside = buffer is not None and start + size <= buffer.address + buffer.size
        require(inside, MachineError, "DRAM", f"no buffer holds bytes [{start:#x}, {start + size:#x})")
        assert buffer is not None
        return buffer, start - buffer.address

    def locate(self, start: Ints, size: Ints) -> tuple[list[Buffer], Ints]:
        """As `find`, of int64 [n] each: the buffers and int64 [n] offsets.  Raises MachineError for the first wrong."""
        addresses = np.array(self._addresses, np.int64)
        ends = np.array([a + self._buffers[a].size for a in self._addresses], np.int64)
        which = np.searchsorted(addresses, start, side="right") - 1
        wrong = which < 0
        if len(addresses):
            wrong |= start + size > ends[which]
        for k in np.flatnonzero(wrong)[:1].tolist():
            self.find(int(start[k]), int(size[k]))
        buffers = [self._buffers[a] for a in self._addresses]
        return [buffers[k] for k in which.tolist()], start - addresses[which]
