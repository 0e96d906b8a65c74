"""What the 32 threads of a warp do to memory together: sectors, banks, and what a block fetches.

The addresses of a warp are a sum over digits (extent, step): the loops that it runs through at once, fastest first.
The counts are exact when steps grow by whole multiples, as the loops of tiles do; otherwise they are estimates.
"""

from __future__ import annotations

import numpy as np

from te_lite.bounds.loop_scope import BLOCKS, THREADS
from te_lite.bounds.nest import Nest

from ..space.trace import recorded
from .lanes import Value
from .row_columns import LoopExtents, Memory
from .row_plans import RowPlan

WARP = 32
SECTOR_BYTES = 32
BANKS = 32
WORD_BYTES = 4

Digits = list[tuple[Value, Value]]
"""(extent, step in bytes)."""


def warp_columns(memory: Memory) -> dict[str, Value]:
    """`coalescing` of an access of global memory, `bank_conflict` of one of shared memory."""
    match memory.access.scope:
        case "global":
            return {"coalescing": _coalescing(memory)}
        case "shared":
            return {"bank_conflict": _bank_conflict(memory)}
        case _:
            return {}


def fetched_bytes(row: RowPlan, memory: Memory, bytes_: Value, touched: list[Value], shape: LoopExtents) -> Value:
    """Bytes of global memory that an access fetches for one block: a shared copy anew each time it is made, anything
    else once (`touched` by the block), since the caches keep it."""
    if memory.access.scope != "global" or memory.access.kind != "read":
        return 0.0
    level = _block_level(row.nest)
    if row.scope == "shared":
        return bytes_ / (shape.inside[0] / shape.inside[level])
    return touched[level]


def _block_level(nest: Nest) -> int:
    """The level at which the loops of one block run."""
    return max([j + 1 for j, loop in enumerate(nest.loops) if loop.tag in BLOCKS], default=0)


def _digits(memory: Memory) -> tuple[Digits, Value, Value]:
    """`(digits, elements at once, width)`: the digits of a warp's elements, fastest first, how many elements a warp
    accesses at once and how many of them each thread (the lanes of its vector loops).

    A run of threads through a fused iterator that was split again counts through that one's digits.
    """
    cover, nest, size = memory.cover, memory.cover.nest, memory.access.element
    strides = memory.lanes.strides(nest.stage)
    digits: Digits = []
    threads: Value = 1.0
    width: Value = 1.0
    for j in reversed(range(len(nest.loops))):
        loop = nest.loops[j]
        if loop.tag == "vectorize":
            width = width * cover.extents[j]
        elif loop.tag in THREADS:
            threads = threads * cover.extents[j]
        else:
            continue
        if loop.fused < 0:
            digits.append((cover.extents[j], memory.loop_steps.get(j, 0.0) * size))
        elif loop.tag in THREADS:
            for part in nest.parts[loop.fused]:
                step = np.abs(memory.axis_steps.get(part.axis, 0.0)) * strides.get(part.uid, 1.0) * size
                digits.append((memory.lanes.extent(loop.stage, part.uid), step))
    return digits, np.minimum(threads, WARP) * width, width


def _coalescing(memory: Memory) -> Value:
    """The bytes a warp uses of the sectors it touches, in (0, 1]."""
    digits, rest, _ = _digits(memory)
    span: Value = float(memory.access.element)
    runs: Value = 1.0
    used: Value = span
    for extent, step in digits:
        taken = np.minimum(extent, rest)
        rest = np.ceil(rest / taken)
        moves = np.greater(step, 0)
        near = step <= np.maximum(span, SECTOR_BYTES)
        span = np.where(moves & near, span + step * (taken - 1), span)
        runs = np.where(moves & ~near, runs * taken, runs)
        used = np.where(moves, used * taken, used)
    return np.minimum(1.0, used / (runs * np.ceil(span / SECTOR_BYTES) * SECTOR_BYTES))


def _bank_conflict(memory: Memory) -> Value:
    """How many words of one bank a warp asks for in each iteration of its vectors (1: no conflict)."""
    digits, rest, width = _digits(memory)
    words: Value = 1.0
    banks: Value = 1.0
    for extent, step in digits:
        taken = np.minimum(extent, rest)
        rest = np.ceil(rest / taken)
        moves = np.greater(step, 0)
        reached = np.minimum(taken, _banks(step))
        words = np.where(moves, words * taken, words)
        banks = np.where(moves, np.minimum(BANKS, banks * reached), banks)
    return np.maximum(1.0, words / banks / width)


@recorded
def _banks(step: Value) -> Value:
    """The banks that steps of so many bytes reach."""
    return BANKS / np.gcd(np.asanyarray(np.ceil(step / WORD_BYTES)).astype(np.int64), BANKS)
