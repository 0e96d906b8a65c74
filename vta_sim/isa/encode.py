"""Encoding of instructions as bits, and decoding.

Instructions of one kind are encoded together, a column for each field.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.config import Config
from ..core.errors import IsaError
from ..core.kinds import AluOp, Deps, Memory, Opcode
from .columns import Columns, columns
from .fields import BitField, Words, formats
from .instruction import Alu, Finish, Gemm, Instruction, Load, Operation, Store

_OPCODES: dict[type, Opcode] = {
    Load: Opcode.LOAD,
    Store: Opcode.STORE,
    Gemm: Opcode.GEMM,
    Finish: Opcode.FINISH,
    Alu: Opcode.ALU,
}
_ALU_NAMES = {"alu_opcode": "op"}
_STORE_FIELDS = ("sram_base", "dram_base", "y_size", "x_size", "x_stride")


def encode(config: Config, program: Sequence[Instruction]) -> Words:
    """The words uint64 [n, 2], low word first.  Raises IsaError when a number does not fit its field."""
    return encode_parts(config, [i.op for i in program], [i.deps for i in program])


def encode_parts(config: Config, operations: Sequence[Operation], flags: Sequence[int]) -> Words:
    """As `encode`, of operations and of the flags of their dependencies."""
    form = formats(config)
    words = np.zeros((len(operations), 2), np.uint64)
    kinds = np.fromiter((_OPCODES[type(op)] for op in operations), np.int64, len(operations))
    words[:, 0] = (kinds | np.asarray(flags, np.int64).reshape(-1) << 3).astype(np.uint64)
    for opcode, fields, names in (
        (Opcode.LOAD, form.mem, {}),
        (Opcode.STORE, tuple(f for f in form.mem if f.name in _STORE_FIELDS), {}),
        (Opcode.GEMM, form.gemm, {}),
        (Opcode.ALU, form.alu, _ALU_NAMES),
    ):
        at = np.flatnonzero(kinds == opcode)
        if len(at):
            chosen = [operations[k] for k in at.tolist()]
            part = words[at]
            for field in fields:
                _insert(field, [getattr(op, names.get(field.name, field.name)) for op in chosen], part, opcode)
            words[at] = part
    words[kinds == Opcode.STORE, 0] |= np.uint64(Memory.OUT << 7)
    return words


def _insert(field: BitField, values: list[Any], words: Words, opcode: Opcode) -> None:
    low, high = field.range
    if min(values) < low or max(values) > high:
        found = next(int(v) for v in values if not low <= v <= high)
        law = f"{field.name} must lie in {low}..{high}, its field has {field.width} bits"
        require(False, IsaError, opcode.name, law, found=found)
    field.insert(words, np.array(values, np.int64))


def decode(config: Config, words: Words) -> list[Instruction]:
    """The instructions of words uint64 [n, 2].  Raises IsaError on an operation or memory that no machine knows."""
    table = columns(config, words)
    return [Instruction(_operation(table, k), Deps(int(table.flags[k]))) for k in range(len(table))]


def _operation(c: Columns, k: int) -> Operation:
    match Opcode(int(c.opcode[k])):
        case Opcode.LOAD:
            row = {name: int(column[k]) for name, column in c.mem.items()}
            return Load(Memory(row.pop("memory")), **row)
        case Opcode.STORE:
            return _store(c, k)
        case Opcode.GEMM:
            row = {name: int(column[k]) for name, column in c.gemm.items()}
            reset = bool(row.pop("reset"))
            return Gemm(**row, reset=reset)
        case Opcode.ALU:
            row = {name: int(column[k]) for name, column in c.alu.items()}
            op, use_imm, reset = AluOp(row.pop("alu_opcode")), bool(row.pop("use_imm")), bool(row.pop("reset"))
            return Alu(op, **row, use_imm=use_imm, reset=reset)
        case _:
            return Finish()


def _store(c: Columns, k: int) -> Store:
    law = "a store reads the memory OUT and has no padding"
    pads = [int(c.mem[name][k]) for name in ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")]
    memory = Memory(int(c.mem["memory"][k]))
    require(memory is Memory.OUT and not any(pads), IsaError, f"instruction {k}", law, memory=memory, pads=pads)
    return Store(*(int(c.mem[name][k]) for name in _STORE_FIELDS))
