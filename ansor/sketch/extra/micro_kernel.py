"""Micro-kernels: products on a CPU whose accumulators fill the registers, in loops that are decided already.

    for the other axes, i.0, j.0                 parallel, as the search decides
      panel of B                                 W columns of the whole reduction, packed where that pays
      for i.1                                    the rows of a block
        for reduction
          R x W accumulators += A x panel        in registers; rows unrolled, columns in vectors
        R x W outputs                            what follows element by element

Ansor's tiles leave R, W and nine other lengths to the search, and nearly all of them spill registers or read far apart.
Here they are numbers of the sketch: a few shapes R x W that use the registers, waste little at the edges and keep the
multipliers busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from te_lite.reads import reads_by_producer
from te_lite.replay import apply
from te_lite.state import REDUCE, SPATIAL, State
from te_lite.step import CacheRead, CacheWrite, StorageOrder

from ...core.hardware import HardwareParams
from ...core.schedule_primitives import annotate, compute_at, reorder, split
from ..generate import CPU_RULES
from ..predicates import NO_SPLIT, fusion_target, named_axes, needs_tiling
from ..rule import Condition, Outcome, SketchContext
from ..shared_memory import element_bytes
from .packed_read import panels
from .padded_shared import axes_read, extents_of
from .split_reduction import derive

REGISTERS = {64: 28}
FEW_REGISTERS = 12
MOST_VECTORS, MOST_ROWS = 4, 14
LATENCY = 8
SHAPES = 3
BLOCK_BYTES = 1 << 20
TASKS_PER_CORE = 4


@dataclass(frozen=True)
class Shape:
    """`rows` along space axis `axis` times `columns` along the last one; `block` rows are done with one panel."""

    axis: int
    rows: int
    columns: int
    block: int


def row_axis(state: State, k: int) -> int | None:
    """The longest space axis of stage `k`, the last one among equals, that does not move an input along its lanes."""
    op = state.stages[k].op
    extents, lane = extents_of(op), len(op.axis) - 1
    moved = [
        axes_read(read, extents)
        for reads in reads_by_producer(state.ops, inlined=frozenset())
        for read in reads
        if read.reader == k
    ]
    free = [d for d in range(lane) if any(lane in axes and d not in axes for axes in moved)]
    return max(free, key=lambda d: (extents[d], d), default=None)


def shapes(state: State, k: int, hardware: HardwareParams) -> list[Shape]:
    """The best shapes for stage `k`, fastest first by an estimate; none where it has no rows and columns."""
    op, axis = state.stages[k].op, row_axis(state, k)
    extents = extents_of(op)
    if axis is None or not _plain(state, k):
        return []
    size = element_bytes(op.dtype)
    lanes, most = max(1, hardware.vector_unit_bytes // size), REGISTERS.get(hardware.vector_unit_bytes, FEW_REGISTERS)
    rows, columns = extents[axis], extents[len(op.axis) - 1]
    costs: dict[tuple[int, int], tuple[float, int]] = {}
    for width in _widths(columns, lanes):
        vectors = -(-width // lanes)
        for r in range(1, min(rows, MOST_ROWS, most // vectors) + 1):
            waste = -(-rows // r) * r / rows * (-(-columns // width) * vectors * lanes / columns)
            stalls = max(1.0, LATENCY / (r * vectors), (r + vectors) / (r * vectors))
            costs[r, width] = (round(waste * stalls, 2), -r * vectors)
    best = sorted(costs, key=lambda shape: costs[shape])[:SHAPES]
    return [Shape(axis, r, width, _block(extents, len(op.axis), axis, r, width, size, hardware)) for r, width in best]


def _plain(state: State, k: int) -> bool:
    """The axes have fixed extents and may be split."""
    stage = state.stages[k]
    known = all(isinstance(it.extent, int) for it in stage.iters)
    return known and not named_axes(stage, NO_SPLIT) and len(stage.leaf) == stage.num_roots


def _widths(columns: int, lanes: int) -> Iterator[int]:
    """Whole vectors, and all columns where they are few."""
    yield from [n * lanes for n in range(1, MOST_VECTORS + 1) if n * lanes < columns]
    if columns <= MOST_VECTORS * lanes:
        yield columns


def _block(extents: list[int], space: int, axis: int, r: int, width: int, size: int, hardware: HardwareParams) -> int:
    """As many rows as are read again from a cache and leave tasks for all cores."""
    rows, reduction = extents[axis], prod(extents[space:])
    others = prod(extents[:space]) // (rows * extents[space - 1])
    tasks = others * -(-extents[space - 1] // width)
    parts = max(-(-rows * reduction * size // BLOCK_BYTES), -(-TASKS_PER_CORE * hardware.num_cores // tasks))
    tiles = -(-rows // r)
    return -(-tiles // min(parts, tiles)) * r


class MicroKernel:
    """Compute a tiled reduction in register tiles of one of its best shapes."""

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM."

    def __init__(self, number: int) -> None:
        self.number = number

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        fits = _is_product(state, k) and len(shapes(state, k, ctx.hardware)) > self.number
        return Condition.APPLY_AND_SKIP_REST if fits else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        shape = shapes(state, k, ctx.hardware)[self.number]
        if fusion_target(state, k) is None:
            state = apply(state, CacheWrite(k, "local"))
        target = fusion_target(state, k)
        if target is None:
            return []
        state, panel_at, tile_at = _tiled_output(state, target, shape)
        state = _accumulate(state, k, target, tile_at, shape)
        return [(_packed(ctx, state, k, target, panel_at), k - 1)]


def _is_product(state: State, k: int) -> bool:
    stage = state.stages[k]
    return not stage.is_placeholder and bool(stage.op.reduce_axis) and needs_tiling(state, k)


def _tiled_output(state: State, target: int, shape: Shape) -> tuple[State, int, int]:
    """The output in tiles; the loops at which a panel and a tile are computed."""
    roots = [it.uid for it in state.stages[target].iters]
    row, column = roots[shape.axis], roots[-1]
    state, (i0, i1, i2) = split(state, target, row, [shape.block // shape.rows, shape.rows])
    state, (j0, j1) = split(state, target, column, [shape.columns])
    others = [uid for uid in roots if uid not in (row, column)]
    state = reorder(state, target, [*others, i0.uid, j0.uid, i1.uid, i2.uid, j1.uid])
    return annotate(state, target, j1.uid, "vectorize"), j0.uid, i1.uid


def _accumulate(state: State, k: int, target: int, tile_at: int, shape: Shape) -> State:
    """The reduction around the tile, whose rows are unrolled and whose columns are lanes."""
    state = compute_at(state, k, target, tile_at)
    loops = state.stages[k].iters
    space = [it.uid for it in loops if it.kind == SPATIAL]
    row, column = space[shape.axis], space[-1]
    others = [uid for uid in space if uid not in (row, column)]
    state = reorder(state, k, [*others, *[it.uid for it in loops if it.kind == REDUCE], row, column])
    return annotate(annotate(state, k, row, "unroll"), k, column, "vectorize")


def _packed(ctx: SketchContext, state: State, k: int, target: int, panel_at: int) -> State:
    """With the panels of stage `k` packed, in the loops of stage `target`."""
    for panel in reversed(panels(ctx, state, k)):
        state = apply(state, CacheRead(panel.source, "local", (k,)))
        k, target = k + 1, target + 1
        if panel.order is not None:
            state = apply(state, StorageOrder(panel.source + 1, panel.order))
        state = compute_at(state, panel.source + 1, target, panel_at)
        state = annotate(state, panel.source + 1, state.stages[panel.source + 1].leaf[-1], "vectorize")
    return state


def micro_kernel_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch for each of the best shapes, with panels packed where there are some."""
    if ctx.target.is_gpu:
        return []
    start, last = ctx.dag.init_state, len(ctx.dag.ops) - 1
    found = [s for n in range(SHAPES) for s in derive(ctx, (MicroKernel(n), *CPU_RULES), start, last)]
    mine = [s for s in found if any(it.annotation == "vectorize" for stage in s.stages for it in stage.iters)]
    return list({s.steps: s for s in mine}.values())
