"""Instructions and micro-ops: values, their bits, their columns, and their text.

Law: values and their bits; knows no contents of memories and no time.
"""

from __future__ import annotations

from .columns import Columns, columns
from .disassemble import disassemble, disassemble_uops
from .encode import decode, encode
from .instruction import DEPS, Alu, Deps, Finish, Gemm, Instruction, Load, Operation, Store, nop
from .uop import pack_uops, unpack_uops

__all__ = [
    "DEPS",
    "Alu",
    "Columns",
    "Deps",
    "Finish",
    "Gemm",
    "Instruction",
    "Load",
    "Operation",
    "Store",
    "columns",
    "decode",
    "disassemble",
    "disassemble_uops",
    "encode",
    "nop",
    "pack_uops",
    "unpack_uops",
]
