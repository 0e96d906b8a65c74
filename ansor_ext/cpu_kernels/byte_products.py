"""Products of bytes on a CPU, both factors read along the terms: sums of a tile in registers, the terms innermost.

    for columns, rows in tiles                parallel, as the search decides; the longer side is outside
      for terms                               the compiler makes vectors of these: dot products of bytes
        I x J sums += data * weight           written out
      I x J outputs                           and what follows element by element

Compilers know instructions that multiply bytes and add four products to a word (VNNI), or words of 16 bits and add two,
where the terms are the innermost loop and lie side by side.  Vectors of columns, which other products have, would widen
every byte to a word, of which a vector has a quarter as many.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import gcd
from typing import ClassVar

import numpy as np

from ansor.core.tasks.task import SearchTask
from ansor.core.values.schedule_primitives import annotate, compute_at, reorder, split
from ansor.policy.default_schedule import SEED, with_unrolling
from ansor.sketch.rule import Condition, Outcome, SketchContext
from ansor.space.sample import sample_rows
from ansor.space.spaces import Group, home, space_of
from ansor.space.states import concrete
from te_lite.bounds.reads import Affine, reads_by
from te_lite.schedule.state import REDUCE, State

from ..analysis.own_stages import cpu_sketches, extents_of, with_reader

BYTES, WORD = ("uint8", "int8"), "int32"
LONGEST_SIDE = 8
LONGEST_ROW = 8
"""Vectors of sums behind each other of which what follows is computed at once."""
WIDE = 64
"""Bytes of a vector of a processor with 32 of them; others have 16."""
SUMS_AND_FACTORS = {True: 24, False: 12}
"""Vectors that a tile holds, of processors with 32 and with 16."""


def is_byte_product(state: State, k: int) -> bool:
    """Whether stage `k` sums up products of an unsigned and a signed byte that both lie along its only sum."""
    op = state.stages[k].op
    if state.stages[k].is_placeholder or op.dtype != WORD or len(op.axis) < 2 or len(op.reduce_axis) != 1:
        return False
    along, reads = Affine(((len(op.axis), 1),), 0), reads_by(k, state.ops)
    kinds = {state.stages[source].op.dtype for source, _ in reads}
    return len(reads) == len(kinds) == 2 and kinds <= set(BYTES) and all(read.forms[-1] == along for _, read in reads)


def tile(rows: int, columns: int, vector_bytes: int) -> tuple[int, int]:
    """The rows and columns of a tile: divisors, of those with room in registers the ones with the fewest loads."""
    room = SUMS_AND_FACTORS[vector_bytes >= WIDE]
    sides = product(range(1, LONGEST_SIDE + 1), repeat=2)
    fit = [(i, j) for i, j in sides if gcd(i, rows) == i and gcd(j, columns) == j and i * j + min(i, j) <= room]
    return min(fit, key=lambda s: ((s[0] + s[1]) / (s[0] * s[1]), -s[1]))


def whole_vectors(columns: int, j: int, vector_bytes: int) -> int:
    """Of how many columns sums are done before what follows is, in vectors: of tiles of `j`, and a divisor."""
    lanes = vector_bytes // 4
    found = [n for n in range(j, min(columns, LONGEST_ROW * lanes) + 1, j) if columns % n == 0]
    return min(found, key=lambda n: (-(-n // lanes) * lanes / n, -n))


class ByteProduct:
    """Compute a product of bytes with its terms innermost."""

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM."

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if is_byte_product(state, k) else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        *_, m, n, _ = extents_of(state.stages[k].op)
        i, j = tile(m, n, ctx.hardware.vector_unit_bytes)
        wide = whole_vectors(n, j, ctx.hardware.vector_unit_bytes)
        state, target = with_reader(state, k)
        if target is None:
            return []
        *others, row, column = [it.uid for it in state.stages[target].iters]
        state, (rows, in_row) = split(state, target, row, [i])
        state, (columns, in_column) = split(state, target, column, [wide])
        outer = (columns.uid, rows.uid) if n > m else (rows.uid, columns.uid)
        state = reorder(state, target, [*others, *outer, in_row.uid, in_column.uid])
        state = compute_at(state, k, target, outer[1])
        terms = [it.uid for it in state.stages[k].iters if it.kind == REDUCE]
        *before, row, column = [it.uid for it in state.stages[k].iters if it.kind != REDUCE]
        state, (tiles, in_tile) = split(state, k, column, [j])
        state = reorder(state, k, [*before, tiles.uid, *terms, row, in_tile.uid])
        state = annotate(state, target, in_column.uid, "vectorize")
        return [(annotate(annotate(state, k, row, "unroll"), k, in_tile.uid, "unroll"), k - 1)]


def byte_product_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, the sketch of a product of bytes."""
    return cpu_sketches(ctx, [ByteProduct()], "unroll")


def byte_product_states(task: SearchTask, _: object = None) -> Iterator[State]:
    """The default program of a product of bytes; none for other tasks."""
    hardware = task.hardware_params.completed(task.target)
    for sketch in byte_product_sketches(SketchContext(task.compute_dag, task.target, hardware)):
        variant = home(space_of(sketch, task.target, hardware))
        rows = sample_rows(variant, 1, np.random.default_rng(SEED), task.target, hardware)
        for row in with_unrolling(Group(variant, rows), 0).rows:
            yield concrete(variant, row, task.target, hardware)
