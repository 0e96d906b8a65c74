"""Random programs that are legal: no deadlock, no address outside a memory, small enough for the naive machine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vta_sim import Config
from vta_sim.core.kinds import AluOp, Memory, Module
from vta_sim.isa import Alu, Deps, Finish, Gemm, Instruction, Load, Operation, Store, nop, pack_uops
from vta_sim.isa.instruction import module_of
from vta_sim.sim import Dram

CONFIGS = {
    "default": Config(),
    "block 4": Config(log_block=2, log_inp_buff_size=13, log_wgt_buff_size=14, log_acc_buff_size=15),
    "batch 2": Config(log_batch=1, log_block=2, log_inp_buff_size=13, log_wgt_buff_size=16, log_acc_buff_size=15),
    "more inputs": Config(log_block=2, log_inp_buff_size=13, log_wgt_buff_size=15, log_acc_buff_size=14),
    "more accumulators": Config(log_block=2, log_inp_buff_size=12, log_wgt_buff_size=14, log_acc_buff_size=15),
    "batch 4, block 8": Config(log_batch=2, log_block=3),
}
ELEMENTS = 40  # of each memory that a DRAM buffer holds
INDEX = 7  # micro-ops name indices below, so that they collide
UOPS = 24  # places of the micro-op memory that are used


def fill_dram(rng: np.random.Generator, config: Config) -> tuple[Dram, dict[Memory, int]]:
    """A DRAM with a buffer of random elements for each memory, and the first element address of each."""
    dram, base = Dram(), {}
    for memory in Memory:
        size = config.elem_bytes(memory)
        buffer = dram.alloc(ELEMENTS * size)
        buffer.data[...] = rng.integers(0, 256, buffer.size, dtype=np.uint8)
        if memory is Memory.UOP:
            buffer.write(pack_uops(config, *rng.integers(0, INDEX, (3, ELEMENTS))))
        base[memory] = buffer.address // size
    return dram, base


@dataclass
class Stream:
    """Draws one program."""

    rng: np.random.Generator
    config: Config
    base: dict[Memory, int]

    def draw(self, low: int, high: int) -> int:
        """A number from low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def program(self, length: int) -> list[Instruction]:
        out = []
        tokens = {(a, b): 0 for a in Module for b in Module}
        for _ in range(length):
            op = self.operation()
            module = module_of(op)
            before, after = module - 1, module + 1
            chosen = Deps(0)
            for other, side in ((before, "PREV"), (after, "NEXT")):
                if other in list(Module):
                    if tokens[Module(other), module] and self.draw(0, 1):
                        tokens[Module(other), module] -= 1
                        chosen |= Deps[f"POP_{side}"]
                    if self.draw(0, 2) == 0:
                        tokens[module, Module(other)] += 1
                        chosen |= Deps[f"PUSH_{side}"]
            out.append(Instruction(op, chosen))
        return [*out, Instruction(Finish())]

    def operation(self) -> Operation:
        match self.draw(0, 8):
            case 0:
                return nop(Module(self.draw(1, 3)))
            case 1 | 2 | 3:
                return self.load(Memory(self.draw(0, 3)) if self.draw(0, 4) else Memory.ACC_8BIT)
            case 4 | 5:
                return self.store()
            case 6:
                return self.alu()
            case _:
                return self.gemm()

    def _rows(self) -> tuple[int, int, int, int]:
        """Rows, width, stride of a transfer and the first element of a buffer, all inside it."""
        rows, width = self.draw(0, 3), self.draw(0, 4)
        stride = self.draw(0, 8)
        last = max(rows - 1, 0) * stride + width
        return rows, width, stride, self.draw(0, ELEMENTS - last)

    def _place(self, memory: Memory, size: int) -> int:
        """Where on the chip: mostly where others write too, sometimes at the very end."""
        depth = UOPS if memory is Memory.UOP else self.config.depth(memory)
        if self.draw(0, 9) == 0:
            return max(self.config.depth(memory) - size, 0)
        return self.draw(0, max(min(INDEX, depth - size), 0))

    def load(self, memory: Memory) -> Load:
        rows, width, stride, start = self._rows()
        pads = [0 if memory is Memory.UOP or self.draw(0, 1) else self.draw(0, 2) for _ in range(4)]
        size = (rows + pads[0] + pads[1]) * (width + pads[2] + pads[3])
        return Load(memory, self._place(memory, size), self.base[memory] + start, rows, width, stride, *pads)

    def store(self) -> Store:
        rows, width, stride, start = self._rows()
        return Store(self._place(Memory.ACC, rows * width), self.base[Memory.OUT] + start, rows, width, stride)

    def _compute(self, factors: int) -> list[int]:
        """Micro-op range, loop extents and factors; now and then there is nothing to do."""
        begin = self.draw(0, UOPS - 6)
        return [
            begin,
            begin + self.draw(0, 5),
            self.draw(0, 3),
            self.draw(1, 3),
            *(self.draw(0, 2) for _ in range(factors)),
        ]

    def gemm(self) -> Gemm:
        return Gemm(*self._compute(6), reset=self.draw(0, 4) == 0)

    def alu(self) -> Alu:
        use_imm = bool(self.draw(0, 1))
        imm = int(self.rng.choice([-(1 << 15), -33, -32, -31, -4, -1, 0, 1, 8, 31, 32, 40, (1 << 15) - 1]))
        return Alu(AluOp(self.draw(0, 4)), *self._compute(4), use_imm=use_imm, imm=imm)
