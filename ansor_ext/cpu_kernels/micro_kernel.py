"""Micro-kernels: products on a CPU whose accumulators fill the registers, in loops that are decided already.

    for axes that both operands have, parts of the others, i.0, j.0      parallel, as the search decides
      panel of B                                 W columns of the whole reduction, packed where that pays
      for the other axes, i.1                    the rows of a block, of all axes that B does not have
        for reduction
          R x W accumulators += A x panel        in registers; rows unrolled, columns in vectors
        R x W outputs                            what follows element by element

Ansor's tiles leave R, W and nine other lengths to the search, and nearly all of them spill registers or read far apart.
Here they are numbers of the sketch: a few shapes R x W that use the registers, waste little at the edges and keep the
multipliers busy.

Columns are the last axis, whose elements lie side by side in the output, or another one with an operand that can be
packed (the channels of NCHW, with weights [out, in, ...]): sums then lie side by side along it, and the tile is turned
when it is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from ansor.core.target.hardware import HardwareParams
from ansor.core.values.schedule_primitives import annotate, compute_at, fuse, reorder, split
from ansor.sketch.predicates import needs_tiling
from ansor.sketch.rule import Condition, Outcome, SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.loops.register_tile import largest_divisor
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead
from te_lite.schedule.state import REDUCE, SPATIAL, State
from te_lite.schedule.storage_steps import StorageOrder

from ..analysis.own_stages import cpu_sketches, extents_of, with_reader
from .operands import TiledInput, in_tiles, padded, paddings, panels, tiled_input
from .shape_costs import Sides, shape_costs

SHAPES = 3
BLOCK_BYTES = 4 << 20
PACK_ROWS = 16
"""To pack a panel takes as long as so many rows of its products, roughly."""
UNEVEN = 8
"""With n tasks a core, other work and slower cores cost about 1 / (n * UNEVEN) of the time."""
MOST_TIME = 1.4
"""Of products in parts, relative to equal shares of nothing but products."""


@dataclass(frozen=True)
class KernelShape:
    """`rows` along space axis `row` times `columns` along axis `lane`.

    `blocks`: how much of each space axis is done with one panel, tiles of `row`; 1 of what a panel has one point of.
    `panels`: of how many the rows are packed for; 0 where they are not.
    """

    row: int
    lane: int
    rows: int
    columns: int
    blocks: tuple[int, ...]
    panels: int = 0


def shapes(
    state: State, k: int, hardware: HardwareParams, by_rows: bool = False, row: int | None = None,
    whole: int | None = None,
) -> list[KernelShape]:  # fmt: skip
    """The best shapes for stage `k`, fastest first by an estimate; none where it has no rows and columns.

    `by_rows`: only parts of the rows are tasks of their own, for something is computed once for all columns of each.
    `row`, `whole`: as in `shape_costs`.
    """
    op = state.stages[k].op
    extents, size = extents_of(op), element_bytes(op.dtype)
    space, row_bytes = extents[: len(op.axis)], prod(extents[len(op.axis) :]) * size
    return [
        KernelShape(way.row, way.lane, r, w, _blocks(space, way, r, 0 if by_rows else w, row_bytes, hardware))
        for way, r, w in list(shape_costs(state, k, hardware, row, whole))[:SHAPES]
    ]


def _blocks(
    space: Sequence[int], way: Sides, r: int, width: int, row_bytes: int, hardware: HardwareParams
) -> tuple[int, ...]:
    """Parts of the free axes, the last ones whole: no more bytes than a cache holds, many rows for each panel that is
    packed, and the same for all cores.

    Tasks are parts of the rows, and of the columns where those have a `width`.
    """
    counts = [-(-e // r) if d == way.row else e for d, e in enumerate(space)]
    order = [*[d for d in way.free if d != way.row], way.row]
    fixed = prod([counts[d] for d in range(len(space)) if d != way.lane and d not in way.free])
    tasks = fixed * (-(-space[way.lane] // width) if width else 1)
    rows, cores = prod([space[d] for d in order]), hardware.num_cores

    def time(blocks: tuple[int, ...]) -> float:
        """That of the core with the most tasks, relative to an equal share of nothing but products."""
        count = tasks * prod([-(-counts[d] // blocks[d]) for d in order])
        block = prod([blocks[d] for d in order])
        busiest = -(-count // cores) * cores * block / (tasks * prod([counts[d] for d in order]))
        return round(busiest * (1 + PACK_ROWS / (r * block)) * (1 + cores / (UNEVEN * count)), 2)

    least = -(-rows * row_bytes // BLOCK_BYTES)
    most = max(least, -(-UNEVEN * cores // tasks))
    return min([_parts(counts, order, parts) for parts in range(least, most + 1)], key=time)


def _parts(counts: Sequence[int], order: Sequence[int], parts: int) -> tuple[int, ...]:
    """How much of each axis is in one of at least so many parts, 1 of those that are not in `order`."""
    blocks = [1] * len(counts)
    for d in order:
        most = -(-counts[d] // min(parts, counts[d]))
        whole = int(largest_divisor(counts[d], most, most))
        blocks[d] = whole if 2 * whole > most else most
        parts = -(-parts // -(-counts[d] // blocks[d]))
    return tuple(blocks)


class MicroKernel:
    """Compute a tiled reduction in register tiles of one of its best shapes.

    `inside`: padding that it reads is computed for each part of the rows, else before.  `rows`: parts are of rows
    and columns, and the rows of each are copied in the order in which tiles read them.
    """

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM."

    def __init__(self, number: int, inside: bool = False, rows: bool = False) -> None:
        self.number, self.inside, self.rows = number, inside, rows

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        if not is_product(state, k) or (self.inside and not paddings(state, k, ctx.hardware)):
            return Condition.SKIP
        return Condition.SKIP if self._shape(ctx, state, k) is None else Condition.APPLY_AND_SKIP_REST

    def _shape(self, ctx: SketchContext, state: State, k: int) -> KernelShape | None:
        found = shapes(state, k, ctx.hardware, self.inside)[self.number :]
        if not found or not self.rows:
            return found[0] if found else None
        return (
            None
            if tiled_input(state, k, found[0].row, found[0].lane) is None
            else in_parts(state, k, found[0], ctx.hardware)
        )

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        shape = self._shape(ctx, state, k)
        assert shape is not None
        state, target = with_reader(state, k)
        return [] if target is None else [(self.computed(ctx, state, k, target, shape), k - 1)]

    def computed(self, ctx: SketchContext, state: State, k: int, target: int, shape: KernelShape) -> State:
        """Stage `k` in tiles of `shape` inside stage `target`, which takes up what it computes."""
        rows = tiled_input(state, k, shape.row, shape.lane) if self.rows else None
        padding = paddings(state, k, ctx.hardware)
        state, part_at, panel_at, tile_at = tiled_output(state, target, shape)
        state = accumulated(state, k, target, tile_at, shape)
        for p in padding:
            state = padded(state, p, ctx.hardware, (target, part_at) if self.inside else None)
        before = len(state.stages)
        state = with_panels(ctx, state, k, target, panel_at, shape.lane)
        if rows is not None:
            more = len(state.stages) - before
            state = rows_packed(state, rows, k + more, target + more, part_at, shape)
        return state


def is_product(state: State, k: int) -> bool:
    stage = state.stages[k]
    return not stage.is_placeholder and bool(stage.op.reduce_axis) and needs_tiling(state, k)


def tiled_output(state: State, target: int, shape: KernelShape) -> tuple[State, int, int, int]:
    """The output in tiles; the loops of a part of the rows, and at which a panel and a tile are computed."""
    roots = state.stages[target].iters
    row, column = roots[shape.row].uid, roots[shape.lane].uid
    state, (i0, i1, i2) = split(state, target, row, [shape.blocks[shape.row], shape.rows])
    state, parts = split(state, target, column, [shape.panels, shape.columns] if shape.panels else [shape.columns])
    *j0, j1, j2 = [it.uid for it in parts]
    outer, inner = [], []
    for block, it in zip(shape.blocks, roots, strict=True):
        if it.uid in (row, column):
            continue
        if 1 < block != it.extent:
            state, (part, whole) = split(state, target, it.uid, [block])
            outer.append(part.uid)
            inner.append(whole.uid)
        else:
            (outer if block == 1 else inner).append(it.uid)
    along = shape.lane == len(roots) - 1
    last = (i2.uid, j2) if along else (j2, i2.uid)
    state = reorder(state, target, [*outer, i0.uid, *j0, j1, *inner, i1.uid, *last])
    state = annotate(state, target, j2, "vectorize") if along else state
    return state, [i0.uid, *j0][-1], j1, i1.uid


def accumulated(state: State, k: int, target: int, tile_at: int, shape: KernelShape) -> State:
    """The reduction around the tile, whose rows are unrolled and whose columns are lanes, side by side in storage."""
    state = compute_at(state, k, target, tile_at)
    loops = state.stages[k].iters
    space = [it.uid for it in loops if it.kind == SPATIAL]
    row, column = space[shape.row], space[shape.lane]
    others = [uid for uid in space if uid not in (row, column)]
    state = reorder(state, k, [*others, *[it.uid for it in loops if it.kind == REDUCE], row, column])
    if shape.lane != len(space) - 1:
        state = apply(state, StorageOrder(k, (*[d for d in range(len(space)) if d != shape.lane], shape.lane)))
    return annotate(annotate(state, k, row, "unroll"), k, column, "vectorize")


def with_panels(ctx: SketchContext, state: State, k: int, target: int, panel_at: int, lane: int) -> State:
    """With the panels of stage `k` packed, in the loops of stage `target`."""
    for panel in reversed(panels(ctx, state, k, lane)):
        state = apply(state, CacheRead(panel.source, "local", (k,)))
        k, target = k + 1, target + 1
        copy = panel.source + 1
        if panel.order is not None:
            state = apply(state, StorageOrder(copy, panel.order))
        state = compute_at(state, copy, target, panel_at)
        along = state.stages[copy].leaf[panel.leading :] if panel.order is not None else ()
        if len(along) > 1:
            state, _ = fuse(state, copy, along)
        state = annotate(state, copy, state.stages[copy].leaf[-1], "vectorize")
    return state


def in_parts(state: State, k: int, shape: KernelShape, hardware: HardwareParams, terms: int = 0) -> KernelShape | None:
    """`shape` in parts of rows and of columns, in which both are packed; None where that takes too much of the time.

    So many `terms` are packed at a time; 0 for all.
    """
    op = state.stages[k].op
    extents = extents_of(op)
    row_bytes = (terms or prod(extents[len(op.axis) :])) * element_bytes(op.dtype)
    tiles, panels = -(-extents[shape.row] // shape.rows), -(-extents[shape.lane] // shape.columns)
    others = prod(extents[: len(op.axis)]) // (extents[shape.row] * extents[shape.lane])
    cores = hardware.num_cores

    def time(part: tuple[int, int]) -> float:
        """As in `_blocks`, of so many tiles and panels."""
        rows, columns = part[0] * shape.rows, part[1] * shape.columns
        count = others * -(-tiles // part[0]) * -(-panels // part[1])
        busiest = -(-count // cores) * cores * part[0] * part[1] / (others * tiles * panels)
        return busiest * (1 + PACK_ROWS / rows + PACK_ROWS / columns) * (1 + cores / (UNEVEN * count))

    most = max(UNEVEN * cores, 2 * -(-extents[shape.row] * row_bytes // BLOCK_BYTES))
    found = {
        (-(-tiles // i), -(-panels // j))
        for i in range(1, min(tiles, most) + 1)
        for j in range(1, min(panels, most // i) + 1)
        if -(-tiles // i) * shape.rows * row_bytes <= BLOCK_BYTES
    }
    best = min(found, key=time, default=(1, 1))
    if time(best) > MOST_TIME:
        return None
    blocks = tuple([best[0] if d == shape.row else 1 for d in range(len(op.axis))])
    return replace(shape, blocks=blocks, panels=best[1])


def rows_packed(state: State, rows: TiledInput, k: int, target: int, part_at: int, shape: KernelShape) -> State:
    """With the rows of a part copied as tiles read them: `shape.rows` of them side by side for each term."""
    state, copy = in_tiles(state, rows, k, shape.rows, "local")
    return compute_at(state, copy, target + 1, part_at)


def micro_kernel_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch for each of the best shapes and each place of padding, with panels packed where they are."""
    kernels = [MicroKernel(n, inside) for n in range(SHAPES) for inside in (True, False)]
    kernels += [MicroKernel(n, rows=True) for n in range(SHAPES)]
    return cpu_sketches(ctx, kernels)
