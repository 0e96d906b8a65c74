"""A closed-form estimate of the time of CPU programs, after the execution-cache-memory model.

    nest    = share of the slowest core * (the longest of arithmetic, loads and stores, L2, L3, memory traffic + loops)
    program = sum over its nests, and one start of the threads for each parallel loop

Source of the shape: Treibig and Hager, Introducing a performance model for bandwidth-limited loop kernels (2009), with
transfers that overlap, as prefetching makes them (Hofmann et al., Bridging the architecture gap, 2020, of AMD Zen).
What the unrolled innermost loops touch is in registers; what the loops inside some level touch is in the smallest
cache it fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from te_lite.bounds.footprint import BufferAccess, Reach, Runs
from te_lite.bounds.index_span import form_axes
from te_lite.expr.lanes import ceildiv, larger, product, smaller

from ..core.values.options import FREE
from ..features.held_sums import HeldSums, held_sums
from ..space.trace import recorded
from .loop_nests import Loop, Nest, axes_of, free_loops, innermost_within, iterations, largest, least, running_product
from .machine import CPU, Cache

THREADS_START = 5e-6
"""Seconds to start and join the threads of a parallel loop (EPCC OpenMP micro-benchmarks: some microseconds)."""
LOADS_PER_CYCLE, STORES_PER_CYCLE = 2.0, 1.0
"""Vector loads and stores of a core in one cycle (Fog, Instruction tables: Skylake, Ice Lake, Zen 2 to 4)."""
LOOP_CYCLES = 1.5
"""Cycles of an iteration of a loop that was not unrolled: add, compare and branch, partly beside other work."""
TEST_CYCLES = 2.0
"""Cycles of a guarded value (padding), or of a vector of them: comparisons and a masked load."""
HIDDEN_TEST_CYCLES = 1.0
"""Cycles of such a value in a register tile, beside its multiply-adds: other units compare.

Of a 3x3 convolution of 56 x 56 pixels and 64 channels, programs that ask for 4 to 14 values in a step of as many cycles
took 0.9 to 1.2 times (AVX2, in turns) and some 0.7 times (AVX-512, single times) as long as those with the padding
copied, and were estimated three times as slow.  Chosen among 0.5, 1 and 2 by 120 programs of it on each machine.
"""
OWN_UNROLL = 16
"""The statements up to which the compiler unrolls a loop that nothing was said of."""
ADD_CYCLES = 4.0
"""Cycles after which a sum can be added to again (Fog, Instruction tables: 4 from Skylake and Zen 2 on)."""
UNROLLED_TURNS = 8
"""How often the body of a reduction is written out."""
LAST_TURN_CYCLES = 18.0
"""Cycles that the end of a reduction takes, which nobody foresees (Fog, Microarchitecture: 15 to 20 for a branch)."""
SHORTEST_TURN = 4
"""The least side of a square of elements that a copy turns in registers (that of `codegen_c`)."""
SHUFFLES_PER_CYCLE = 1.0
"""Shuffles of two vectors that a core makes in one cycle (Fog, Instruction tables: 512 bits, Ice Lake; Zen 4 has 2)."""
EDGES = 2
"""Vectors of a row that reach over its edges."""
NOT_HIDDEN = 0.05
"""The share of what is done beside the longest that is not hidden by it; it orders programs that one thing limits."""
FORESEEN, UNFORESEEN = 1024, 4.0
"""Bytes of a row beyond which processors foresee its lines, and how many times as long those of shorter rows take.

