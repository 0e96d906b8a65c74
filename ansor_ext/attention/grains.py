"""The numbers of the sketches of attention (`attention.py`): what fits a thread and a block, and fills the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from ansor.core.target.hardware import HardwareParams
from te_lite.computation.tensor import ComputeOp
from te_lite.expr.expr import Call, Load
from te_lite.expr.lanes import ceildiv
from te_lite.expr.visit import walk
from te_lite.schedule.state import State

from ..analysis.nominal import NOMINAL_SMS
from ..analysis.own_stages import extents_of
from ..tensor_core.box_store import PLACES
from ..tensor_core.mma import GROUP_ROW_BYTES, Mma
from ..tensor_core.mma import WARPS as WARPS_OF_GROUP
from ..tensor_core.product_factors import WORDS, by_matrices, pad_words
from ..tensor_core.product_roles import Roles

WARPS, TILES_OF_QUERIES, KEYS, TILES = (1, 2, 4, 8), (1, 2), (32, 64, 128), (2, 3)
KEYS_OF_GROUPS, TILES_OF_GROUPS, GROUPS = (64, 80, 96, 112, 128, 160, 176), 2, (1, 2)
REGISTERS_OF_GROUPS = {1: 255, 2: 232}
"""Of a thread, by the groups of a block."""
SHORTEST_PART, BLOCKS_OF_PARTS = 64, (1, 2, 4)
"""Keys of a part, at least; the blocks that parts make, for each multiprocessor."""
QUERIES = 2
"""The axis of queries, from the last one."""
LONGEST_ITERATION = 256
"""Keys that are one iteration where there are no more."""
MOST_REGISTERS, OTHER_REGISTERS, OTHER_REGISTERS_OF_GROUPS = 255, 40, 24
LINE, BARRIER_BYTES = GROUP_ROW_BYTES // 2, 256
"""Halves of a row of a tile that groups of warps read; what their barriers take of shared memory, at most."""
BOXES_OF_GROUP = PLACES * 64 * GROUP_ROW_BYTES
"""Where a group puts its result together."""


@dataclass(frozen=True)
class Attention:
    """The stages of a computation that is one: products with their roles, and what is between them."""

    scores: int
    extreme: ComputeOp
    term: ComputeOp
    part: ComputeOp
    whole: ComputeOp
    sums: int
    of_scores: Roles
    of_sums: Roles

    @property
    def op(self) -> Mma:
        return self.of_sums.op


@dataclass(frozen=True)
class Grain:
    """Warps of a block, tiles of queries of a warp, keys of an iteration, tiles of keys in shared memory; the keys of a
    part that blocks of its own compute, 0 for all; whether blocks of the same queries of all heads follow each other,
    or those of a head."""

    warps: int
    queries: int
    keys: int
    tiles: int
    groups: bool = False
    part: int = 0
    heads_inside: bool = False


def grains(state: State, made: Attention, hardware: HardwareParams) -> Iterator[Grain]:
    """What is tried: blocks without idle warps, that fit a thread and the shared memory of a block."""
    queries, keys = state.stages[made.scores].op.shape[-2:]
    columns, terms = state.stages[made.sums].op.shape[-1], extents_of(state.stages[made.scores].op)[-1]
    whole = ceildiv(keys, made.op.k) * made.op.k
    iterations = {n for n in KEYS if n < keys} | ({whole} if whole <= LONGEST_ITERATION else set())
    for warps, tiles, iteration in product(WARPS, TILES_OF_QUERIES, sorted(iterations)):
        rows = tiles * made.op.m
        if (warps - 1) * rows >= queries or (tiles > 1 and rows >= 2 * queries):
            continue
        for part in part_lengths(state, made, warps * rows, iteration):
            for ahead in sorted({min(n, ceildiv(part or keys, iteration)) for n in TILES}):
                grain = Grain(warps, tiles, iteration, ahead, part=part)
                fits = shared_bytes(made, grain, columns, terms) <= hardware.max_shared_memory_per_block
                if fits and registers(made.op, grain, columns, terms) <= MOST_REGISTERS:
                    yield grain


def group_grains(state: State, made: Attention, hardware: HardwareParams) -> Iterator[Grain]:
    """What is tried of groups of warps: blocks without idle groups, that fit a thread and the memory of a block."""
    queries, keys = state.stages[made.scores].op.shape[-2:]
    columns, terms = state.stages[made.sums].op.shape[-1], extents_of(state.stages[made.scores].op)[-1]
    op = made.op
    for groups, iteration in product(GROUPS, KEYS_OF_GROUPS):
        rows, tiles = op.m * WARPS_OF_GROUP, TILES_OF_GROUPS
        if iteration * (tiles - 1) >= keys or (groups - 1) * rows >= queries:
            continue
        used = iteration // 2 + iteration // 4 + columns // 2 + OTHER_REGISTERS_OF_GROUPS
        lines = [ceildiv(n, LINE) * LINE for n in (terms, columns)]
        shared = groups * rows * lines[0] + tiles * iteration * sum(lines)
        shared = shared * op.element.nbytes + groups * BOXES_OF_GROUP + BARRIER_BYTES
        if used <= REGISTERS_OF_GROUPS[groups] and shared <= hardware.max_shared_memory_per_block:
            for part in part_lengths(state, made, groups * rows, iteration):
                if not part or part > tiles * iteration:
                    yield Grain(groups * op.warps, 1, iteration, tiles, True, part, _hides_by_place(state, made))


def _hides_by_place(state: State, made: Attention) -> bool:
    """Whether scores count or not by their places, as in a causal mask: blocks of queries then differ in length."""
    asked = [
        e.args[0]
        for r in state.access.read_by[made.scores]
        for body in state.stages[r].compute.body
        for e in walk(body)
        if isinstance(e, Call) and e.func == "if_then_else"
    ]
    return bool(asked) and not any(isinstance(e, Load) for cond in asked for e in walk(cond))


def part_lengths(state: State, made: Attention, rows: int, iteration: int) -> list[int]:
    """How many keys a part may have, whole iterations of them; 0, for all, is the only one where blocks of so many rows
    fill half of the machine, or keys are few."""
    *heads, queries, keys = state.stages[made.scores].op.shape
    blocks = prod(heads) * ceildiv(queries, rows)
    if 2 * blocks > NOMINAL_SMS or keys < 2 * SHORTEST_PART:
        return [0]
    wanted = [ceildiv(keys * blocks, n * NOMINAL_SMS * iteration) * iteration for n in BLOCKS_OF_PARTS]
    return [0, *sorted({n for n in wanted if SHORTEST_PART <= n < keys})]


def registers(op: Mma, grain: Grain, columns: int, terms: int) -> int:
    """An estimate of the registers of a thread: sums, scores, fragments of the queries, of a step of keys, others."""
    across, along = ceildiv(columns, op.n), ceildiv(terms, op.k)
    sums = grain.queries * (across + ceildiv(grain.keys, op.n)) * op.registers("d")
    factors = grain.queries * (along + op.element.parts) * op.registers("a") + across * op.registers("b")
    return int(sums + factors + OTHER_REGISTERS)


def shared_bytes(made: Attention, grain: Grain, columns: int, terms: int) -> int:
    """The shared memory of a block: a tile of queries, and of keys and values as many as there is room for."""
    op = made.op
    row = columns if by_matrices(made.of_sums.b, op) else columns + (pad_words(op) - columns) % WORDS
    queries = grain.warps * grain.queries * op.m * terms
    return int((queries + grain.tiles * grain.keys * (row + terms)) * op.element.nbytes)
