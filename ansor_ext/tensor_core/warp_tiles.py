"""How much of a product on tensor cores a block, a warp and an iteration compute: the tables of its lengths.

    rows     [blocks, warps, instructions of a warp] x 16            two lengths
    columns  [blocks, warps, instructions of a warp] x 8             two lengths
    terms    [iterations, instructions of an iteration] x 8, 16 or 32  one length

All lengths are powers of two, whatever the extents, and columns of groups of warps three quarters of them, too, those
of rings any number, of which blocks may fill a machine better: tiles run over the edge (`te_lite/bounds/overrun.py`),
except for iterations of a part of split sums, behind whose end is the next part.  They limit each other by the
registers of a thread, those of a multiprocessor, and shared memory, so they are decided together.  Every thread of a
block has the same share of vectors to fetch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product as pairs_of
from math import prod

import numpy as np

from ansor.core.target.hardware import HardwareParams
from ansor.space.decisions.decision import Grid
from ansor.space.decisions.factor_tables import PointTable
from te_lite.bounds.loop_scope import LANES
from te_lite.expr.storage import storage_class
from te_lite.expr.visit import walk
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.state import Attach, SplitRel, State

from ..analysis.own_stages import has_rfactor, parts_added, sums_over_several
from ..pipeline.steps import by_copy_engine
from .box_store import PLACES, ROWS
from .float_parts import PARTS
from .fragment_storage import FragmentStorage, fragment_storage
from .mma import GROUP_ROW_BYTES, ROW_BYTES, Mma

MOST_WARPS = 8
ROW_TILES, COLUMN_TILES = (1, 2, 4, 8), (2, 4, 8, 16)
"""Instructions of a warp; columns in pairs, which one `ldmatrix` brings."""
GROUP_ROW_TILES, GROUP_COLUMN_TILES = (1, 2), (4, 6, 8, 12, 16, 24, 32)
RING_COLUMN_TILES = tuple(range(4, 33))
"""Of warps in groups, which all have the same columns; of those of a ring."""
RING_TILES = (4, 5, 6, 7, 8)
"""Tiles in the pipelines of rings, of which there are as many as there is room for."""
BARRIERS = 16
"""Bytes of those of a tile."""
TERM_BYTES = (32, 64, 128, 256)
"""Of the terms of one iteration, in a row of a tile."""
OTHER_REGISTERS = 40
"""Of a thread, for addresses and counters."""
MOST_REGISTERS = 255
REGISTER_FILE = 65536
"""Registers of a multiprocessor, of which a block must find its own."""


@dataclass(frozen=True, slots=True)
class Product:
    """Stage `stage` sums up in fragments of `op`; the first of `shared` is how the tiles of A are shared, then B.

    `splits` are the positions of the splits of rows, columns and terms, whose extents, in instructions, are `extents`;
    `whole`: iterations must divide the terms.  A warp has `beside` times as many rows, and columns, as the lengths say.
    `several`: the sum is over several axes; `parts` of it are added up in a cluster, each block a share of the columns.
    """

    stage: int
    op: Mma
    shared: tuple[Shared, ...]
    splits: tuple[int, int, int]
    extents: tuple[int, int, int]
    whole: bool
    beside: tuple[int, int] = (1, 1)
    several: bool = False
    parts: int = 1


@dataclass(frozen=True, slots=True)
class Shared:
    """`tiles` tiles of a factor in shared memory, whose rows begin at `align` elements: (offset, modulo), if given.

    The copy engine fetches those `in_boxes`; `across`: rows of memory lie across the terms.
    """

    tiles: int
    align: tuple[int, int] | None
    in_boxes: bool = False
    across: bool = False

    def nbytes(self, side: int, terms: int, element: int) -> int:
        """Bytes of tiles of so many elements; aligned ones lie in rows along `side`."""
        row = side if self.align is None else side + (self.align[0] - side) % self.align[1]
        return self.tiles * row * terms * element


def sums_in(state: State, k: int) -> FragmentStorage | None:
    """The storage of stage `k` if it sums up in fragments."""
    scope = state.stages[k].op.scope
    found = fragment_storage(scope) if storage_class(scope) == "fragment" else None
    return found if found is not None and found.operand == "d" else None


@lru_cache(maxsize=256)
def products(sketch: State) -> tuple[Product, ...]:
    """The products of a sketch whose lengths are undecided."""
    out = []
    for k, stage in enumerate(sketch.stages):
        storage, attach = sums_in(sketch, k), stage.attach
        if storage is None or attach is None:
            continue
        found = [
            (p, step)
            for p, step in enumerate(sketch.steps)
            if isinstance(step, Split) and None in step.lengths and step.stage in (k, attach.stage)
        ]
        if len(found) == 3:
            (m, rows), (n, columns), (t, terms) = found
            extents = rows.extent, columns.extent, terms.extent
            shared = _shared(sketch, k, "a"), _shared(sketch, k, "b")
            whole, beside = has_rfactor(sketch, k), _beside(sketch, k, attach)
            several, parts = sums_over_several(sketch.ops[k]), parts_added(sketch, k)
            out.append(Product(k, storage.op, shared, (m, n, t), extents, whole, beside, several, parts))
    return tuple(out)


def _beside(sketch: State, k: int, attach: Attach) -> tuple[int, int]:
    """How many lines of rows, or of columns, a warp computes of stage `k` at a time: the first loop inside the one over
    warps, where its length is not undecided."""
    root = sketch.stages[attach.stage]
    inside = root.iters[root.position(attach.iter) + 1]
    if not isinstance(inside.extent, int):
        return 1, 1
    (axis,) = [r.parent for r in root.relations if isinstance(r, SplitRel) and inside.uid in r.children]
    line = sketch.ops[k].axis[axis]
    for p, reads in sketch.access.read_from[k].items():
        found = fragment_storage(sketch.stages[p].op.scope)
        if found is not None and any(x is line for indices in reads for i in indices for x in walk(i)):
            return (inside.extent, 1) if found.operand == "a" else (1, inside.extent)
    raise AssertionError(f"stage {k} has no factor with lines")


def _shared(sketch: State, k: int, operand: str) -> Shared:
    """How the tiles are shared that the fragments of an operand of stage `k` come from."""
    for p in sketch.access.read_from[k]:
        found = fragment_storage(sketch.stages[p].op.scope)
        if found is not None and found.operand == operand:
            (source,) = [sketch.stages[q] for q in sketch.access.read_from[p]]
            align, last = source.storage_align, len(source.op.axis) - 1
            side = sketch.stages[p].stored(list(range(last + 1)))[-2 if operand == "a" else -1]
            rows = None if align is None else (align[2], align[1])
            return Shared(source.tiles, rows, by_copy_engine(source), side == last)
    raise AssertionError(f"stage {k} has no fragments {operand}")


def grids(sketch: State, hardware: HardwareParams) -> list[Grid]:
    """The lengths of the products of a sketch, one grid each."""
    return [
        Grid(
            p.stage,
            tuple(zip(p.splits, (2, 2, 1), strict=True)),
            table(replace(p, stage=0, splits=(0, 0, 0)), hardware),
        )
        for p in products(sketch)
    ]


def without_points(sketch: State, hardware: HardwareParams) -> bool:
    """Whether no length of a ring of the sketch has just its number of tiles; of floats in parts any will do."""
    rings = [p for p in products(sketch) if p.shared[0].in_boxes and not p.op.element.apart]
    return any(next(_ring_points(p, hardware), None) is None for p in rings)


@lru_cache(maxsize=512)
def table(product: Product, hardware: HardwareParams) -> PointTable:
    """All lengths of a product: warps and instructions of rows, of columns, and instructions of an iteration.

    Of a machine that has room for none of them the least ones, which limits refuse.
    """
    return PointTable(np.array(list(_points(product, hardware)) or [_least(product)], np.int64))


def _least(product: Product) -> tuple[int, int, int, int, int]:
    group = product.op.warps > 1
    rows, columns = (GROUP_ROW_TILES, GROUP_COLUMN_TILES) if group else (ROW_TILES, COLUMN_TILES)
    return product.op.warps, rows[0], 1, columns[0], _steps(product)[0]


def _steps(product: Product) -> list[int]:
    """The instructions of an iteration."""
    most, element = product.extents[2], product.op.element.nbytes
    lengths = TERM_BYTES if product.op.warps == 1 else (GROUP_ROW_BYTES,)
    found = [nbytes // (product.op.k * element) for nbytes in lengths]
    return [n for n in found if n <= most and not (product.whole and most % n)]


def _points(product: Product, hardware: HardwareParams) -> Iterator[tuple[int, int, int, int, int]]:
    op, extents = product.op, product.extents
    if product.shared[0].in_boxes:
        yield from _ring_points(product, hardware)
        return
    for (wm, wn), (tm, tn), steps in _choices(product):
        rows, columns = product.beside
        sides, threads = (op.m * wm * tm * rows, op.n * wn * tn * columns), wm * wn * LANES
        terms = steps * op.k
        used = sum(s.nbytes(n, terms, op.element.nbytes) for s, n in zip(product.shared, sides, strict=True))
        used += (_cut(op) - 1) * sides[1] * terms * op.element.nbytes
        tiles = tm * rows, tn * columns
        registers = _cut(op) * prod(tiles) * op.registers("d") + _factors(op, *tiles, steps) + OTHER_REGISTERS
        fits = wm * wn <= MOST_WARPS and threads <= hardware.max_threads_per_block
        fits = fits and used <= hardware.max_shared_memory_per_block
        fits = fits and registers <= MOST_REGISTERS and threads * registers <= REGISTER_FILE
        fits = fits and _needed(wm, tm, extents[0]) and _needed(wn, tn, extents[1])
        if fits and all(n * terms * op.element.nbytes % (ROW_BYTES * threads) == 0 for n in sides):
            yield wm, tm, wn, tn, steps


def _ring_points(product: Product, hardware: HardwareParams) -> Iterator[tuple[int, int, int, int, int]]:
    """Those of a ring: one or two groups with 16 rows a warp, and columns in whole boxes where these are lines.  Blocks
    that add up parts have two groups, as those with one were slower."""
    op, (rows, columns, _), (steps, *_) = product.op, product.extents, _steps(product) or [0]
    line, parts = GROUP_ROW_BYTES // op.element.nbytes, PARTS if op.element.apart else 1
    groups = (2,) if product.parts > 1 else (1, 2)
    for warps, tiles in pairs_of([n * op.warps for n in groups], RING_COLUMN_TILES):
        sides = op.m * warps, parts * op.n * tiles
        left = hardware.max_shared_memory_per_block - warps // op.warps * PLACES * ROWS * GROUP_ROW_BYTES
        fits = _in_room(product, left // (sum(sides) * GROUP_ROW_BYTES + BARRIERS))
        shares = tiles // product.parts if product.parts > 1 else 0
        registers = (_cut(op) * tiles + shares) * op.registers("d") + OTHER_REGISTERS
        registers += _factors(op, 1, tiles, steps) if op.element.apart else 0
        fits = fits and registers <= MOST_REGISTERS and _needed(warps, 1, rows) and tiles <= columns
        unit = line if product.shared[1].across else 2 * op.n if op.sum.dtype == "int32" else op.n
        if steps and fits and op.n * tiles % unit == 0 and tiles % product.parts == 0:
            yield warps, 1, 1, tiles, steps


def _in_room(product: Product, room: int) -> bool:
    """Whether a ring has as many tiles as there is room for.  Of floats in parts, and of windows, some of which have
    few iterations, it may have fewer."""
    tiles = product.shared[0].tiles
    if product.op.element.apart or (product.several and tiles in (min(RING_TILES), max(RING_TILES))):
        return tiles <= room
    return not product.several and tiles == max([n for n in RING_TILES if n <= room], default=0)


def _choices(product: Product) -> Iterator[tuple[tuple[int, int], tuple[int, int], int]]:
    """Warps, instructions of a warp, and instructions of an iteration, whether there is room for them or not."""
    warps = [n for n in (1, 2, 4, 8) if n <= MOST_WARPS]
    if product.op.warps == 1:
        return pairs_of(pairs_of(warps, warps), pairs_of(ROW_TILES, COLUMN_TILES), _steps(product))
    groups = [(n, 1) for n in warps if n % product.op.warps == 0]
    return pairs_of(groups, pairs_of(GROUP_ROW_TILES, GROUP_COLUMN_TILES), _steps(product))


def _cut(op: Mma) -> int:
    """The parts of B in shared memory, and sets of sums, those of an iteration beside all, that groups of warps need: 2
    for floats in parts, else 1.
    """
    return op.element.parts if op.warps > 1 else 1


def _factors(op: Mma, rows: int, columns: int, steps: int) -> int:
    """Registers of a thread for fragments: of a step; of groups of warps, which only load A, of all steps of an
    iteration.
    """
    if op.warps > 1:
        return op.element.parts * rows * op.registers("a") * steps
    return op.element.parts * (rows * op.registers("a") + columns * op.registers("b"))


def _needed(warps: int, tiles: int, extent: int) -> bool:
    """Whether so many instructions have work for every one of so many warps."""
    return tiles <= extent and (warps - 1) * tiles < extent