Products of two idle cores that read panels row by row, 512 bytes to 1 KiB of each, took 1.4 to 2.3 times as long as
those with packed panels, and no longer by estimates without this.
"""
USABLE = 0.5
"""The share of a cache that one tile can count on: the rest holds lines that pass through (rule of thumb)."""


def cpu_seconds(nests: Sequence[Nest], machine: CPU) -> Any:
    """Seconds of the programs that these nests make up (float or lanes)."""
    nests = [_packed(nest) for nest in nests] if machine.packs else nests
    cold = np.greater(_bytes_of_all(nests), machine.l3.size)
    return sum([_nest_seconds(nest, nests, machine, cold) for nest in nests], 0.0)


class Packed(BufferAccess):
    """An input in the order of reading, the lanes last: what some of the innermost loops reach lies side by side."""

    def reach(self, axes: Sequence[Any]) -> Reach:
        found = BufferAccess.reach(self, axes)
        return replace(found, run=found.elements)


def _packed(nest: Nest) -> Nest:
    """A nest with the inputs packed that are free to be stored in any order."""
    free = [tensor.op for tensor in nest.stage.op.attrs.get(FREE, ())]
    reads, lanes = [], nest.moved_axes(nest.own_loops[-1:])
    for x in nest.reads:
        if nest.bounds.state.ops[x.buffer] in free and x.forms is not None:
            along = [not form_axes(form).isdisjoint(lanes) for form in x.forms]
            order = sorted(range(len(along)), key=along.__getitem__)
            forms, shape = [tuple([found[d] for d in order]) for found in (x.forms, x.shape)]
            x = Packed(x.buffer, forms, shape, x.scope, x.element)
        reads.append(x)
    return replace(nest, reads=tuple(reads))


def _bytes_of_all(nests: Sequence[Nest]) -> Any:
    """Of all arrays: where the last cache holds them, they are there when a program is called again."""
    found = {a.buffer: a for nest in nests for a in nest.accesses}
    return sum([product(a.shape) * a.element for a in found.values()])


def _nest_seconds(nest: Nest, nests: Sequence[Nest], machine: CPU, cold: Any) -> Any:
    tasks = product([np.where(x.parallel, x.extent, 1) for x in nest.loops])
    share = ceildiv(tasks, machine.cores) / tasks
    busy_cores = smaller(tasks, machine.cores)
    starts = _starts(nest)
    held = held_sums(nest.programs, nest.structure, {x.k: x.structure for x in nests}, nest.reads, machine.unit)
    cycles = _point_cycles(nest, nests, machine) if held is None else _tile_cycles(nest, held, machine)
    arithmetic, transfers, loops = cycles  # the last ones of what is not unrolled, all on one core
    levels = _levels(nest, _loops_as_run(nest, held), machine)
    l1, l2, l3 = [_traffic(nest, levels, cache) for cache in (machine.l1, machine.l2, machine.l3)]
    side = _side_of_square(nest, machine)
    if side is not None:
        whole = 2.0 * nest.write.element * iterations(nest.loops)
        arithmetic, transfers, loops = _turning_cycles(nest, side, (arithmetic, transfers, loops))
        l1, l2, l3 = [np.where(np.greater(side, 1), smaller(x, whole), x) for x in (l1, l2, l3)]
    memory = np.where(cold, l3 * busy_cores / (machine.dram / machine.clock), 0.0)
    beside = [arithmetic, transfers, l1 / machine.l2_per_clock, l2 / machine.l3_per_clock, memory]
    return share * (_side_by_side(beside) + loops) / machine.clock + starts * THREADS_START


def _side_by_side(cycles: Sequence[Any]) -> Any:
    """Cycles of what is done at the same time: those of the longest, and what it does not hide of the others."""
    return largest(cycles) + NOT_HIDDEN * (sum(cycles) - largest(cycles))


def _side_of_square(nest: Nest, machine: CPU) -> Any:
    """The lanes of the squares that a copy is done in, if it reads along one of its loops and writes along another.

    None for what is no copy; 1 for copies that are done element by element.
    """
    if nest.stage.op.reduce_axis or nest.work.arithmetic or len(nest.reads) != 1:
        return None
    side: Any = 1
    fused: Any = 1
    for loop in reversed(nest.own_loops):
        joins = np.equal(nest.footprint.stride(nest.reads[0], loop.key), fused) & loop.vector
        fused = fused * np.where(joins, loop.extent, 1)
    strides = {x.key: [nest.footprint.stride(access, x.key) for access in nest.accesses] for x in nest.own_loops}
    for a in nest.own_loops:
        for b in nest.own_loops:
            if a.key != b.key:
                along, across = zip(strides[a.key], strides[b.key], strict=True)
                turns = np.equal(across[0], 1) & np.greater(along[0], 1) & np.greater(across[1], 1)
                turns = turns & np.equal(along[1], 1)
                shorter = np.minimum(a.extent, np.maximum(b.extent, fused))
                fits = turns & np.greater_equal(shorter, SHORTEST_TURN) & ~nest.guarded
                side = np.where(fits, np.minimum(shorter, machine.vector // nest.write.element), side)
    return side


def _turning_cycles(nest: Nest, side: Any, usual: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
    """Cycles of shuffles, of loads and stores, and of loops, of a copy in squares."""
    points = iterations(nest.loops)
    vectors, turns = points / side, np.greater(side, 1)
    shuffles = vectors * np.log2(side) / SHUFFLES_PER_CYCLE
    transfers = vectors * (1 / LOADS_PER_CYCLE + 1 / STORES_PER_CYCLE)
    found = (shuffles, transfers, vectors / side * LOOP_CYCLES)
    arithmetic, transfers, loops = [np.where(turns, new, old) for new, old in zip(found, usual, strict=True)]
    return arithmetic, transfers, loops


def _starts(nest: Nest) -> Any:
    """How often threads are started for the nest's own parallel loops."""
    own = [np.where(x.parallel, x.extent, 1) for x in nest.own_loops]
    outside = iterations(nest.loops_around)
    return np.where(np.greater(product(own), 1), outside, 0)


