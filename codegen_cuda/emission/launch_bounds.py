"""Launch bounds: the threads of a kernel, and the blocks that shall fit a multiprocessor.

Left alone, ptxas may take so many registers that one block fits, or so few that arrays spill.  A kernel that reduces
across threads while it keeps a row in registers waits between its phases (read, reduce, write), so other blocks must
run meanwhile: each thread gets what its arrays need at their fullest (`live_words`) and `OTHER_REGISTERS`, and as many
blocks are asked for as these and shared memory leave.  By ptxas for sm_90, softmax and layer norm of 1,024 to 16,384
columns spill nothing so, or up to 24 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from te_lite.expr.dtype import BYTES
from te_lite.loops.stmt import Alloc, Buffer, For, Seq, Stmt, ThreadReduce, stmts_of, stored_in

from ..passes.registers import local_bytes
from ..program.cuda_program import KernelNest, loads_in

MANY_LOCAL_BYTES = 128
REGISTERS, SHARED_BYTES = 65536, 227 * 1024
OTHER_REGISTERS = 32
THREADS = 1536
WORD = 4


def launch_bounds(nest: KernelNest, threads: int) -> str:
    """The arguments of `__launch_bounds__` of a kernel whose blocks have so many threads."""
    words = live_words(nest.body) if any(isinstance(s, ThreadReduce) for s in stmts_of(nest.body)) else 0
    if words > 0:
        fit = SHARED_BYTES // max(sum([b.size * BYTES[b.dtype] for b in nest.allocated("shared")]), 1)
        blocks = min(REGISTERS // (threads * (words + OTHER_REGISTERS)), THREADS // threads, fit)
        return f"{threads}, {max(blocks, 1)}"
    return f"{threads}, 1" if local_bytes(nest.body) >= MANY_LOCAL_BYTES else str(threads)


def live_words(body: Stmt) -> int:
    """The most 32-bit words of local arrays, of several elements each, that hold something at a time.

    An array is counted from the first statement that stores to it up to the last one that reads it, which is not
    counted: it may be the one that replaces its elements by others.
    """
    uses: dict[Buffer, list[int]] = {}
    for place, s in enumerate(_phases(body)):
        for buffer in _arrays(s):
            uses.setdefault(buffer, []).append(place)
    spans = [(places[0], max(places[-1], places[0] + 1), b.size * BYTES[b.dtype]) for b, places in uses.items()]
    moments = {start for start, _, _ in spans}
    return max([sum(size for a, z, size in spans if a <= at < z) for at in moments], default=0) // WORD


def _phases(s: Stmt) -> Iterator[Stmt]:
    """The statements that follow each other, allocations and loops of one iteration taken away."""
    match s:
        case Alloc(body=body) | For(extent=1, body=body):
            yield from _phases(body)
        case Seq(stmts=stmts):
            for x in stmts:
                yield from _phases(x)
        case _:
            yield s


def _arrays(s: Stmt) -> set[Buffer]:
    """The local arrays of several elements that a statement uses."""
    used = stored_in(s) | {e.buffer for e in loads_in(s)}
    return {b for b in used if b.storage == "local" and b.size > 1}
