"""The machine one element at a time: the definition that the fast simulator is tested against.

Slow, and meant to be read: each instruction does what its description says, in plain integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.config import Config
from ..core.errors import MachineError
from ..core.kinds import AluOp, Memory
from ..isa.instruction import Alu, Finish, Gemm, Instruction, Load, Store
from ..isa.uop import unpack_uops
from .dram import Dram

_DTYPES = {
    Memory.UOP: np.uint32,
    Memory.WGT: np.int8,
    Memory.INP: np.int8,
    Memory.ACC: np.int32,
    Memory.OUT: np.int8,
    Memory.ACC_8BIT: np.int8,
}


def wrap(value: int, bits: int) -> int:
    """The number in two's complement that has the low `bits` bits of `value`."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def alu(op: AluOp, a: int, b: int) -> int:
    """One operation on int32 numbers.  Of a shift only the low 5 bits of the amount count."""
    match op:
        case AluOp.MIN:
            return min(a, b)
        case AluOp.MAX:
            return max(a, b)
        case AluOp.ADD:
            return wrap(a + b, 32)
        case AluOp.MUL:
            return wrap(a * b, 32)
        case AluOp.SHR:
            return a >> (b & 31) if b >= 0 else wrap(a << (-b & 31), 32)


class NaiveMachine:
    """Memories by name of kind, elements as arrays of integers, and the DRAM that is shared with others."""

    def __init__(self, config: Config, dram: Dram) -> None:
        self.config = config
        self.dram = dram
        self.sram: dict[Memory, np.ndarray[Any, Any]] = {
            m: np.zeros((config.depth(m), *config.elem_shape(m)), _DTYPES[m])
            for m in (Memory.UOP, Memory.WGT, Memory.INP, Memory.ACC)
        }

    def execute(self, program: Sequence[Instruction], order: Iterable[int]) -> None:
        """Run the instructions of a program in the given order."""
        for k in order:
            match program[k].op:
                case Load() as op:
                    self._load(op)
                case Store() as op:
                    self._store(op)
                case Gemm() as op:
                    self._gemm(op)
                case Alu() as op:
                    self._alu(op)
                case Finish():
                    pass

    def _dram_element(self, memory: Memory, address: int) -> np.ndarray[Any, Any]:
        size = self.config.elem_bytes(memory)
        buffer, offset = self.dram.find(address * size, size)
        return buffer.data[offset : offset + size].view(_DTYPES[memory]).reshape(self.config.elem_shape(memory))

    def _at(self, memory: Memory, index: int) -> int:
        depth = self.config.depth(memory)
        require(index < depth, MachineError, memory.name, f"the address must stay below {depth}", found=index)
        return index

    def _load(self, op: Load) -> None:
        if op.x_size == 0:
            return
        target = Memory.ACC if op.memory is Memory.ACC_8BIT else op.memory
        place = op.sram_base
        for y in range(-op.y_pad_0, op.y_size + op.y_pad_1):
            for x in range(-op.x_pad_0, op.x_size + op.x_pad_1):
                inside = 0 <= y < op.y_size and 0 <= x < op.x_size
                value = self._dram_element(op.memory, op.dram_base + y * op.x_stride + x) if inside else 0
                self.sram[target][self._at(target, place)] = value
                place += 1

    def _store(self, op: Store) -> None:
        for y in range(op.y_size):
            for x in range(op.x_size):
                element = self.sram[Memory.ACC][self._at(Memory.ACC, op.sram_base + y * op.x_size + x)]
                target = self._dram_element(Memory.OUT, op.dram_base + y * op.x_stride + x)
                for lane in np.ndindex(target.shape):
                    target[lane] = wrap(int(element[lane]), 8)

    def _iterations(self, op: Gemm | Alu) -> Iterator[tuple[int, int, int]]:
        """The indices (dst, src, wgt) of each iteration, in order."""
        dst, src, wgt = unpack_uops(self.config, self.sram[Memory.UOP][op.uop_bgn : op.uop_end])
        wgt_factor = (op.wgt_factor_out, op.wgt_factor_in) if isinstance(op, Gemm) else (0, 0)
        for y in range(op.iter_out):
            for x in range(op.iter_in):
                for d, s, w in zip(dst.tolist(), src.tolist(), wgt.tolist(), strict=True):
                    yield (
                        d + y * op.dst_factor_out + x * op.dst_factor_in,
                        s + y * op.src_factor_out + x * op.src_factor_in,
                        w + y * wgt_factor[0] + x * wgt_factor[1],
                    )

    def _gemm(self, op: Gemm) -> None:
        acc, config = self.sram[Memory.ACC], self.config
        for d, s, w in self._iterations(op):
            target = acc[self._at(Memory.ACC, d)]
            if op.reset:
                target[...] = 0
                continue
            rows = self.sram[Memory.INP][self._at(Memory.INP, s)].tolist()
            weights = self.sram[Memory.WGT][self._at(Memory.WGT, w)].tolist()
            for b in range(config.batch):
                for o in range(config.block_out):
                    total = int(target[b, o])
                    for k in range(config.block_in):
                        total += rows[b][k] * weights[o][k]
                    target[b, o] = wrap(total, 32)

    def _alu(self, op: Alu) -> None:
        acc = self.sram[Memory.ACC]
        for d, s, _ in self._iterations(op):
            target = acc[self._at(Memory.ACC, d)]
            other = None if op.use_imm else acc[self._at(Memory.ACC, s)].copy()
            for lane in np.ndindex(target.shape):
                b = op.imm if other is None else int(other[lane])
                target[lane] = alu(op.op, int(target[lane]), b)
