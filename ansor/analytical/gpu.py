"""A closed-form estimate of the time of GPU programs.

    program = sum over its kernels of  launch + max(SM time, L2 time, DRAM time) + a little of the others
    SM time = over the rounds of resident blocks:  max(blocks * busy, alone)
    busy    = max(arithmetic, issue, shared memory and load/store) cycles of one block, more where few warps take turns
    alone   = latencies of one block that no other warp of it can hide

A thread keeps in registers what the unrolled innermost loops touch (`Body`): so many loads stand against so many
multiply-adds.  Nothing is fitted to a program; every constant below is a figure of the hardware or of the compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.bounds.footprint import BufferAccess, Runs
from te_lite.bounds.loop_scope import BLOCKS, THREADS, LoopKey
from te_lite.expr.lanes import ceildiv, larger, product, smaller
from te_lite.schedule.state import FuseRel, SplitRel

from .fragment_costs import fragment_costs
from .loop_nests import (
    Nest,
    extent_of_tags,
    free_loops,
    innermost_within,
    is_serial,
    iterations,
    largest,
    least,
    running,
    running_product,
)
from .machine import GPU

LAUNCH = 1.35e-6
"""Seconds of an empty kernel that is queued behind another one (measured on an H200, see benchmarks)."""
FMA_LATENCY = 4
"""Cycles until a result can be used (Jia et al., Dissecting the NVIDIA Volta GPU architecture, 2018)."""
SHARED_LATENCY = 29
"""Cycles of a load from shared memory (Luo et al., Benchmarking and dissecting the Hopper architecture, 2024)."""
L1_LATENCY, L2_LATENCY = 41, 270
"""Cycles of a load from global memory that hits L1, or L2 (same source)."""
BARRIER = 20
"""Cycles until all warps of a block pass a barrier, beyond waiting for the slowest."""
LOOP_INSTRUCTIONS = 3
"""Instructions of a loop that was not unrolled, per iteration: add, compare, branch."""
TEST_INSTRUCTIONS = 4
"""Instructions of a guarded value (padding): two comparisons, their conjunction, a selection."""
SHIFT_INSTRUCTIONS, DIVISION_INSTRUCTIONS = 2, 6
"""Instructions of a quotient and remainder by a constant: shift and mask, or multiplications with the reciprocal."""
OWN_UNROLL = 64
"""The statements up to which nvcc unrolls a loop that no pragma mentions."""
BASE_REGISTERS = 24
"""Registers of a thread for addresses and counters."""
MAX_REGISTERS = 255
"""Registers that a thread can name; it has fewer where those of its block are more than a multiprocessor has."""
BLOCK_BYTES = 1024
"""Shared memory that the system takes of each block (CUDA C++ programming guide, compute capability 8 and 9)."""
SPILL_INSTRUCTIONS = 2
"""A value that is no register is loaded and stored around each use."""
TAGS = 4
"""Cache lines that the L1 cache looks up in one cycle."""
L2_PORT = 64
"""Bytes that a multiprocessor gets from L2 in one cycle (A100 whitepaper)."""
DELAY = 0.05
"""The share of what runs beside the longest part that is not hidden by it; it orders programs of one bottleneck."""
UNFILLED = 0.5
"""Warps of a scheduler that would take as many cycles as it idles, for the others wait for results and barriers.

Measured on an H200: of 15 tasks of KernelBench that take 0.5 to 19 ms, the first choice among the programs of a search
took 1.35 times as long as the best one without this figure, 1.12 times with it, `SETTLE`, the waiting that blocks share
and the registers of operands; the mean rank correlation was 0.51 and 0.64.  0.3 to 1.0 are within 0.05 of that.
"""
SETTLE = 100
"""Cycles that a block loses around a barrier, and that other blocks of its multiprocessor can use (fitted with it)."""
WIDE_TILE, BANK_CONFLICTS = (8, 16), 1.2
"""Sides of a thread's tile of a product, and how many times as long multiply-adds of narrower tiles take.

