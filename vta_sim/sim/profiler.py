"""Counters of a program: what it moves and computes, without running it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np

from ..core.kinds import Memory, Opcode
from ..isa.columns import Columns
from ..isa.fields import Ints


@dataclass(frozen=True)
class Counters:
    """Bytes moved (padding is free), matrix products without resets, and ALU operations on one element.

    A load of 8-bit accumulators counts the bytes that it fills on the chip, four times those that it reads.
    """

    inp_load_nbytes: int = 0
    wgt_load_nbytes: int = 0
    acc_load_nbytes: int = 0
    uop_load_nbytes: int = 0
    out_store_nbytes: int = 0
    gemm_counter: int = 0
    alu_counter: int = 0

    def __add__(self, other: Counters) -> Counters:
        mine, theirs = asdict(self), asdict(other)
        return Counters(**{key: mine[key] + theirs[key] for key in mine})

    def as_dict(self) -> dict[str, int]:
        """The counters by name."""
        return asdict(self)


def dram_bytes(c: Columns) -> Ints:
    """Bytes that each load and store moves through DRAM, int64 [n]; 0 for others."""
    sizes = np.array([c.config.elem_bytes(memory) for memory in Memory], np.int64)
    moved = c.mem["x_size"] * c.mem["y_size"] * sizes[np.where(c.is_mem, c.mem["memory"], 0)]
    return np.where(c.is_mem, moved, 0)


def count(c: Columns) -> Counters:
    """The counters of a program that runs once."""
    moved, load = dram_bytes(c), c.opcode == Opcode.LOAD
    loaded = {m: int(moved[load & (c.mem["memory"] == m)].sum()) for m in Memory}
    widened = c.config.elem_bytes(Memory.ACC) // c.config.elem_bytes(Memory.ACC_8BIT)
    multiplies = (c.opcode == Opcode.GEMM) & (c.gemm["reset"] == 0)
    return Counters(
        inp_load_nbytes=loaded[Memory.INP],
        wgt_load_nbytes=loaded[Memory.WGT],
        acc_load_nbytes=loaded[Memory.ACC] + widened * loaded[Memory.ACC_8BIT],
        uop_load_nbytes=loaded[Memory.UOP],
        out_store_nbytes=int(moved[c.opcode == Opcode.STORE].sum()),
        gemm_counter=int(c.iterations[multiplies].sum()),
        alu_counter=int(c.iterations[c.opcode == Opcode.ALU].sum()),
    )
