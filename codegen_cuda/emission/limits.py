"""Resource limits of a program, known before it is compiled.

`usage` adds up every kernel of a lowered program as the emitter will write it; `check_limits` compares that with the
numbers of a device and says what exceeds them.  Registers are no limit: `__launch_bounds__` makes ptxas spill what
does not fit, so they are estimated (for ranking, and to see spills coming), never refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from te_lite.errors import require
from te_lite.expr.dtype import BYTES
from te_lite.loops.stmt import For, ForKind, LoweredFunc, stmts_of, stored_in

from ..passes.registers import MAX_ARRAY_BYTES, index_vars, local_bytes, register_loops, unrolled_size
from ..program.cuda_program import BLOCK_TAGS, MOST_BLOCKS, MOST_THREADS, THREAD_TAGS, KernelNest, Shape, loads_in
from ..program.errors import LimitError
from .kernel_parts import emitted_nests
from .shared import shared_layout

BASE_REGISTERS = 20
REGISTERS_PER_THREAD = 255
VECTORS_PER_LOOP = 8
KIB = 1024
SHARED_ON_REQUEST = {
    "sm_70": 96 * KIB, "sm_72": 96 * KIB, "sm_75": 64 * KIB, "sm_80": 163 * KIB, "sm_86": 99 * KIB, "sm_87": 163 * KIB,
    "sm_89": 99 * KIB, "sm_90": 227 * KIB, "sm_100": 227 * KIB, "sm_103": 227 * KIB, "sm_110": 227 * KIB,
    "sm_120": 99 * KIB, "sm_121": 99 * KIB,
}  # fmt: skip
"""Bytes of shared memory that a block may have on request (CUDA programming guide, table of compute capabilities)."""


@dataclass(frozen=True)
class Limits:
    """The numbers of a device (defaults: every NVIDIA GPU since sm_70).

    `shared_bytes` of a block: 48 KiB, or what the device grants on request; `local_bytes` of a thread;
    `vector_loop_bytes` of one vectorized loop, which the emitter cuts into accesses of at most 16 bytes; `statements`
    of a kernel after unrolling, a bound on compile time.
    """

    threads_per_block: int = 1024
    block: Shape = MOST_THREADS
    grid: Shape = MOST_BLOCKS
    shared_bytes: int = 49152
    local_bytes: int = 512 * 1024
    vector_loop_bytes: int = 16 * VECTORS_PER_LOOP
    statements: int = 1 << 16

    @classmethod
    def of_architecture(cls, arch: str) -> Limits:
        """What every device of an architecture like `sm_90a` can do; 48 KiB of shared memory where it is unknown."""
        return cls(shared_bytes=SHARED_ON_REQUEST.get(arch.rstrip("af"), cls.shared_bytes))


@dataclass(frozen=True)
class KernelUsage:
    """One kernel: launch shape, bytes of shared memory (block) and of local arrays (thread), the longest vectorized
    loop in bytes, statements after unrolling, and an estimate of the registers of a thread.

    `registers` is 20 for indices and operands plus the local arrays that unrolling iterations into registers, at most
    255 and at most what the threads of a block can share; ptxas stays within a factor of two of it on most kernels, and
    uses more where it keeps many loads in flight.
    """

    name: str
    grid: Shape
    block: Shape
    shared_bytes: int
    local_bytes: int
    vector_loop_bytes: int
    statements: int
    registers: int

    @property
    def threads(self) -> int:
        return prod(self.block)


def usage(func: LoweredFunc) -> tuple[KernelUsage, ...]:
    """What each kernel of a program uses.  Raises EmitError for programs that cannot be emitted."""
    nests, _ = emitted_nests(func)
    return tuple([_usage(f"{func.name}_kernel{k}", nest) for k, nest in enumerate(nests)])


def _usage(name: str, nest: KernelNest) -> KernelUsage:
    layout = shared_layout(nest)
    vectors = [_loop_bytes(s) for s in stmts_of(nest.body) if isinstance(s, For) and s.kind is ForKind.VECTORIZED]
    return KernelUsage(
        name, nest.grid, nest.block, layout[-1].end if layout else 0, local_bytes(nest.body), max(vectors, default=0),
        unrolled_size(nest.body, register_loops(nest.body, index_vars(nest.body))), _registers(nest),
    )  # fmt: skip


def _registers(nest: KernelNest) -> int:
    arrays = [b for b in nest.allocated("local") if b.size * BYTES[b.dtype] <= MAX_ARRAY_BYTES]
    small = [b.size * max(BYTES[b.dtype], 4) // 4 for b in arrays]
    most = min(REGISTERS_PER_THREAD, 65536 // prod(nest.block))
    return min(BASE_REGISTERS + sum(small), most)


def _loop_bytes(loop: For) -> int:
    buffers = stored_in(loop.body) | {e.buffer for e in loads_in(loop.body)}
    return loop.extent * max([BYTES[b.dtype] for b in buffers], default=0)


def check_limits(func: LoweredFunc, limits: Limits) -> list[str]:
    """One sentence for each number that a program exceeds; no sentence when the device can run it."""
    return [text for k in usage(func) for text in _exceeded(k, limits)]


def require_limits(func: LoweredFunc, limits: Limits) -> None:
    """Refuse a program that exceeds `limits`.  Raises LimitError with one sentence for each number."""
    found = check_limits(func, limits)
    require(not found, LimitError, func.name, "; ".join(found))


def _exceeded(k: KernelUsage, limits: Limits) -> Iterator[str]:
    numbers = [
        ("threads of a block", k.threads, limits.threads_per_block),
        *[(tag, n, most) for tag, n, most in zip(THREAD_TAGS, k.block, limits.block, strict=True)],
        *[(tag, n, most) for tag, n, most in zip(BLOCK_TAGS, k.grid, limits.grid, strict=True)],
        ("bytes of shared memory of a block", k.shared_bytes, limits.shared_bytes),
        ("bytes of local memory of a thread", k.local_bytes, limits.local_bytes),
        ("bytes of a vectorized loop", k.vector_loop_bytes, limits.vector_loop_bytes),
        ("statements after unrolling", k.statements, limits.statements),
    ]
    for what, number, most in numbers:
        if number > most:
            yield f"{k.name}: {what}: at most {most}, got {number}"