# ----------------------------------------------------------------------------------------------------- registers


def _tile_cycles(nest: Nest, held: HeldSums, machine: CPU) -> tuple[Any, Any, Any]:
    """Of a reduction in register tiles: each step adds to all sums of a tile, which wait for those of the step before.

    A compiler that makes vectors by itself does so of sums that are none.  What is selected along the lanes is read
    element by element in the vectors at both edges; else the sums of one place ask one question.
    """
    steps = iterations(nest.loops) / product(list(held.runs.values()))
    side: Any = np.where(held.vectorized, 1, _lanes(nest, machine)) if machine.vectorizes else 1
    vectors, elements = held.vectors / side, held.elements / side
    work = larger(nest.work.arithmetic * vectors / machine.ports, ADD_CYCLES)
    tested = [x for access, x in zip(nest.reads, held.operands, strict=True) if _is_tested(nest, access)]
    apart = np.where(_asks_in_lanes(nest), sum([x.vectors for x in tested]) * smaller(EDGES / held.pieces.count, 1), 0)
    elements = elements + apart * (held.pieces.width / side)
    asked = len(tested) * _questions(nest, held) + apart * held.pieces.width
    tests = (nest.work.tests * asked + np.where(nest.guarded, vectors, 0)) * HIDDEN_TEST_CYCLES
    moved = vectors / held.steps + held.spilled
    loads = held.loads - apart + held.broadcasts + elements + moved
    transfers = loads / LOADS_PER_CYCLE + moved / STORES_PER_CYCLE + elements / SHUFFLES_PER_CYCLE
    loops = LOOP_CYCLES / smaller(held.steps, UNROLLED_TURNS) + np.where(held.kept, LAST_TURN_CYCLES / held.steps, 0)
    return steps * _side_by_side([work, tests]), steps * transfers, steps * loops


def _questions(nest: Nest, held: HeldSums) -> Any:
    """How many places of a tile ask for themselves: the turns side by side of loops along a tested axis, but lanes."""
    asked: Any = 1
    for loop in nest.own_loops:
        if loop.key in held.runs and not loop.reduce:
            steps = nest.footprint.steps(loop.key)
            moves = sum([np.not_equal(steps[axis], 0) for axis in nest.work.tested], np.False_)
            asked = asked * np.where(np.logical_and(moves, np.logical_not(loop.vector)), held.runs[loop.key], 1)
    return asked


