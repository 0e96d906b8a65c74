"""Inline PTX as C++ of the block emulator, which `emulation/cuda.h` and its host define.

Instructions of tensor cores are known to the extension that has these.  An instruction that is not known does not
compile.  A line of the source stays a line.
"""

from __future__ import annotations

import re

from te_lite.extensions import installed_part

from .inline_ptx import Address, Assembly, Instruction, assemblies

_COPY = re.compile(r"cp\.async\.c[ag]\.shared(::cta)?\.global(\.L2::\w+)?")


def emulated(source: str) -> str:
    """The source with its asm statements replaced."""
    out, end = [], 0
    for statement in assemblies(source):
        out += [source[end : statement.start], _statement(statement, source)]
        end = statement.end
    return "".join([*out, source[end:]])


def _statement(statement: Assembly, source: str) -> str:
    lines = source.count("\n", statement.start, statement.end)
    return f"do {{ {' '.join(map(call, statement.instructions))} }} while (0)" + "\n" * lines


def call(x: Instruction) -> str:
    """An instruction as C++."""
    match x.name, x.operands:
        case name, (Address(to), Address(source), str(size), *rest) if _COPY.fullmatch(name) and len(rest) < 2:
            return f"emu_copy({to}, {source}, {size}, {rest[0] if rest else size});"
        case "cp.async.commit_group", ():
            return "emu_copy_commit();"
        case "cp.async.wait_group", (str(count),):
            return f"emu_copy_wait({count}, EMU_CHECKED);"
        case "cp.async.wait_all", ():
            return "emu_copy_commit(); emu_copy_wait(0, EMU_CHECKED);"
        case "mov.b32", (str(to), str(value)):
            return f"{to} = {value};"
    found = installed_part("emulated_instruction")
    text = None if found is None else found(x)
    return unknown(x.name) if text is None else str(text)


def unknown(name: str) -> str:
    """What does not compile, in place of an instruction."""
    return f"the_emulator_does_not_know_{re.sub(r'[^a-z0-9]', '_', name)}();"
