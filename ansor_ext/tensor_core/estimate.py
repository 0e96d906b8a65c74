"""What products on tensor cores cost a block: instructions of a warp, and what brings their fragments.

    busy    of a block, as a part of what the multiprocessor can do: the largest of
            instructions / rate of its tensor cores, fragments / bandwidth of shared memory, instructions to issue
    alone   what the block takes by itself: instructions of the fullest scheduler, and of each step and iteration the
            latencies that no other warp hides

A warp executes `mma.sync` at a rate of its own (`GPU.tensor`), which on Hopper is less than that of the chip.

Groups of warps read B from shared memory once for four of them, at the chip's own rate (`GPU.groups`), and wait for
their products once an iteration.

Floats in parts (`Element.parts`) are cut once a step, multiplied by three instructions in a row, whose sum is added.
Groups of warps cut B together, in shared memory, and A before their products begin; sums are added once an iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ansor.analytical.fragment_costs import FragmentCosts
from ansor.analytical.loop_nests import Loop, Nest, extent_of_tags, is_serial, iterations
from ansor.analytical.machine import GPU
from te_lite.bounds.loop_scope import LANES
from te_lite.expr.dtype import BYTES
from te_lite.expr.lanes import ceildiv, product, smaller
from te_lite.schedule.state import SplitRel, Stage

from ..analysis.own_stages import parts_added
from ..pipeline.steps import by_copy_engine
from .fragment_storage import FragmentStorage, fragment_storage
from .mma import GROUP_ROW_BYTES, Mma

MMA_LATENCY = 33
"""Cycles of `mma.sync` m16n8k16 (Luo et al., Benchmarking and dissecting the Hopper architecture, 2024)."""
LOAD_LATENCY = 29
"""Cycles of a load from shared memory (same source)."""
MEMORY_LATENCY = 600
"""Cycles until a tile from memory, or L2 under load, is there (same source)."""
ITERATION = 60
"""Cycles of an iteration that nothing of the block fills: waiting for its copies, a barrier, the first fragments."""
CUT_INSTRUCTIONS, CUT_CYCLES = 4, 6
"""That put a float of each lane into two parts, and of the unit of 16 lanes that does three of them."""
PART, STORED_CYCLES, TURN = 1000, 20, 23
"""Cycles of a part of the result of a ring, without products, of a value of each thread of a group, and of an iteration
for each group of warps, which waits for a tile and releases one."""
SHARED_BYTES, OVERLAP = 128, 0.36
"""That a multiprocessor reads from shared memory in one cycle; of what a ring writes and reads there, the share that
nothing hides."""
RING_L2, SECTOR, CLUSTERED = 10000, 32, 1200
"""Bytes that L2 gives all rings in one cycle, half of that where rows begin within a sector; cycles of a launch of
clusters.  These and the figures of parts were fitted to 119 rings of 16 bits on an H200 whose groups took no turns yet.
Of these and those that add up parts, 14 runs, the first by estimate takes 2.7 % longer than the best measured one (15 %
at most), the best of the first four 0.5 %; of five in TF32, which are not in the fit, the first takes 7 % longer."""
CHAINED = 2.4
"""How much longer products of single warps take where one multiplies what the other gives, as in attention, than in
turns: what is between them holds them up.  The median of ten programs of two attentions on an H200 (2.2 to 3.1)."""
MEETINGS, SENT_BYTES = 3500, 24
"""Cycles of a launch of clusters, and of their meetings, that add up parts; bytes that a multiprocessor reads in one
from the shared memory of others."""
CLUSTERS_AT_ONCE = {2: 66, 3: 40, 4: 31, 6: 16, 8: 15}
"""Clusters of so many blocks that an H200 runs at the same time."""


@dataclass(frozen=True)
class Fragments:
    """The fragments that one warp holds of a stage: registers of a thread, and bytes of all its lanes."""

    nest: Nest
    storage: FragmentStorage

    @property
    def elements(self) -> Any:
        """Those of one block, where several of a cluster add up parts of sums."""
        regions = self.nest.bounds.regions[self.nest.k][: len(self.nest.stage.op.axis)]
        return product([r.extent for r in regions]) // self.parts

    @property
    def parts(self) -> int:
        """The parts of sums that blocks of a cluster add up (`split_ring.py`)."""
        sums = self.storage.operand == "d" and _in_ring(self.nest)
        return parts_added(self.nest.bounds.state, self.nest.k) if sums else 1

    @property
    def nbytes(self) -> Any:
        return self.elements * self.storage.op.held(self.storage.operand).nbytes

    @property
    def registers(self) -> Any:
        """Sums of groups of warps of floats in parts are kept twice: all, and those of an iteration."""
        op, operand = self.storage.op, self.storage.operand
        return self.nbytes // (LANES * 4) * (op.element.parts if op.warps > 1 and operand == "d" else 1)

    @property
    def beside(self) -> Any:
        """Bytes of shared memory for small parts beside the tile of floats that a group of warps reads."""
        op, operand = self.storage.op, self.storage.operand
        steps = GROUP_ROW_BYTES // (op.k * op.element.nbytes)
        return self.nbytes * steps * (op.element.parts - 1) if op.warps > 1 and operand == "b" else 0


def fragment_costs(nests: Sequence[Nest], machine: GPU) -> FragmentCosts:
    """What the products in the fragments of a kernel cost a block, for the model of GPUs."""
    found = fragments_of(nests)
    busy, alone = product_cycles(found, machine)
    shared, registers = sum([x.beside for x in found]), sum([x.registers for x in found])
    scopes = ("fragment", "shared") if any(_in_ring(x.nest) for x in found) else ("fragment",) if found else ()
    return FragmentCosts(shared, registers, busy, alone, scopes)


def fragments_of(nests: Sequence[Nest]) -> list[Fragments]:
    """The stages in fragments among the nests of a kernel."""
    found = [(nest, fragment_storage(nest.stage.op.scope)) for nest in nests if nest.scope == "fragment"]
    return [Fragments(nest, storage) for nest, storage in found if storage is not None]


def product_cycles(held: Sequence[Fragments], machine: GPU) -> tuple[Any, Any]:
    """Busy and alone cycles of one block of the sums among the fragments of a kernel; 0 for none."""
    attached = [(x, x.nest.stage.attach.stage) for x in held if x.nest.stage.attach is not None]
    parts = [(x, stage) for x, stage in attached if x.storage.operand in ("a", "b")]
    every = [x for x in held if x.storage.operand == "d" and x.nest.stage.op.reduce_axis]
    costs = [_of_sums(x, [part for part, stage in parts if stage == x.nest.k], machine) for x in every]
    slower = CHAINED if len(every) > 1 and not any(_in_ring(x.nest) for x in every) else 1.0
    return slower * sum([busy for busy, _ in costs], 0.0), slower * sum([alone for _, alone in costs], 0.0)


def _of_sums(sums: Fragments, parts: Sequence[Fragments], machine: GPU) -> tuple[Any, Any]:
    op, loops = sums.storage.op, sums.nest.loops
    warps = extent_of_tags(loops, ("threadIdx.y",))
    instructions = iterations([x for x in _around_instruction(sums.nest) if is_serial(x)]) // sums.parts
    steps = instructions / (sums.elements / (op.m * op.n))
    fetches = steps / _inner_steps(sums.nest)
    rate = (machine.tensor if op.warps == 1 else machine.groups) * 2 / op.element.nbytes / machine.schedulers
    cost = 2 * op.m * op.n * op.k * op.element.products / rate
    brought = sum([_brought(part, warps) for part in parts])
    loaded = [part for part in parts if op.warps == 1 or part.storage.operand == "a"]
    loads = sum([part.nbytes / (LANES * _load_bytes(part)) for part in loaded])
    together = warps if op.warps > 1 else 1
    cut = sum([part.elements / (together if part.storage.operand == "b" else 1) for part in parts]) / LANES
    cut = cut if op.element.parts > 1 else 0.0
    share = warps / machine.schedulers
    tensor = share * np.maximum(instructions * cost, steps * cut * CUT_CYCLES)
    added = instructions / (1 if op.warps == 1 else steps / fetches) * _added(op)
    issue = share * (instructions * op.element.products + added + steps * (2 * loads + cut * CUT_INSTRUCTIONS))
    shared = warps * steps * brought / SHARED_BYTES
    busy = np.maximum(np.maximum(tensor, shared), issue)
    if _in_ring(sums.nest):
        parts_of_result = iterations([x for x in loops if is_serial(x) and x.stage != sums.nest.k])
        stored = parts_of_result * (sums.elements / sums.parts / LANES * STORED_CYCLES * share + PART)
        fetched = fetches * GROUP_ROW_BYTES * (op.m * warps + sums.elements / op.m)
        blocks, cluster = _ring_blocks(sums.nest)
        reading = smaller(blocks * sums.parts, machine.multiprocessors) * _in_sectors(sums.nest)
        reads = fetched * (1 + 1 / cluster) / 2 * reading / RING_L2
        shared = OVERLAP * (shared + fetched / SHARED_BYTES)
        products = np.maximum(np.maximum(tensor, shared), reads) + fetches * TURN * warps / op.warps
        in_turns = (warps == op.warps) & (not op.element.apart)
        busy = _with_results(products, stored, parts_of_result, in_turns)
        busy = busy + np.where(cluster > 1, CLUSTERED, 0)
        if sums.parts > 1:
            sent = sums.elements * warps * 4 * (sums.parts - 1) / sums.parts / SENT_BYTES
            together = CLUSTERS_AT_ONCE.get(sums.parts, machine.multiprocessors // (2 * sums.parts))
            busy = (busy + sent + MEETINGS) * ceildiv(blocks, together)
        return busy, busy
    tiles = max([n.tiles for n in _shared(sums.nest)], default=0)
    first = steps * cut * CUT_CYCLES if op.warps > 1 else 0.0
    working = np.maximum(ceildiv(warps, machine.schedulers) * (instructions * cost + first), busy)
    waits = steps if op.warps == 1 else fetches
    working = working + waits * (MMA_LATENCY * op.element.products + LOAD_LATENCY)
    late = np.maximum(MEMORY_LATENCY / max(tiles - 1, 1) - working / fetches, 0) if tiles else 0.0
    return busy, working + fetches * (ITERATION + late)


def _with_results(products: Any, stored: Any, parts: Any, in_turns: Any) -> Any:
    """The cycles of products of several parts, and of storing their results: where two groups take turns, only what is
    stored last is not hidden."""
    hidden = np.maximum(products, (products + stored) / 2) + stored / parts
    return np.where(in_turns & (parts > 1), hidden, products + stored)


def _brought(part: Fragments, warps: Any) -> Any:
    """Bytes of a factor that shared memory moves for a warp in a step.

    Groups read B once for four warps and each product of parts, and before that all warps of a block cut it together:
    it is read once and written as many times as it has parts.
    """
    op = part.storage.op
    if op.warps == 1 or part.storage.operand == "a":
        return part.nbytes
    cut = 1 + op.element.parts if op.element.parts > 1 else 0
    return part.nbytes * (op.element.products / op.warps + cut / warps)


def _added(op: Mma) -> int:
    """The additions of the sums of parts of a tile."""
    return op.registers("d") if op.element.parts > 1 else 0


def _load_bytes(part: Fragments) -> int:
    """Bytes of a lane in one load: `ldmatrix` brings 16, others a register."""
    return 16 if any(it.annotation == "tensorize" for it in part.nest.stage.iters) else 4


def _around_instruction(nest: Nest) -> list[Loop]:
    """The loops of a nest outside of its instruction."""
    first = next((k for k, loop in enumerate(nest.loops) if loop.tag == "tensorize"), len(nest.loops))
    return list(nest.loops[:first])


def _inner_steps(nest: Nest) -> Any:
    """Steps in an iteration: the reduction loops inside those at which shared tiles are fetched."""
    attached = {s.attach.iter for s in _shared(nest) if s.attach is not None}
    inside = [x for x in _around_instruction(nest) if x.stage == nest.k and x.reduce]
    last = max([k for k, x in enumerate(inside) if x.uid in attached], default=-1)
    return iterations(inside[last + 1 :])


def _in_ring(nest: Nest) -> bool:
    """Whether the copy engine fetches what is multiplied."""
    return any(by_copy_engine(stage) for stage in _shared(nest))


def _ring_blocks(nest: Nest) -> tuple[Any, Any]:
    """How many blocks of a ring have work at a time, and how many are a cluster."""
    cluster = extent_of_tags(nest.loops, ("blockIdx.y",))
    return product([_at_a_time(nest, x) for x in nest.loops if x.tag == "blockIdx.x"]) * cluster, cluster


def _at_a_time(nest: Nest, block: Loop) -> Any:
    """The iterations of a loop of blocks that are there: fewer than it has where blocks stay for several parts."""
    root = nest.bounds.state.stages[block.stage]
    whole = [root.vars[r.parent].extent for r in root.relations if isinstance(r, SplitRel) and block.uid in r.children]
    return smaller(block.extent, whole[0] if whole else block.extent)


def _in_sectors(nest: Nest) -> float:
    """How much longer L2 takes for the tiles of a ring, some of whose rows begin within a sector."""
    state = nest.bounds.state
    sources = [state.stages[p].op for s in _shared(nest) for p in state.access.read_from[state.stages.index(s)]]
    apart = [x.output().shape[-1] * BYTES[x.dtype] % SECTOR > 0 for x in sources]
    return 1 + sum(apart) / max(len(apart), 1)


def _shared(nest: Nest) -> list[Stage]:
    """The shared tiles that are fetched in the loops of a nest."""
    stages = nest.bounds.state.stages
    found = [s for s in stages if s.attach is not None and s.attach.stage == nest.k]
    return [s for s in found if s.op.scope == "shared"]