def _is_tested(nest: Nest, access: BufferAccess) -> bool:
    """Whether a read is one that a selection asks for: its indices have all the axes that it asks about."""
    return nest.work.tested <= set().union(*[form_axes(form) for form in access.forms or ()])


def _point_cycles(nest: Nest, nests: Sequence[Nest], machine: CPU) -> tuple[Any, Any, Any]:
    """Of a stage that computes each point at once, or of a reduction with something else inside.

    Where lanes ask for themselves whether they are inside, they are computed one by one.
    """
    lanes = np.where(_asks_in_lanes(nest), 1, _lanes(nest, machine))
    runs = innermost_within(free_loops(nest, nests), larger(nest.unroll, OWN_UNROLL), OWN_UNROLL)
    axes = nest.footprint.spans(runs)
    points = product(list(runs.values()))
    bodies = iterations(nest.loops) / points
    vectors = points / lanes
    loads = sum([_instructions(nest, a, runs, axes, lanes) for a in nest.reads])
    stores = nest.footprint.distinct(nest.write, runs, axes) / lanes
    loads = loads + (stores if nest.stage.op.reduce_axis else 0)
    work = nest.work.arithmetic * vectors / machine.ports
    tests = (nest.work.tests + 1 * nest.guarded) * TEST_CYCLES * vectors
    transfers = loads / LOADS_PER_CYCLE + stores / STORES_PER_CYCLE
    return bodies * (work + tests), bodies * transfers, bodies * LOOP_CYCLES


def _asks_in_lanes(nest: Nest) -> Any:
    """Whether what a selection asks differs from lane to lane."""
    asks: Any = np.False_
    for loop in nest.own_loops:
        steps = nest.footprint.steps(loop.key)
        lane = loop.vector & np.greater(loop.extent, 1)
        for axis in nest.work.tested:
            asks = asks | (lane & np.not_equal(steps[axis], 0))
    return asks


def _lanes(nest: Nest, machine: CPU) -> Any:
    """Values of one vector instruction: what vector loops, and unrolled ones around them, have side by side."""
    width = machine.vector // nest.write.element
    limit = larger(nest.unroll, OWN_UNROLL)
    lanes: Any = 1
    others: Any = 1
    for loop in reversed(nest.own_loops):
        unrolled = np.less_equal(others * loop.extent, limit) & np.greater(lanes, 1)
        found = machine.vectorizes & np.less_equal(others, limit) & (not loop.reduce)
        joins = np.equal(nest.footprint.stride(nest.write, loop.key), lanes) & (loop.vector | unrolled | found)
        lanes = lanes * np.where(joins, loop.extent, 1)
        others = others * np.where(joins, 1, loop.extent)
    return lanes / ceildiv(lanes, width)


def _steps_in_lanes(nest: Nest, access: BufferAccess) -> Any:
    """How far an access moves from lane to lane: along the loop that moves the result by one element."""
    steps: Any = 0
    for loop in nest.own_loops:
        along = np.greater(loop.extent, 1) & np.equal(nest.footprint.stride(nest.write, loop.key), 1)
        steps = np.where(along, nest.footprint.stride(access, loop.key), steps)
    return steps


def _instructions(nest: Nest, access: BufferAccess, runs: Runs, axes: Sequence[Any], lanes: Any) -> Any:
    """Loads of a body: whole vectors, one element for all lanes, or element by element."""
    words = nest.footprint.distinct(access, runs, axes)
    return words / np.where(np.equal(_steps_in_lanes(nest, access), 1), lanes, 1)


# -------------------------------------------------------------------------------------------------------- caches


