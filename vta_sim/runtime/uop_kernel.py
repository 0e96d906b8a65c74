"""Micro-op kernels: at most two loops around a list of micro-ops, recorded once by the code that makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from te_lite.errors import require

from ..core.config import Config
from ..core.errors import QueueError
from ..core.kinds import AluOp, Memory
from ..isa.instruction import Alu, Gemm
from ..isa.uop import Uops, pack_uops

MAX_LOOPS = 2
HAZARD = 2  # a micro-op may not write what one of so many before it wrote


@dataclass(frozen=True)
class AluMode:
    """What an ALU kernel computes."""

    op: AluOp
    use_imm: bool = False
    imm: int = 0


@dataclass(frozen=True)
class GemmMode:
    """Whether a GEMM kernel clears accumulators or adds products to them."""

    reset: bool = False


Mode = AluMode | GemmMode


@dataclass(frozen=True)
class HardwareLoop:
    """A hardware loop: its extent, and what each iteration adds to the indices."""

    extent: int
    dst: int
    src: int
    wgt: int = 0


@dataclass(frozen=True, eq=False)
class UopKernel:
    """A recorded kernel; `uops` uint32 [n]."""

    mode: Mode
    loops: tuple[HardwareLoop, ...]
    uops: Uops

    def instruction(self, begin: int) -> Gemm | Alu:
        """The instruction that runs the kernel when its micro-ops lie at `begin`.

        A single loop is the outer one of a GEMM instruction, but the inner one of an ALU instruction.
        """
        single = HardwareLoop(1, 0, 0)
        end = begin + len(self.uops)
        match self.mode:
            case GemmMode(reset):
                out, inner = (*self.loops, single, single)[:2]
                factors = (out.dst, inner.dst, out.src, inner.src, out.wgt, inner.wgt)
                return Gemm(begin, end, out.extent, inner.extent, *factors, reset)
            case AluMode(op, use_imm, imm):
                out, inner = (single, single, *self.loops)[-2:]
                moves = (out.dst, inner.dst, out.src, inner.src)
                return Alu(op, begin, end, out.extent, inner.extent, *moves, use_imm, imm)


class KernelRecorder:
    """Takes the calls that make one kernel.  Each method raises QueueError for what no kernel can be."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._mode: Mode | None = None
        self._loops: list[HardwareLoop] = []
        self._uops: list[tuple[int, int, int]] = []

    def loop(self, extent: int, dst: int, src: int, wgt: int = 0) -> None:
        """Put a loop around all micro-ops, inside the loop before it; loops come before the first micro-op."""
        require(not self._uops, QueueError, "micro-op kernel", "a loop must come before the first micro-op")
        law = f"the machine has {MAX_LOOPS} loops"
        require(len(self._loops) < MAX_LOOPS, QueueError, "micro-op kernel", law, loops=len(self._loops) + 1)
        require(extent > 0, QueueError, "micro-op kernel", "a loop needs a positive extent", extent=extent)
        self._loops.append(HardwareLoop(extent, dst, src, wgt))

    def gemm(self, dst: int, src: int, wgt: int, reset: bool = False) -> None:
        """Add ACC[dst] += INP[src] WGT[wgt]^T, or ACC[dst] = 0."""
        self._push(GemmMode(reset), dst, src, wgt)

    def alu(self, op: AluOp, dst: int, src: int, imm: int | None = None) -> None:
        """Add ACC[dst] = op(ACC[dst], imm), or op(ACC[dst], ACC[src]) when `imm` is None."""
        self._push(AluMode(op, imm is not None, imm or 0), dst, src, 0)

    def _push(self, mode: Mode, dst: int, src: int, wgt: int) -> None:
        law = "every micro-op must do the same operation"
        require(self._mode in (None, mode), QueueError, "micro-op kernel", law, first=self._mode, then=mode)
        recent = [used for used, _, _ in self._uops[-HAZARD:]]
        law = f"a micro-op may not write an accumulator that one of the {HAZARD} before it wrote"
        require(dst not in recent, QueueError, "micro-op kernel", law, dst=dst, before=recent)
        limit = self._config.depth(Memory.UOP)
        require(len(self._uops) < limit, QueueError, "micro-op kernel", f"it may have {limit} micro-ops at most")
        self._mode = mode
        self._uops.append((dst, src, wgt))

    def finish(self) -> UopKernel:
        """The kernel."""
        require(self._mode is not None, QueueError, "micro-op kernel", "it has no micro-op")
        assert self._mode is not None
        dst, src, wgt = zip(*self._uops, strict=True)
        return UopKernel(self._mode, tuple(self._loops), pack_uops(self._config, dst, src, wgt))


Record = Callable[[KernelRecorder], None]
"""Code that makes a kernel."""
