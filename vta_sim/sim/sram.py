"""The memories on the chip."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..core.config import Config
from ..core.kinds import Memory

FloatArray = np.ndarray[Any, np.dtype[np.float32]]


class Sram:
    """`uop` uint32 [depth], `acc` int32 [depth, batch, block_out]; `inp` and `wgt` hold int8 values as float32.

    Only matrix products read `inp` [depth, batch, block_in] and `wgt` [depth, block_out, block_in], and products of
    floats are the fast ones; see `gemm` for why they are exact.  The memories keep their contents between programs and
    hold zeros at first, where a chip would hold anything.
    """

    def __init__(self, config: Config) -> None:
        def shape(memory: Memory) -> tuple[int, ...]:
            return (config.depth(memory), *config.elem_shape(memory))

        self.uop = np.zeros(shape(Memory.UOP), np.uint32)
        self.inp: FloatArray = np.zeros(shape(Memory.INP), np.float32)
        self.wgt: FloatArray = np.zeros(shape(Memory.WGT), np.float32)
        self.acc = np.zeros(shape(Memory.ACC), np.int32)

    def int8(self, memory: Memory) -> np.ndarray[Any, np.dtype[np.int8]]:
        """A copy of INP or WGT as the numbers that they are."""
        return (self.inp if memory is Memory.INP else self.wgt).astype(np.int8)