Their operands lie in one bank of registers (`codegen_cuda/passes/outer_product.py`).  In the records of a search on an
H200 the best products take 1.3 to 1.6 cycles a multiply-add; of convolutions no tile takes less.
"""
SECTOR, LINE, BANKS = 32, 128, 32


@dataclass(frozen=True)
class Body:
    """The unrolled innermost loops of a nest, run by one thread.

    A thread runs `times` bodies, of `points` iterations each.  In one body it issues `loads` and `stores`
    (instructions), does `index` operations on integers (divisions of indices), keeps the load/store unit busy for
    `wavefronts` cycles a warp, and waits `wait` cycles for its data; `threads` threads of a block run it.
    """

    times: Any
    points: Any
    loads: Any
    stores: Any
    index: Any
    wavefronts: Any
    wait: Any
    threads: Any


def gpu_seconds(nests: Sequence[Nest], machine: GPU) -> Any:
    """Seconds of the kernels that these nests make up (float or lanes)."""
    total: Any = 0.0
    for kernel in sorted({nest.kernel for nest in nests}):
        total = total + _kernel_seconds([nest for nest in nests if nest.kernel == kernel], machine)
    return total


def _kernel_seconds(nests: Sequence[Nest], machine: GPU) -> Any:
    blocks = largest([extent_of_tags(nest.loops, BLOCKS) for nest in nests])
    threads = largest([extent_of_tags(nest.loops, THREADS) for nest in nests])
    shared = sum([product(n.write.shape) * n.write.element * _tiles(n) for n in nests if n.scope == "shared"])
    fragments = fragment_costs(nests, machine)
    shared = shared + fragments.shared
    registers = _registers(nests) + fragments.registers
    here = ceildiv(blocks, machine.multiprocessors)
    resident = smaller(_resident(threads, shared, registers, machine), here)
    room = larger(machine.l1 - shared * resident, 0)
    through = [_fetched_bytes(nest, room) for nest in nests]
    found = [pair for pair in zip(nests, through, strict=True) if pair[0].scope not in fragments.apart]
    fetched = sum([own for nest, (own, _) in zip(nests, through, strict=True) if nest.scope not in fragments.apart[1:]])
    bodies = [_body(nest, nests, machine, misses) for nest, (_, misses) in found]
    most = smaller(MAX_REGISTERS, machine.registers // larger(threads, 1))
    spilled = np.where(np.greater(registers, most), 1, 0)
    busy, alone, wait = _cycles([nest for nest, _ in found], bodies, spilled, machine)
    if not fragments.apart:  # one warp of a scheduler keeps its tensor core busy
        warps = resident * ceildiv(threads, machine.warp) / machine.schedulers
        busy = busy * (1 + UNFILLED / np.maximum(warps, 1 / machine.schedulers))
        iterations = sum([body.times for body, (nest, _) in zip(bodies, found, strict=True) if nest.scope == "shared"])
        busy = busy + (SETTLE * iterations + wait) / resident
    busy, alone = np.maximum(busy, fragments.busy), alone + fragments.alone
    busy = np.maximum(busy, fetched / L2_PORT)
    alone = np.maximum(busy, alone)
    rounds, rest = here // resident, here % resident
    last = np.where(np.greater(rest, 0), np.maximum(rest * busy, alone), 0.0)
    cycles = rounds * np.maximum(resident * busy, alone) + last
    unique = _unique_bytes(nests)
    missed = np.maximum(unique, blocks * fetched * np.clip(1 - machine.l2 / unique, 0, 1))
    l2 = blocks * fetched / machine.l2_per_clock
    parts = (cycles / machine.clock, l2 / machine.clock, missed / machine.dram)
    longest = np.maximum(np.maximum(parts[0], parts[1]), parts[2])
    return LAUNCH + longest + DELAY * (sum(parts) - longest)


# -------------------------------------------------------------------------------------------------- resources


def _tiles(nest: Nest) -> int:
    """Tiles that a shared copy has room for; of two, one is fetched while nobody waits for it."""
    return nest.stage.tiles


def _registers(nests: Sequence[Nest]) -> Any:
    """Registers of a thread: its part of accumulators, one set for each virtual thread, and the rest."""
    words: Any = BASE_REGISTERS
    for nest in nests:
        if nest.scope == "local":
            copies = extent_of_tags(nest.loops, ("vthread",))
            words = words + nest.bounds.kept_points(nest.k) * copies * nest.write.element // 4 + _operands(nest, nests)
    return words


def _operands(nest: Nest, nests: Sequence[Nest]) -> Any:
    """Registers of what a body reads of shared memory: what the outermost loop that reads it again has inside."""
    runs = _unrolled(nest, nests)
    order = [x for x in nest.loops if x.key in runs and x.tag != "vthread"]
    order += [x for x in nest.loops if x.key in runs and x.tag == "vthread"]
    total: Any = 0
    for access in [access for access in nest.reads if access.scope == "shared"]:
        held: Any = 0
        for n, loop in reversed(list(enumerate(order))):
            again = np.equal(nest.footprint.move(access, loop.key), 0) & np.greater(runs[loop.key], 1)
            inside = {x.key: runs[x.key] for x in order[n + 1 :]}
            held = np.where(again, nest.footprint.distinct(access, inside, nest.footprint.spans(inside)), held)
        total = total + held * access.element // 4
    return total


def _resident(threads: Any, shared: Any, registers: Any, machine: GPU) -> Any:
    """Blocks that a multiprocessor holds at a time, at least 1."""
    warps = ceildiv(threads, machine.warp)
    held = larger(smaller(registers, MAX_REGISTERS), 32)
    by_registers = machine.registers // (warps * machine.warp * held)
    by_threads = machine.threads // (warps * machine.warp)
    by_shared = machine.shared // (shared + BLOCK_BYTES)
    fits = smaller(smaller(by_registers, by_threads), smaller(by_shared, machine.blocks))
    return larger(fits, 1)


# ------------------------------------------------------------------------------------------------------ bodies


def _unrolled(nest: Nest, nests: Sequence[Nest]) -> dict[LoopKey, Any]:
    """How far the loops of a body run; virtual threads sink to its inside.

    Loops whose iterations differ in what they test are as good as not unrolled: each waits for its own load.
    """
    serial = [x for x in free_loops(nest, nests) if is_serial(x) and x.tag != "vthread"]
    free = [*serial, *[x for x in nest.loops if x.tag == "vthread"]]
    varies: Any = 0
    for loop in free:
        steps = nest.footprint.steps(loop.key)
        for axis in nest.work.tested:
            varies = larger(varies, np.where(np.greater(loop.extent, 1) & np.not_equal(steps[axis], 0), 1, 0))
    own = np.where(varies, 1, OWN_UNROLL)
    return innermost_within(free, np.where(varies, 1, larger(nest.unroll, own)), own)


def _body(nest: Nest, nests: Sequence[Nest], machine: GPU, hidden: Any) -> Body:
    runs = _unrolled(nest, nests)
    points = product(list(runs.values()))
    serial = [x for x in nest.loops if is_serial(x)]
    axes = nest.footprint.spans(runs)
    loads: Any = 0
    wavefronts: Any = 0
    wait: Any = FMA_LATENCY
    ahead = {n.write.buffer for n in nests if _tiles(n) > 1}
    for access in nest.reads:
        if access.scope == "local":
            continue
        words = nest.footprint.distinct(access, runs, axes)
        width = _vector_width(nest, access, runs)
        loads = loads + words / width
        if access.scope == "shared":
            wavefronts = wavefronts + words / width * _bank_cycles(nest, access, machine)
            wait = wait if access.buffer in ahead else np.maximum(wait, SHARED_LATENCY)
        else:
            wavefronts = wavefronts + words * _line_cycles(access, nest, machine)
            wait = np.maximum(wait, L1_LATENCY + (L2_LATENCY - L1_LATENCY) * hidden)
    written = nest.footprint.distinct(nest.write, runs, axes)
    stores = 0 if nest.write.scope == "local" else written / _vector_width(nest, nest.write, runs)
    index = points / _vectors(nest) * _division_instructions(nest)
    threads = extent_of_tags(nest.loops, THREADS)
    return Body(iterations(serial) / points, points, loads, stores, index, wavefronts + stores, wait, threads)


def _vectors(nest: Nest) -> Any:
    """Lanes of the explicit vector loops."""
    return product([x.extent for x in nest.loops if x.tag == "vectorize"])


def _division_instructions(nest: Nest) -> Any:
    """Instructions, per iteration, that take a fused and split loop apart into the axes of the stage."""
    stage = nest.stage
    split = {rel.parent for rel in stage.relations if isinstance(rel, SplitRel)}
    total: Any = 0
    for rel in stage.relations:
        if isinstance(rel, FuseRel) and rel.fused in split:
            for part in rel.parts[1:]:
                extent: Any = stage.vars[part].extent
                cost = np.where(np.equal(extent & (extent - 1), 0), SHIFT_INSTRUCTIONS, DIVISION_INSTRUCTIONS)
                total = total + np.where(np.equal(extent, 1), 0, cost)
    return total


def _warp_runs(nest: Nest, warp: int) -> dict[LoopKey, Any]:
    """The threads of one warp and the lanes of a vector, running."""
    left: Any = warp
    runs: dict[LoopKey, Any] = {}
    for loop in reversed(nest.loops):
        if loop.tag in THREADS:
            runs[loop.key] = smaller(loop.extent, left)
            left = ceildiv(left, loop.extent)
        elif loop.tag == "vectorize":
            runs[loop.key] = loop.extent
    return runs


def _vector_width(nest: Nest, access: BufferAccess, runs: Runs) -> Any:
    """Words of one load: what a body reaches side by side, from front to back, in a power of two up to 4."""
    run: Any = 1
    for loop in reversed(nest.loops):
        if loop.key in runs:
            run = run * np.where(np.equal(nest.footprint.move(access, loop.key), run), runs[loop.key], 1)
    return np.where(np.equal(run % 4, 0), 4, np.where(np.equal(run % 2, 0), 2, 1))


def _bank_cycles(nest: Nest, access: BufferAccess, machine: GPU) -> Any:
    """Cycles of one load of a warp from shared memory: the worst number of distinct words in one bank."""
    ways: Any = 1
    left: Any = machine.warp
    for loop in reversed(nest.loops):
        if loop.tag in THREADS:
            lanes = smaller(loop.extent, left)
            left = ceildiv(left, loop.extent)
            step = nest.footprint.stride(access, loop.key) * access.element // 4
            hit = ceildiv(lanes * np.gcd(step, BANKS), BANKS)
            ways = ways * np.where(np.equal(step, 0), 1, hit)
    return np.minimum(ways, machine.warp)


def _line_cycles(access: BufferAccess, nest: Nest, machine: GPU) -> Any:
    """Cycles that the L1 cache needs, per word of a thread, for one load of a warp from memory."""
    together = _warp_runs(nest, machine.warp)
    axes, words = nest.footprint.spans(together), product(list(together.values()))
    reach = access.reach(axes)
    lines = smaller(reach.elements, words) / reach.run * ceildiv(reach.run * access.element, LINE)
    return np.maximum(lines / TAGS, words * access.element / LINE) / _vectors(nest)


# ------------------------------------------------------------------------------------------------------ cycles


def _cycles(nests: Sequence[Nest], bodies: Sequence[Body], spilled: Any, machine: GPU) -> tuple[Any, Any, Any]:
    """Cycles that one block keeps the busiest unit of a multiprocessor busy, that it takes when it is alone, and that
    it waits for memory and at barriers, which other blocks use in part."""
    arithmetic: Any = 0.0
    issue: Any = 0.0
    memory: Any = 0.0
    chain: Any = 0.0
    wait: Any = 0.0
    for nest, body in zip(nests, bodies, strict=True):
        warps = ceildiv(body.threads, machine.warp) * body.times
        work = body.points * nest.work.arithmetic * _bank_conflicts(nest)
        tests = body.points * nest.work.tests * TEST_INSTRUCTIONS
        spill = spilled * body.points * SPILL_INSTRUCTIONS if nest.scope == "local" else 0
        others = tests + body.loads + body.stores + body.index + spill + LOOP_INSTRUCTIONS
        arithmetic = arithmetic + warps * work
        issue = issue + warps * (work + others)
        memory = memory + warps * (body.wavefronts + spill)
        chain = chain + body.times * (work * machine.warp * machine.schedulers / machine.lanes + others)
        wait = wait + body.times * ((body.wait if _tiles(nest) == 1 else 0) + BARRIER * (nest.scope == "shared"))
    arithmetic = arithmetic * machine.warp / machine.lanes
    busy = np.maximum(np.maximum(arithmetic, issue / machine.schedulers), memory)
    return busy, wait + np.maximum(busy, chain), wait


def _bank_conflicts(nest: Nest) -> Any:
    return np.where(has_wide_tile(nest), 1.0, BANK_CONFLICTS) if _is_product(nest) else 1.0


def has_wide_tile(nest: Nest) -> Any:
    """Whether a thread sums up a product in a tile with many values of each operand (a truth value or lanes)."""
    if not _is_product(nest):
        return False
    runs = {x.key: x.extent for x in nest.loops if is_serial(x) and not x.reduce}
    axes = nest.footprint.spans(runs)
    sides = [nest.footprint.distinct(access, runs, axes) for access in nest.reads if access.scope == "shared"]
    short, long = WIDE_TILE
    return np.greater_equal(smaller(*sides), short) & np.greater_equal(larger(*sides), long)


def _is_product(nest: Nest) -> bool:
    """Whether a nest keeps sums in registers, along one axis, of two operands that are in shared memory."""
    shared = [access for access in nest.reads if access.scope == "shared"]
    return nest.scope == "local" and len(nest.stage.op.reduce_axis) == 1 and len(shared) == 2


# ------------------------------------------------------------------------------------------------------- bytes


def _fetched_bytes(nest: Nest, room: Any) -> tuple[Any, Any]:
    """What a block moves between L1, with `room` bytes for it, and L2.

    In bytes of whole sectors; and, as a share, what it fetches of all that it asks for each time the nest starts.
    """
    inner = [x for x in nest.loops if x.tag not in BLOCKS]
    starts = len([x for x in nest.loops_around if x.tag not in BLOCKS])
    outside = running_product(*[x.extent for x in inner])
    asked: Any = 1e-9
    fetched: Any = 0.0
    written: Any = 0.0
    accesses = [access for access in nest.accesses if access.scope == "global"]
    for access, reach in zip(accesses, nest.reaches(accesses, [(x,) for x in inner]), strict=True):
        sectors = reach.unit_bytes(SECTOR)
        through = least(sectors * outside, np.less_equal(sectors, room))
        if access is nest.write:
            written = through
        else:
            fetched = fetched + through
            asked = asked + (sectors * outside)[starts]
    return fetched + written, np.minimum(fetched / asked, 1.0)


def _unique_bytes(nests: Sequence[Nest]) -> Any:
    """Bytes of all buffers in memory that the kernel touches."""
    sizes: dict[int, Any] = {}
    for nest in nests:
        axes = nest.footprint.spans(running(nest.loops))
        for access in nest.accesses:
            if access.scope == "global":
                sizes[access.buffer] = larger(sizes.get(access.buffer, 1), access.elements(axes) * access.element)
    return sum(sizes.values())
