"""Loads and stores: rows of DRAM elements to and from consecutive elements on the chip."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.kinds import Memory, Opcode
from ..isa.columns import Columns
from ..isa.fields import Ints
from .dram import Buffer, Dram
from .sram import Sram

Array = np.ndarray[Any, np.dtype[Any]]

_DTYPES: dict[Memory, np.dtype[Any]] = dict.fromkeys(Memory, np.dtype(np.int8))
_DTYPES |= {Memory.UOP: np.dtype(np.uint32), Memory.ACC: np.dtype(np.int32)}


class Transfers:
    """The loads and stores of a program, their addresses looked up.  Raises MachineError for bytes in no buffer."""

    def __init__(self, c: Columns, sram: Sram, dram: Dram) -> None:
        mem, config = c.mem, c.config
        at = np.flatnonzero(c.is_mem & ~c.is_nop)
        self._sram = sram
        arrays: dict[int, Array] = {Memory.UOP: sram.uop, Memory.WGT: sram.wgt, Memory.INP: sram.inp}
        self._arrays: list[Array] = [arrays.get(m, sram.acc) for m in Memory]
        self._elements = [_element(_DTYPES[m], config.elem_shape(m)) for m in Memory]
        elem = np.array([config.elem_bytes(m) for m in Memory], np.int64)[mem["memory"][at]]
        rows, stride = mem["y_size"][at], mem["x_stride"][at]
        span = (np.maximum(rows - 1, 0) * stride + mem["x_size"][at]) * elem * (rows > 0)
        buffers, offsets = _locate(dram, mem["dram_base"][at] * elem, span)
        self._buffers: dict[int, tuple[Buffer | None, int]] = dict(
            zip(at.tolist(), zip(buffers, offsets.tolist(), strict=True), strict=True)
        )
        names = ("memory", "sram_base", "y_size", "x_size", "x_stride", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
        columns = zip(*(mem[name][at].tolist() for name in names), strict=True)
        self._rows = dict(zip(at.tolist(), columns, strict=True))
        self._is_load = dict(zip(at.tolist(), (c.opcode[at] == Opcode.LOAD).tolist(), strict=True))

    def run(self, i: int) -> None:
        """Execute instruction i, a load or store of something."""
        if self._is_load[i]:
            self._load(i)
        else:
            self._store(i)

    def _dram_rows(self, i: int, memory: int, rows: int, width: int, stride: int) -> Array:
        """The rows in DRAM as an array [rows, width, *element] that shares their memory."""
        buffer, offset = self._buffers[i]
        assert buffer is not None
        dtype, shape, steps = self._elements[memory]
        out: Array = np.ndarray((rows, width, *shape), dtype, buffer.data, offset, (stride * steps[0], *steps))
        return out

    def _load(self, i: int) -> None:
        memory, base, rows, width, stride, top, bottom, left, right = self._rows[i]
        target = self._arrays[memory]
        all_rows, all_width = top + rows + bottom, left + width + right
        flat = target[base : base + all_rows * all_width]
        framed = flat.reshape(all_rows, all_width, *target.shape[1:])
        if top or bottom or left or right:
            framed[...] = 0
        if rows:
            source = self._dram_rows(i, memory, rows, width, stride)
            framed[top : top + rows, left : left + width] = source

    def _store(self, i: int) -> None:
        _, base, rows, width, stride, *_ = self._rows[i]
        if not rows:
            return
        narrow = self._sram.acc[base : base + rows * width].astype(np.int8)
        source = narrow.reshape(rows, width, *narrow.shape[1:])
        target = self._dram_rows(i, Memory.OUT, rows, width, stride)
        if stride >= width:
            target[...] = source
        else:
            for row in range(rows):
                target[row] = source[row]


def _element(dtype: np.dtype[Any], shape: tuple[int, ...]) -> tuple[np.dtype[Any], tuple[int, ...], tuple[int, ...]]:
    """The type, the shape, and the steps in bytes of an element: to the next element, then along each dimension."""
    steps = [dtype.itemsize]
    for extent in reversed(shape):
        steps.insert(0, steps[0] * extent)
    return dtype, shape, tuple(steps)


def _locate(dram: Dram, start: Ints, span: Ints) -> tuple[list[Buffer | None], Ints]:
    """Buffers and offsets of spans of bytes; an empty span has no buffer."""
    some = np.flatnonzero(span > 0)
    found, offset = dram.locate(start[some], span[some])
    buffers: list[Buffer | None] = [None] * len(span)
    offsets = np.zeros(len(span), np.int64)
    offsets[some] = offset
    for k, buffer in zip(some.tolist(), found, strict=True):
        buffers[k] = buffer
    return buffers, offsets
