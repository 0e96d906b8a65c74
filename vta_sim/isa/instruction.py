"""Instructions as values: what is done, and which tokens it waits for and gives.

Addresses and sizes count elements of the memory in question.  Whether a number fits its field is decided when it is
encoded, for the widths depend on the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.kinds import NO_DEPS, AluOp, Deps, Memory, Module


@dataclass(frozen=True, slots=True)
class Load:
    """Copy `y_size` rows of `x_size` elements, `x_stride` apart in DRAM, to consecutive addresses, framed by zeros.

    With `x_size` 0 nothing is copied, and only the tokens count.
    """

    memory: Memory
    sram_base: int
    dram_base: int
    y_size: int
    x_size: int
    x_stride: int
    y_pad_0: int = 0
    y_pad_1: int = 0
    x_pad_0: int = 0
    x_pad_1: int = 0


@dataclass(frozen=True, slots=True)
class Store:
    """Copy `y_size` rows of `x_size` accumulators, narrowed to their low 8 bits, to DRAM rows `x_stride` apart."""

    sram_base: int
    dram_base: int
    y_size: int
    x_size: int
    x_stride: int


@dataclass(frozen=True, slots=True)
class Gemm:
    """Run the micro-ops [uop_bgn, uop_end) in two loops: ACC[dst] += INP[src] WGT[wgt]^T, or ACC[dst] = 0.

    In iteration (y, x) an index is that of the micro-op plus `y * factor_out + x * factor_in`.
    """

    uop_bgn: int
    uop_end: int
    iter_out: int = 1
    iter_in: int = 1
    dst_factor_out: int = 0
    dst_factor_in: int = 0
    src_factor_out: int = 0
    src_factor_in: int = 0
    wgt_factor_out: int = 0
    wgt_factor_in: int = 0
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Alu:
    """Run micro-ops in two loops, as Gemm does: ACC[dst] = op(ACC[dst], imm if use_imm else ACC[src])."""

    op: AluOp
    uop_bgn: int
    uop_end: int
    iter_out: int = 1
    iter_in: int = 1
    dst_factor_out: int = 0
    dst_factor_in: int = 0
    src_factor_out: int = 0
    src_factor_in: int = 0
    use_imm: bool = False
    imm: int = 0
    reset: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """The end of a program."""


Operation = Load | Store | Gemm | Alu | Finish


@dataclass(frozen=True, slots=True)
class Instruction:
    """An operation with its tokens."""

    op: Operation
    deps: Deps = NO_DEPS


def module_of(op: Operation) -> Module:
    """The module that executes an operation."""
    match op:
        case Load(memory=Memory.INP | Memory.WGT):
            return Module.LOAD
        case Store():
            return Module.STORE
        case _:
            return Module.COMPUTE


def is_nop(op: Operation) -> bool:
    """Whether only the tokens of an operation count."""
    return isinstance(op, Load | Store) and op.x_size == 0


def nop(module: Module) -> Operation:
    """What the runtime sends to a module that shall do nothing."""
    match module:
        case Module.LOAD:
            return Load(Memory.INP, 0, 0, 0, 0, 0)
        case Module.COMPUTE:
            return Load(Memory.UOP, 0, 0, 0, 0, 0)
        case Module.STORE:
            return Store(0, 0, 0, 0, 0)
