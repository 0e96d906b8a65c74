"""Static checks of a program, made for all its instructions before the first one runs."""

from __future__ import annotations

import numpy as np

from te_lite.errors import require

from ..core.errors import MachineError
from ..core.kinds import Memory, Opcode
from ..isa.columns import Columns, Flags

_PADS = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")


def check_transfers(c: Columns) -> None:
    """Raise MachineError for a load or store of a wrong memory, with padding it cannot have, or past a memory."""
    mem, real = c.mem, c.is_mem & ~c.is_nop
    load, store = real & (c.opcode == Opcode.LOAD), real & (c.opcode == Opcode.STORE)
    padded = sum(mem[name] for name in _PADS) > 0
    memory = np.where(c.is_mem, mem["memory"], 0)
    _refuse(load & (memory == Memory.OUT), "OUT cannot be loaded")
    _refuse(store & (memory != Memory.OUT), "only OUT can be stored")
    _refuse(store & padded, "a store has no padding")
    _refuse(load & padded & (memory == Memory.UOP), "a load of micro-ops has no padding")
    rows = mem["y_size"] + np.where(load, mem["y_pad_0"] + mem["y_pad_1"], 0)
    width = mem["x_size"] + np.where(load, mem["x_pad_0"] + mem["x_pad_1"], 0)
    end = mem["sram_base"] + rows * width
    depth = np.array([c.config.depth(m) for m in Memory], np.int64)[memory]
    for k in np.flatnonzero(real & (end > depth)).tolist()[:1]:
        law = f"the elements end at {end[k]}, {Memory(memory[k]).name} has {depth[k]}"
        require(False, MachineError, f"instruction {k}", law, sram_base=int(mem["sram_base"][k]))


def check_uop_ranges(c: Columns) -> None:
    """Raise MachineError when a GEMM or ALU instruction reads micro-ops past their memory."""
    computes = (c.opcode == Opcode.GEMM) | (c.opcode == Opcode.ALU)
    depth = c.config.depth(Memory.UOP)
    _refuse(computes & (c.gemm["uop_end"] > depth), f"the micro-ops end past UOP, which has {depth}")


def _refuse(bad: Flags, law: str) -> None:
    at = np.flatnonzero(bad).tolist()
    require(not at, MachineError, f"instruction {at[:1]}", law)