def _loops_as_run(nest: Nest, held: HeldSums | None) -> list[tuple[Loop, ...]]:
    """The loops in the order of running, most of them by themselves: where sums are held in parts, the whole reduction
    runs for one part after the other.

    So the loops inside it are there three times, with an extent of 1 where they are not: around what is held, over the
    parts, and side by side or of the reduction.  From the last one of the reduction on none is around.
    """
    if held is None:
        return [(x,) for x in nest.loops]
    first = min([n for n, x in enumerate(nest.loops) if x.key in held.runs])
    last = max([n for n, x in enumerate(nest.loops) if x.reduce])
    around, parts, inside = [], [], []
    for n, holds in enumerate(held.tile.inside[:-1], first):
        loop, holds = nest.loops[n], holds & held.kept
        together = np.where(holds, loop.extent if loop.reduce else held.runs[loop.key], 1 if n < last else loop.extent)
        if n < last:
            around.append((replace(loop, extent=np.where(holds, 1, loop.extent)),))
        if not loop.reduce:
            parts.append(replace(loop, extent=np.where(holds, loop.extent / together, 1)))
        inside.append((replace(loop, extent=together),))
    return [*[(x,) for x in nest.loops[:first]], *around, tuple(parts), *inside]


def _levels(nest: Nest, loops: Sequence[tuple[Loop, ...]], machine: CPU) -> tuple[Any, list[Any], Any]:
    """What the innermost loops touch, from all of these loops (the first row) to none, if they run in this order.

    In bytes, in rows of each access, and in bytes that reloads move.  What the loops around a level do not move stays
    in the cache while they run.  What the innermost one that moves it touches is moved once, line by line: its next
    turns meet the lines that they have in common.
    """
    outside = running_product(*[iterations(found) for found in loops])
    found = nest.reaches(nest.accesses, loops)
    sizes = [reach.unit_bytes(machine.line) for reach in found]
    moves = [[_moves(nest, access, x) for x in loops] for access in nest.accesses]
    waits = [size * _wait(reach) * outside for size, reach in zip(sizes, found, strict=True)]
    moved = [_of_last_that_moves(wait, *which) for wait, which in zip(waits, moves, strict=True)]
    return sum(sizes), [reach.rows for reach in found], sum(moved) + moved[-1]


@recorded
def _of_last_that_moves(values: Any, *moves: Any) -> Any:
    """[depths, lanes]: for each depth the row of `values` of the last loop outside it that moves, else the first."""
    rows = np.empty((len(values), *np.broadcast_shapes(*[np.shape(x) for x in (*moves, values[0])])))
    rows[0] = values[0]
    for d, moved in enumerate(moves):
        rows[d + 1] = np.where(moved, values[d], rows[d])
    return rows


def _wait(reach: Reach) -> Any:
    """How much longer the lines of rows that lie apart take: nobody foresees where the next one is."""
    return np.where(np.greater(reach.rows, 1) & np.less_equal(reach.run * reach.element, FORESEEN), UNFORESEEN, 1.0)


def _moves(nest: Nest, access: BufferAccess, loops: Sequence[Loop]) -> Any:
    """Whether one of some loops moves an access."""
    moves: Any = np.False_
    if axes_of(access).isdisjoint(nest.moved_axes(loops)):
        return moves
    for x in loops:
        moves = moves | (nest.footprint.moves(access, x.key) & np.greater(x.extent, 1))
    return moves


def _traffic(nest: Nest, levels: tuple[Any, list[Any], Any], cache: Cache) -> Any:
    """Bytes that pass in and out of a cache: the least over the levels that fit it.

    Rows a power of two apart crowd in few sets of it, over which they are spread; those of different arrays seldom
    crowd in the same ones.
    """
    size, rows_of_each, moved = levels
    fits = np.less_equal(size, cache.size * USABLE)
    for access, rows in zip(nest.accesses, rows_of_each, strict=True):
        crowd = np.gcd(product(access.shape[-1:]) * access.element, cache.way)
        fits = fits & np.less_equal(np.where(np.greater(rows, 1), rows * crowd, 0), cache.size)
    return least(moved, fits)
