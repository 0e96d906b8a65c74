"""Instructions and micro-ops: values, their bits, their columns, and their text.

Law: values and their bits; knows no contents of memories and no time.
"""

from __future__ import annotations

from ..core.kinds import Deps
from .columns import Columns, columns
from .disassemble import disassemble
from .encode import decode, encode
from .instruction import Alu, Finish, Gemm, Instruction, Load, Operation, Store, nop
from .uop import pack_uops, unpack_uops

__all__ = [
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
    "encode",
    "nop",
    "pack_uops",
    "unpack_uops",
]
