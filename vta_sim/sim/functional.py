"""The functional simulator: each instruction is a few array operations."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.config import Config
from ..core.kinds import AluOp, Opcode
from ..isa.columns import Columns
from ..isa.fields import Ints
from .alu import AluPlan, alu_plan
from .dram import Dram
from .gemm import GemmPlan, gemm_plan
from .iteration_space import InstructionLoops
from .races import RaceDetector
from .sram import Sram
from .transfer import Transfers


def execute(c: Columns, order: Iterable[int], sram: Sram, dram: Dram, races: RaceDetector | None = None) -> None:
    """Change `sram` and `dram` as the program does, its instructions taken in `order`.

    Raises MachineError for an address outside a memory, and for a race when `races` looks for them.  The program must
    have passed `legal`.
    """
    transfers, compute = Transfers(c, sram, dram), _Compute(c, sram)
    moves = (c.is_mem & ~c.is_nop).tolist()
    computes = ((c.opcode == Opcode.GEMM) | (c.opcode == Opcode.ALU)).tolist()
    for i in order:
        if moves[i]:
            if races is not None:
                races.transfer(i)
            transfers.run(i)
        elif computes[i]:
            plan = compute.plan(i)
            if races is not None:
                races.compute(i, plan)
            plan.run(sram)


class _Compute:
    """The GEMM and ALU instructions of a program.

    An instruction with the same fields that reads the same micro-ops does the same.  Plans are made once for each; the
    fields of a program are its words without the token bits.
    """

    def __init__(self, c: Columns, sram: Sram) -> None:
        self._config: Config = c.config
        self._sram = sram
        self._columns = c
        self._low = (c.words[:, 0] & ~(c.words[:, 0].dtype.type(0xF << 3))).tolist()
        self._high = c.words[:, 1].tolist()
        self._range = list(zip(c.gemm["uop_bgn"].tolist(), c.gemm["uop_end"].tolist(), strict=True))
        self._plans: dict[tuple[int, int, bytes], GemmPlan | AluPlan] = {}

    def plan(self, i: int) -> GemmPlan | AluPlan:
        """What instruction i does now."""
        begin, end = self._range[i]
        uops = self._sram.uop[begin:end].tobytes()
        key = (self._low[i], self._high[i], uops)
        plan = self._plans.get(key)
        if plan is None:
            is_gemm = self._columns.opcode[i] == Opcode.GEMM
            plan = self._plans[key] = self._gemm_plan(i, uops) if is_gemm else self._alu_plan(i, uops)
        return plan

    def _gemm_plan(self, i: int, uops: bytes) -> GemmPlan:
        g = self._columns.gemm
        return gemm_plan(self._config, _loops(i, g), bool(g["reset"][i]), uops)

    def _alu_plan(self, i: int, uops: bytes) -> AluPlan:
        a = self._columns.alu
        imm = int(a["imm"][i]) if a["use_imm"][i] else None
        return alu_plan(self._config, _loops(i, a), AluOp(int(a["alu_opcode"][i])), imm, uops)


def _loops(i: int, table: dict[str, Ints]) -> InstructionLoops:
    """The loops of instruction i; the weight index of an ALU instruction is invariant."""

    def factors(side: str) -> tuple[int, int, int]:
        dst, src = int(table[f"dst_factor_{side}"][i]), int(table[f"src_factor_{side}"][i])
        return dst, src, int(table[f"wgt_factor_{side}"][i]) if f"wgt_factor_{side}" in table else 0

    return InstructionLoops((int(table["iter_out"][i]), int(table["iter_in"][i])), factors("out"), factors("in"))
