"""The innermost loops of a compiled program, as objdump shows them, and what vector instructions do in them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from codegen_c.compile import FLAGS, compiler_command

LINE = re.compile(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)")


@dataclass(frozen=True)
class Instruction:
    """An instruction of x86 in AT&T's order, the operand that is written last."""

    address: int
    name: str
    operands: str

    @property
    def reads_memory(self) -> bool:
        return "(" in self.operands.rpartition(",")[0]

    @property
    def place(self) -> str:
        """The memory operand."""
        found = re.search(r"-?[x0-9a-f]*\([^)]*\)", self.operands)
        assert found
        return found[0]

    @property
    def target(self) -> str:
        """The register that is written, without its mask."""
        return self.operands.rsplit(",", 1)[-1].split("{")[0].strip()


@dataclass(frozen=True)
class Counted:
    """Vector instructions of a loop: multiply-adds, the registers that they sum up in, how often vectors and single
    elements are read, and from how many places vectors are.

    A compiler may read a vector again, as part of an instruction, instead of keeping it in a register.
    """

    multiply_adds: int
    sums: int
    vectors: int
    places: int
    elements: int


def compiled(text: str, march: str, directory: Path) -> list[Instruction]:
    """The instructions of C text for a processor, its loops not unrolled."""
    (directory / "program.c").write_text(re.sub(r"#pragma GCC unroll \d+", "#pragma GCC unroll 1", text))
    flags = [f"-march={march}" if f == "-march=native" else f for f in FLAGS if f != "-shared"]
    made = [*compiler_command(), *flags, "-c", "-o", str(directory / "program.o"), str(directory / "program.c")]
    subprocess.run(made, check=True)
    shown = ["objdump", "-d", "--no-show-raw-insn", str(directory / "program.o")]
    dump = subprocess.run(shown, check=True, capture_output=True, text=True).stdout
    found = [LINE.match(line) for line in dump.splitlines()]
    return [Instruction(int(m[1], 16), m[2], m[3]) for m in found if m]


def innermost_loops(code: list[Instruction]) -> Iterator[list[Instruction]]:
    """From the target of each backward jump to the jump, where no other such jump lies between."""
    place = {x.address: n for n, x in enumerate(code)}
    last = -1
    for n, x in enumerate(code):
        to = re.match(r"([0-9a-f]+)", x.operands)
        start = place.get(int(to[1], 16)) if to and x.name.startswith("j") else None
        if start is not None and start <= n:
            if start > last:
                yield code[start : n + 1]
            last = n


def counted(loop: list[Instruction]) -> Counted:
    adds = [x for x in loop if x.name.startswith("vfmadd")]
    read = [x for x in loop if x.name.startswith("v") and x.reads_memory]
    single = [x for x in read if x.name.startswith(("vbroadcast", "vmovs", "vmovddup")) or "{1to" in x.operands]
    places = [x.place for x in read if x not in single]
    return Counted(len(adds), len({x.target for x in adds}), len(places), len({*places}), len(single))
