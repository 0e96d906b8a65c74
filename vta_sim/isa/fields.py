"""The layout of the 128 bits of an instruction and of the 32 bits of a micro-op.

A machine reads instructions as two little-endian 64-bit words; no field crosses from one to the other.  The widths of
indices and factors follow from the depths of the memories.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.config import LOOP_BITS, Config
from ..core.kinds import Deps, Memory

Words = np.ndarray[Any, np.dtype[np.uint64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class BitField:
    """`width` bits from bit `low` of the instruction; two's complement when `signed`."""

    name: str
    low: int
    width: int
    signed: bool = False

    @property
    def range(self) -> tuple[int, int]:
        """The smallest and the largest number that the field holds."""
        if self.signed:
            return -(1 << self.width - 1), (1 << self.width - 1) - 1
        return 0, (1 << self.width) - 1

    def extract(self, words: Words) -> Ints:
        """The field of every instruction: words [n, 2] to int64 [n]."""
        mask = np.uint64((1 << self.width) - 1)
        value: Ints = ((words[:, self.low // 64] >> np.uint64(self.low % 64)) & mask).astype(np.int64)
        if self.signed:
            value -= (value >> (self.width - 1)) << self.width
        return value

    def insert(self, words: Words, value: Ints) -> None:
        """Write int64 [n], already known to fit, into words [n, 2] that hold zeros there."""
        mask = np.int64((1 << self.width) - 1)
        words[:, self.low // 64] |= (value & mask).astype(np.uint64) << np.uint64(self.low % 64)


@dataclass(frozen=True)
class Formats:
    """The fields of each format.  `uop` counts from the lowest bit of a micro-op."""

    header: tuple[BitField, ...]
    mem: tuple[BitField, ...]
    gemm: tuple[BitField, ...]
    alu: tuple[BitField, ...]
    uop: tuple[BitField, ...]


def _row(low: int, *named: tuple[str, int]) -> tuple[BitField, ...]:
    out = []
    for name, width in named:
        out.append(BitField(name, low, width, signed=name == "imm"))
        low += width
    return tuple(out)


_MEM = (
    _row(7, ("memory", 3), ("sram_base", 16), ("dram_base", 32))
    + _row(64, ("y_size", 16), ("x_size", 16), ("x_stride", 16))
    + _row(112, ("y_pad_0", 4), ("y_pad_1", 4), ("x_pad_0", 4), ("x_pad_1", 4))
)


@lru_cache(maxsize=64)
def formats(config: Config) -> Formats:
    """The formats of a machine; those of the 64 machines asked for last are remembered."""
    acc, inp, wgt, uop = (config.index_bits(m) for m in (Memory.ACC, Memory.INP, Memory.WGT, Memory.UOP))
    src = max(acc, inp)
    loops = _row(
        7, ("reset", 1), ("uop_bgn", uop), ("uop_end", uop + 1), ("iter_out", LOOP_BITS), ("iter_in", LOOP_BITS)
    )
    factors = [("dst_factor_out", acc), ("dst_factor_in", acc)]
    gemm = [("src_factor_out", inp), ("src_factor_in", inp), ("wgt_factor_out", wgt), ("wgt_factor_in", wgt)]
    alu = [("src_factor_out", src), ("src_factor_in", src), ("alu_opcode", 3), ("use_imm", 1), ("imm", 16)]
    return Formats(
        header=_row(0, ("opcode", 3), *((str(bit.name).lower(), 1) for bit in Deps)),
        mem=_MEM,
        gemm=loops + _row(64, *factors, *gemm),
        alu=loops + _row(64, *factors, *alu),
        uop=_row(0, ("dst", acc), ("src", src), ("wgt", wgt)),
    )
