"""The numbers that instructions are made of: operations, memories, modules, and the queues of tokens between them."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class Opcode(IntEnum):
    """What an instruction does (bits 0 to 2)."""

    LOAD = 0
    STORE = 1
    GEMM = 2
    FINISH = 3
    ALU = 4


class Memory(IntEnum):
    """What a load fills or a store reads.  ACC_8BIT fills ACC from 8-bit elements in DRAM."""

    UOP = 0
    WGT = 1
    INP = 2
    ACC = 3
    OUT = 4
    ACC_8BIT = 5


class AluOp(IntEnum):
    """The element-wise operations.  SHR by a negative amount shifts to the left."""

    MIN = 0
    MAX = 1
    ADD = 2
    SHR = 3
    MUL = 4


class Module(IntEnum):
    """The three modules that work side by side; the runtime calls them stages and numbers them so."""

    LOAD = 1
    COMPUTE = 2
    STORE = 3


QUEUES = (
    (Module.LOAD, Module.COMPUTE),
    (Module.COMPUTE, Module.LOAD),
    (Module.COMPUTE, Module.STORE),
    (Module.STORE, Module.COMPUTE),
)
"""The token queues (from, to).  Load and store share none."""


class Deps(IntFlag):
    """The token bits, in the order of the instruction word (its bits 3 to 6): "prev" and "next" are the neighbours in
    the chain load, compute, store."""

    POP_PREV = 1
    POP_NEXT = 2
    PUSH_PREV = 4
    PUSH_NEXT = 8


NO_DEPS = Deps(0)


def queue_name(source: int, target: int) -> str:
    """How a token queue is written in messages, such as `load->compute`."""
    return f"{Module(source).name.lower()}->{Module(target).name.lower()}"
