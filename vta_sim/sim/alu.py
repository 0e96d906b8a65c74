"""The element-wise operations of one ALU instruction, in as few steps as its hazards allow.

Iterations follow one another and may read what an earlier one wrote.  They are put into waves: an iteration is in a
later wave than those that wrote what it reads or overwrites, and in no earlier wave than those that read what it
overwrites.  All iterations of a wave read, then all write, so a wave is one array operation.  Most instructions have
one wave.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..core.config import Config
from ..core.kinds import AluOp, Memory
from ..isa.fields import Ints
from ..isa.uop import Uops
from .iteration_space import InstructionLoops, check_indices, walk
from .sram import Sram

Acc = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, eq=False)
class Wave:
    """Iterations that run at once: accumulators that are changed, and those that are read as the other operand."""

    dst: Ints | slice
    src: Ints | slice


@dataclass(frozen=True, eq=False)
class AluPlan:
    """What an instruction does with the micro-ops it finds.  `imm` is None when the other operand is a register."""

    op: AluOp
    imm: np.int32 | None
    waves: tuple[Wave, ...]

    def run(self, sram: Sram) -> None:
        """Execute it."""
        for wave in self.waves:
            other = sram.acc[wave.src] if self.imm is None else self.imm
            sram.acc[wave.dst] = apply(self.op, sram.acc[wave.dst], other)


def apply(op: AluOp, a: Acc, b: Acc | np.int32) -> Acc:
    """The operation on int32 numbers, wrapping around.  Of a shift only the low 5 bits of the amount count."""
    match op:
        case AluOp.MIN:
            return np.minimum(a, b)
        case AluOp.MAX:
            return np.maximum(a, b)
        case AluOp.ADD:
            return np.add(a, b)
        case AluOp.MUL:
            return np.multiply(a, b)
        case AluOp.SHR if isinstance(b, np.ndarray):
            return np.where(b >= 0, a >> (b & 31), a << (-b & 31))
        case AluOp.SHR:
            return a >> (int(b) & 31) if b >= 0 else a << (-int(b) & 31)


@lru_cache(maxsize=256)
def alu_plan(config: Config, loops: InstructionLoops, op: AluOp, imm: int | None, uop_bytes: bytes) -> AluPlan:
    """The plan of an instruction; the 256 that were asked for last are remembered.

    Raises MachineError when an index leaves ACC.
    """
    uops: Uops = np.frombuffer(uop_bytes, np.uint32)
    check_indices(config, loops, uops, (Memory.ACC, Memory.ACC if imm is None else None, None))
    waves = []
    for dst, src, _ in walk(config, loops, uops):
        number = _waves(dst, dst if imm is not None else src)
        for k in range(int(number.max()) + 1):
            at = number == k
            waves.append(Wave(_as_slice(dst[at]), _as_slice(src[at]) if imm is None else slice(0)))
    return AluPlan(op, None if imm is None else np.int32(imm), tuple(waves))


def _waves(dst: Ints, src: Ints) -> Ints:
    """The number of the wave of each iteration, int64 [n]."""
    # the usual case: every register is written once, and read by nobody but its own iteration
    if len(np.unique(dst)) == len(dst) and not np.isin(src[src != dst], dst).any():
        return np.zeros(len(dst), np.int64)
    written: dict[int, int] = {}  # register -> wave of its last writer
    read: dict[int, int] = {}  # register -> latest wave of its readers
    out = np.zeros(len(dst), np.int64)
    for i, (d, s) in enumerate(zip(dst.tolist(), src.tolist(), strict=True)):
        wave = max(written.get(d, -1) + 1, written.get(s, -1) + 1, read.get(d, 0))
        out[i] = written[d] = wave
        read[s] = max(read.get(s, 0), wave)
    return out


def _as_slice(index: Ints) -> Ints | slice:
    """Evenly spaced rising indices as a slice, which needs no copy."""
    step = int(index[1] - index[0]) if len(index) > 1 else 1
    if step > 0 and bool((np.diff(index) == step).all()):
        return slice(int(index[0]), int(index[-1]) + 1, step)
    return index
