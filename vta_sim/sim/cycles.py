"""The cycle model: three modules that work side by side and wait for each other's tokens.

The default constants are a fit to the published times of a Pynq-Z1 board (100 MHz, 64-bit memory bus) for the ten
convolutions of ResNet-18 at their best known tiles (how well: docs/vta.md).  A product or an ALU operation costs cycles
for each iteration; a transfer costs a start, a delay for each row that is not contiguous with the one before, and its
bytes; padding is free, and so is reading instructions.  Loads of accumulators do not occur in these convolutions; they
are taken to be as fast as those of inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.kinds import Memory, Module, Opcode
from ..isa.columns import Columns
from .profiler import dram_bytes
from .tokens import Waits

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class CycleModel:
    """Cycles, and bytes per cycle.  `calibration` says what the numbers were fitted to.

    `host_ns_per_output` is time of the host for each stored number.  It is 0 for the time of the accelerator alone; 47
    (39 for the layers of 7x7 pixels) explains the lower speeds that older measurements of the same board show.
    """

    calibration: str
    mhz: float = 100.0
    gemm_iteration: float = 1.0
    alu_iteration: float = 2.0
    compute_start: float = 20.0
    transfer_start: float = 100.0
    row: float = 30.0
    bandwidth: float = 8.0
    wgt_bandwidth: float = 3.6
    token_only: float = 5.0
    launch: float = 10_000.0
    host_ns_per_output: float = 0.0

    def transfer(self, memory: Any, nbytes: Any, rows: Any) -> Any:
        """Cycles of a load or store of so many bytes of DRAM, in rows of which none continues the one before.

        All may be arrays.
        """
        speed = np.where(np.equal(memory, Memory.WGT), self.wgt_bandwidth, self.bandwidth)
        return self.transfer_start + nbytes / speed + np.where(np.equal(memory, Memory.UOP), 0, rows * self.row)

    def compute(self, alu: Any, iterations: Any) -> Any:
        """Cycles of a product or, where `alu` is true, an element-wise operation; both may be arrays."""
        return self.compute_start + iterations * np.where(alu, self.alu_iteration, self.gemm_iteration)

    def durations(self, c: Columns) -> Floats:
        """Cycles of each instruction, float64 [n], without waiting."""
        mem = c.mem
        rows = np.where(mem["x_stride"] == mem["x_size"], np.minimum(mem["y_size"], 1), mem["y_size"])
        transfer = self.transfer(mem["memory"], dram_bytes(c), rows)
        out: Floats = np.where(c.is_mem, transfer, self.compute(c.opcode == Opcode.ALU, c.iterations))
        out[c.is_nop | (c.opcode == Opcode.FINISH)] = self.token_only
        return out


PYNQ = CycleModel("TopHub times of the ten ResNet-18 convolutions on a Pynq-Z1 at 100 MHz")


@dataclass(frozen=True)
class Timing:
    """When each instruction begins and ends, float64 [n] cycles after the launch; `cycles` is the whole program."""

    start: Floats
    end: Floats
    cycles: float
    ms: float

    def busy(self, c: Columns) -> dict[Module, float]:
        """The share of the program, 0 to 1, during which each module works."""
        length = self.end - self.start
        return {m: float(length[c.module == m].sum() / self.cycles) for m in Module}


def timing(c: Columns, needs: Waits, order: Sequence[int], model: CycleModel = PYNQ) -> Timing:
    """Play the program: an instruction begins when its module is free and its tokens are there.

    `order` is any order from `tokens.order`; the result does not depend on which.
    """
    start, end, busy = _played(c, needs, order, model.durations(c))
    cycles = model.launch + busy
    outputs = int(dram_bytes(c)[c.opcode == Opcode.STORE].sum())
    ms = cycles / (model.mhz * 1e3) + outputs * model.host_ns_per_output * 1e-6
    return Timing(start + model.launch, end + model.launch, cycles, ms)


def _played(c: Columns, needs: Waits, order: Sequence[int], duration: Floats) -> tuple[Floats, Floats, float]:
    """When each instruction begins and ends, and when the last one has ended."""
    cost, module = duration.tolist(), c.module.tolist()
    first, second = needs.before[:, 0].tolist(), needs.before[:, 1].tolist()
    free = [0.0] * (max(Module) + 1)
    start, end = [0.0] * len(c), [0.0] * (len(c) + 1)  # the last entry is what NONE indexes
    for i in order:
        m = module[i]
        begin = max(free[m], end[first[i]], end[second[i]])
        start[i] = begin
        end[i] = free[m] = begin + cost[i]
    return np.array(start), np.array(end[:-1]), max(free)
