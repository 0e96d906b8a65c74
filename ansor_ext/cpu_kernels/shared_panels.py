"""Shared panels: products on a CPU whose second operand is packed once, for all parts of the rows and all threads.

    for panel, j.0                                        parallel
      B.local                                             W columns of the whole reduction
    for parts of the rows, i.0                            parallel, as the search decides
      A.local                                             the rows of the part
      for panel, j.0: for i.1:
        for k:  R x W accumulators += A.local * B.local   in registers
        R x W outputs                                     what follows element by element

The sketches of `micro_kernel` pack a panel anew for each part of the rows, and the rows for each part of the columns:
of a product of 1,024 rows, columns and terms five matrices, a tenth of the time.  Here each is packed once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

from ansor.core.target.hardware import HardwareParams
from ansor.core.values.options import FREE
from ansor.sketch.rule import Condition, Outcome, SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.schedule.state import State

from ..analysis.own_stages import cpu_sketches, extents_of, with_reader
from .micro_kernel import (
    BLOCK_BYTES,
    MOST_TIME,
    PACK_ROWS,
    SHAPES,
    UNEVEN,
    KernelShape,
    accumulated,
    is_product,
    rows_packed,
    shapes,
    tiled_output,
)
from .operands import TiledInput, in_tiles, tiled_input

PANEL_ROWS = 8
"""To fetch a panel from the last cache takes as long as so many rows of its products, roughly."""


@dataclass(frozen=True)
class Plan:
    """A shape in parts of the rows, each for all panels, and the operands that move with rows and with columns."""

    shape: KernelShape
    rows: TiledInput
    columns: TiledInput


def plan(ctx: SketchContext, state: State, k: int, shape: KernelShape) -> Plan | None:
    """How stage `k` is computed in tiles of `shape`; None where an operand cannot be packed or packing takes long."""
    rows, columns = tiled_input(state, k, shape.row, shape.lane), tiled_input(state, k, shape.lane, shape.row)
    if rows is None or columns is None:
        return None
    free = state.stages[k].op.attrs.get(FREE, ()) if ctx.stored_as_read else ()
    part = part_of_rows(state, k, shape, ctx.hardware)
    return None if part is None or columns.source in free else Plan(part, rows, columns)


def part_of_rows(state: State, k: int, shape: KernelShape, hardware: HardwareParams) -> KernelShape | None:
    """`shape` with parts of the rows that are the same for all cores; None where packing takes too much of the time."""
    op = state.stages[k].op
    extents = extents_of(op)
    row_bytes = prod(extents[len(op.axis) :]) * element_bytes(op.dtype)
    rows, columns = extents[shape.row], extents[shape.lane]
    tiles, others = -(-rows // shape.rows), prod(extents[: len(op.axis)]) // (rows * columns)
    cores = hardware.num_cores

    def time(part: int) -> float:
        """Relative to equal shares of nothing but products."""
        count = others * -(-tiles // part)
        busiest = -(-count // cores) * cores * part / (others * tiles)
        packing = 1 + PACK_ROWS / rows + PACK_ROWS / columns + PANEL_ROWS / (part * shape.rows)
        return busiest * packing * (1 + cores / (UNEVEN * count))

    most = max(UNEVEN * cores, 2 * -(-rows * row_bytes // BLOCK_BYTES))
    found = {-(-tiles // n) for n in range(1, min(tiles, most) + 1)}
    best = min([p for p in found if p * shape.rows * row_bytes <= BLOCK_BYTES], key=time, default=1)
    if time(best) > MOST_TIME:
        return None
    blocks = tuple([best if d == shape.row else 1 for d in range(len(op.axis))])
    return replace(shape, blocks=blocks, panels=-(-columns // shape.columns))


class SharedPanels:
    """Compute a product in register tiles of one of its best shapes, with columns packed before and rows for parts."""

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM."

    def __init__(self, number: int) -> None:
        self.number = number

    def _plan(self, ctx: SketchContext, state: State, k: int) -> Plan | None:
        found = shapes(state, k, ctx.hardware)[self.number :][:1] if is_product(state, k) else []
        return plan(ctx, state, k, found[0]) if found else None

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.SKIP if self._plan(ctx, state, k) is None else Condition.APPLY_AND_SKIP_REST

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        found = self._plan(ctx, state, k)
        assert found is not None
        shape = found.shape
        state, target = with_reader(state, k)
        if target is None:
            return []
        state, part_at, _, tile_at = tiled_output(state, target, shape)
        state = accumulated(state, k, target, tile_at, shape)
        state = rows_packed(state, found.rows, k, target, part_at, shape)
        state, _ = in_tiles(state, found.columns, k + 1, shape.columns, "local")
        return [(state, k - 1)]


def shared_panel_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch of a product of two inputs for each of the best shapes."""
    return cpu_sketches(ctx, [SharedPanels(n) for n in range(SHAPES)])
