"""Programs as text, one line an instruction."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.kinds import Deps
from .instruction import Alu, Finish, Gemm, Instruction, Load, Operation, Store, is_nop, module_of


def disassemble(program: Sequence[Instruction]) -> str:
    """The text of a program."""
    lines = []
    for k, instruction in enumerate(program):
        tokens = " ".join(str(bit.name).lower() for bit in Deps if bit in instruction.deps)
        lines.append(f"{k:5d}  {operation_text(instruction.op):<66} {tokens}".rstrip())
    return "\n".join(lines)


def operation_text(op: Operation) -> str:
    """One operation: `y8 x14/28` are 8 rows of 14 elements, 28 apart; `acc+1` adds 1 to an index in that loop."""
    if is_nop(op):
        return f"NOP-{module_of(op).name}-STAGE"
    match op:
        case Load():
            pads = (op.y_pad_0, op.y_pad_1, op.x_pad_0, op.x_pad_1)
            text = f"LOAD {op.memory.name} y{op.y_size} x{op.x_size}/{op.x_stride} sram={op.sram_base:#x}"
            return f"{text} dram={op.dram_base:#x}" + (f" pad={','.join(map(str, pads))}" if any(pads) else "")
        case Store():
            text = f"STORE OUT y{op.y_size} x{op.x_size}/{op.x_stride}"
            return f"{text} sram={op.sram_base:#x} dram={op.dram_base:#x}"
        case Gemm():
            return f"GEMM{' reset' if op.reset else ''} {_loops(op)}"
        case Alu():
            source = f"imm {op.imm}" if op.use_imm else "acc"
            return f"ALU {op.op.name.lower()} {source} {_loops(op)}"
        case Finish():
            return "FINISH"


def _loops(op: Gemm | Alu) -> str:
    wgt_out, wgt_in = (op.wgt_factor_out, op.wgt_factor_in) if isinstance(op, Gemm) else (0, 0)
    outer = _loop(op.iter_out, op.dst_factor_out, op.src_factor_out, wgt_out)
    inner = _loop(op.iter_in, op.dst_factor_in, op.src_factor_in, wgt_in)
    return f"uops[{op.uop_bgn},{op.uop_end}) {outer} x {inner}"


def _loop(extent: int, *steps: int) -> str:
    moves = [f"{name}+{step}" for name, step in zip(("dst", "src", "wgt"), steps, strict=True) if step]
    return f"{extent}({' '.join(moves)})" if moves else str(extent)
