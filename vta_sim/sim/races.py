"""A race detector: accesses of one memory by two modules that no token puts in order.

A program that lacks a token may still run well by chance.  Here chance has no say: an access is right only if tokens
order it and those that it conflicts with.  Each instruction knows how many instructions of every module are complete
when it starts (a vector clock); each element on the chip remembers the last instruction that wrote it and the last
that read it.  A conflict between the two that the clock does not cover is a race, whatever order the program ran in.

INP and WGT are written by load and read by compute, ACC is written by compute and read by store; micro-ops belong to
compute alone.  DRAM is not watched: a program that loads what it stores must see to the order itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..core.errors import MachineError
from ..core.kinds import Memory, Module, Opcode
from ..isa.columns import Columns
from ..isa.fields import Ints
from .alu import AluPlan
from .gemm import GemmPlan
from .tokens import Waits

Where = Ints | slice


@dataclass(frozen=True)
class _Watched:
    """A memory, its writer and its reader; the last access to each element, int64 [depth], counted in its module."""

    memory: Memory
    writer: Module
    reader: Module
    written: Ints
    read: Ints


class RaceDetector:
    """Watches a program that is run in `order`.  Each method raises MachineError for a race."""

    def __init__(self, c: Columns, needs: Waits, order: Sequence[int]) -> None:
        self._columns = c
        self._members = {m: np.flatnonzero(c.module == m) for m in Module}
        self._number = np.zeros(len(c), np.int64)  # from 1, within the module
        for members in self._members.values():
            self._number[members] = np.arange(1, len(members) + 1)
        self._clock = _clocks(c, needs, order, self._number)
        owners = ((Memory.INP, Module.LOAD), (Memory.WGT, Module.LOAD), (Memory.ACC, Module.COMPUTE))
        self._watched = {
            memory: _Watched(memory, writer, Module(writer + 1), *np.zeros((2, c.config.depth(memory)), np.int64))
            for memory, writer in owners
        }

    def transfer(self, i: int) -> None:
        """Instruction i, a load or store, starts."""
        mem = self._columns.mem
        rows, width, base = (int(mem[name][i]) for name in ("y_size", "x_size", "sram_base"))
        if self._columns.opcode[i] == Opcode.STORE:
            self._reads(i, Memory.ACC, slice(base, base + rows * width))
            return
        memory = Memory(int(mem["memory"][i]))
        rows += int(mem["y_pad_0"][i] + mem["y_pad_1"][i])
        width += int(mem["x_pad_0"][i] + mem["x_pad_1"][i])
        if memory is not Memory.UOP:
            target = Memory.ACC if memory is Memory.ACC_8BIT else memory
            self._writes(i, target, slice(base, base + rows * width))

    def compute(self, i: int, plan: GemmPlan | AluPlan) -> None:
        """Instruction i, a GEMM or ALU one with this plan, starts."""
        match plan:
            case GemmPlan():
                self._writes(i, Memory.ACC, plan.cleared)
                for product in plan.products:
                    self._reads(i, Memory.INP, product.src)
                    self._reads(i, Memory.WGT, product.wgt)
                    self._writes(i, Memory.ACC, product.dst)
            case AluPlan():
                for wave in plan.waves:
                    self._writes(i, Memory.ACC, wave.dst)

    def _writes(self, i: int, memory: Memory, where: Where) -> None:
        w = self._watched[memory]
        self._compare(i, "writes", w, w.reader, "reads", w.read[where])
        w.written[where] = self._number[i]

    def _reads(self, i: int, memory: Memory, where: Where) -> None:
        w = self._watched[memory]
        self._compare(i, "reads", w, w.writer, "writes", w.written[where])
        w.read[where] = self._number[i]

    def _compare(self, i: int, verb: str, w: _Watched, other: Module, does: str, last: Ints) -> None:
        latest = int(last.max(initial=0))
        if latest > self._clock[i][other]:
            first = int(self._members[other][latest - 1])
            raise MachineError(
                f"race: instruction {i} {verb} elements of {w.memory.name} that instruction {first} {does}, "
                "and no token says which comes first"
            )


def _clocks(c: Columns, needs: Waits, order: Sequence[int], number: Ints) -> list[list[int]]:
    """For each instruction, how many instructions of each Module are complete when it starts."""
    module, position, before = c.module.tolist(), number.tolist(), needs.before.tolist()
    clocks: list[list[int]] = [[] for _ in range(len(c))]
    last = [-1] * (max(Module) + 1)
    for i in order:
        m = module[i]
        # what is complete when the instruction starts: its predecessors, and all that was when they started
        clock = [0] * (max(Module) + 1)
        for p in (last[m], *before[i]):
            if p >= 0:
                clock = [max(pair) for pair in zip(clock, clocks[p], strict=True)]
                clock[module[p]] = max(clock[module[p]], position[p])
        clocks[i] = clock
        last[m] = i
    return clocks
