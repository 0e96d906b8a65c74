"""A program as columns: every field of every instruction, decoded at once.

A column has a number for each instruction of the program, also where the instruction has no such field; there it means
nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.config import Config
from ..core.errors import IsaError
from ..core.kinds import Memory, Module, Opcode
from .fields import Formats, Ints, Words, formats

Flags = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Columns:
    """`words` [n, 2]; `mem`, `gemm` and `alu` have an int64 column [n] for each field of the format."""

    config: Config
    words: Words
    opcode: Ints
    flags: Ints
    mem: dict[str, Ints]
    gemm: dict[str, Ints]
    alu: dict[str, Ints]

    def __len__(self) -> int:
        return len(self.opcode)

    @cached_property
    def is_mem(self) -> Flags:
        """Loads and stores, those of nothing included."""
        out: Flags = (self.opcode == Opcode.LOAD) | (self.opcode == Opcode.STORE)
        return out

    @cached_property
    def is_nop(self) -> Flags:
        """Loads and stores of nothing."""
        out: Flags = self.is_mem & (self.mem["x_size"] == 0)
        return out

    @cached_property
    def module(self) -> Ints:
        """The Module that executes each instruction."""
        memory = self.mem["memory"]
        out = np.full(len(self), int(Module.COMPUTE), np.int64)
        inputs = (memory == Memory.INP) | (memory == Memory.WGT)
        out[(self.opcode == Opcode.LOAD) & inputs] = Module.LOAD
        out[self.opcode == Opcode.STORE] = Module.STORE
        return out

    @cached_property
    def iterations(self) -> Ints:
        """Micro-op executions of each GEMM and ALU instruction; 0 for others."""
        g = self.gemm
        count = g["iter_out"] * g["iter_in"] * np.maximum(g["uop_end"] - g["uop_bgn"], 0)
        return np.where((self.opcode == Opcode.GEMM) | (self.opcode == Opcode.ALU), count, 0)

    def rows(self, opcode: Opcode) -> Ints:
        """The positions of the instructions with this opcode."""
        return np.flatnonzero(self.opcode == opcode)


def columns(config: Config, words: Words) -> Columns:
    """Decode words uint64 [n, 2].  Raises IsaError on an operation or memory that no machine knows."""
    form: Formats = formats(config)
    opcode, *bits = (field.extract(words) for field in form.header)
    flags = sum((bit << k for k, bit in enumerate(bits)), np.zeros(len(words), np.int64))
    tables = [{f.name: f.extract(words) for f in fields} for fields in (form.mem, form.gemm, form.alu)]
    out = Columns(config, words, opcode, flags, *tables)
    for bad, what, values in (
        (opcode > max(Opcode), "opcode", opcode),
        (out.is_mem & (out.mem["memory"] > max(Memory)), "memory", out.mem["memory"]),
        ((opcode == Opcode.ALU) & (out.alu["alu_opcode"] > 4), "ALU operation", out.alu["alu_opcode"]),
    ):
        at = np.flatnonzero(bad)
        found = values[at[:1]].tolist()
        require(len(at) == 0, IsaError, f"instruction {at[:1].tolist()}", f"there is no such {what}", found=found)
    return out
