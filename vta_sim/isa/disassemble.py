"""Programs as text, one line an instruction."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.config import Config
from ..core.kinds import DEPENDENCIES, Module
from .instruction import Alu, Finish, Gemm, Instruction, Load, Operation, Store, is_nop, module_of
from .uop import Uops, unpack_uops


def disassemble(program: Sequence[Instruction], depths: bool = False) -> str:
    """The text of a program.  With `depths` a line ends in the tokens that lie in each queue when it is issued in
    program order, as l2g, g2l, s2g and g2s (l load, g compute, s store); a negative number says that the order of the
    program is not the order of its tokens.
    """
    lines, count = [], {"l2g": 0, "g2l": 0, "s2g": 0, "g2s": 0}
    for k, instruction in enumerate(program):
        tokens = [n for n, on in zip(DEPENDENCIES, instruction.deps.as_tuple(), strict=True) if on]
        text = f"{k:5d}  {operation_text(instruction.op):<66} {' '.join(tokens)}"
        if depths:
            _count(count, instruction)
            text = f"{text:<112} {' '.join(f'{name}={n}' for name, n in count.items())}"
        lines.append(text.rstrip())
    return "\n".join(lines)


def disassemble_uops(config: Config, uops: Uops) -> str:
    """A line for each micro-op: its indices into ACC, INP (or ACC) and WGT."""
    rows = zip(*(x.tolist() for x in unpack_uops(config, uops)), strict=True)
    return "\n".join(f"{k:5d}  dst={d} src={s} wgt={w}" for k, (d, s, w) in enumerate(rows))


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


def _count(count: dict[str, int], instruction: Instruction) -> None:
    """Take and give the tokens of one instruction."""
    module, deps = module_of(instruction.op), instruction.deps
    before, after = {
        Module.LOAD: ("", "l2g g2l"),
        Module.COMPUTE: ("g2l l2g", "g2s s2g"),
        Module.STORE: ("s2g g2s", ""),
    }[module]
    for pair, pop, push in ((before, deps.pop_prev, deps.push_prev), (after, deps.pop_next, deps.push_next)):
        if pair:
            given, taken = pair.split()
            count[given] += push
            count[taken] -= pop
