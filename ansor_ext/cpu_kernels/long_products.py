"""Long products on a CPU: sums are cut, so that a panel stays in the second-level cache while it is used.

    for parts of rows and columns, i.0, j.0             parallel, as the search decides
      for k.0                                           1,024 terms
        A.local                                         the rows of the part, as tiles read them
        for panel, j.1
          B.local                                       W columns
          for i.1: for k.1:  R x W sums, which are loaded before and stored behind, += A.local * B.local
      the part                                          written, and what follows element by element

`micro_kernel` has panels of the whole reduction: of 4,096 terms one is 256 KiB, which the rows that pass drive out.
"""

from __future__ import annotations

from typing import ClassVar

from ansor.core.values.schedule_primitives import annotate, compute_at, reorder, split
from ansor.sketch.predicates import needs_tiling
from ansor.sketch.rule import Condition, Outcome, SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.schedule.state import REDUCE, SPATIAL, State

from ..analysis.own_stages import cpu_sketches, extents_of, with_reader
from .micro_kernel import SHAPES, KernelShape, in_parts, micro_kernel_sketches, rows_packed, shapes, with_panels
from .operands import tiled_input

TERMS = 1024
LONGEST_PANEL = 128 << 10
"""Bytes of a panel of the whole reduction, up to which it need not be cut."""


class LongProduct:
    """Compute a product of many terms in register tiles of one of its best shapes, `TERMS` at a time."""

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM."

    def __init__(self, number: int) -> None:
        self.number = number

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.SKIP if self._shape(ctx, state, k) is None else Condition.APPLY_AND_SKIP_REST

    def _shape(self, ctx: SketchContext, state: State, k: int) -> KernelShape | None:
        stage = state.stages[k]
        if stage.is_placeholder or len(stage.op.reduce_axis) != 1 or not needs_tiling(state, k):
            return None
        column = extents_of(stage.op)[-1] * element_bytes(stage.op.dtype)
        for shape in shapes(state, k, ctx.hardware)[self.number :][:1]:
            fits = shape.lane == len(stage.op.axis) - 1 and tiled_input(state, k, shape.row, shape.lane) is not None
            if fits and column * shape.columns > LONGEST_PANEL:
                return in_parts(state, k, shape, ctx.hardware, TERMS)
        return None

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        shape = self._shape(ctx, state, k)
        assert shape is not None
        rows = tiled_input(state, k, shape.row, shape.lane)
        assert rows is not None
        state, target = with_reader(state, k)
        if target is None:
            return []
        state, part = _written_in_parts(state, target, shape)
        state, terms, panel = _summed_up(compute_at(state, k, target, part), k, shape)
        before = len(state.stages)
        state = with_panels(ctx, state, k, k, panel, shape.lane)
        k += len(state.stages) - before
        return [(rows_packed(state, rows, k, k, terms, shape), k - 1)]


def _written_in_parts(state: State, target: int, shape: KernelShape) -> tuple[State, int]:
    """The output in parts, written in vectors; the loop of a part."""
    roots = state.stages[target].iters
    row, column = roots[shape.row].uid, roots[shape.lane].uid
    others = [it.uid for it in roots if it.uid not in (row, column)]
    state, (i0, i1) = split(state, target, row, [shape.blocks[shape.row] * shape.rows])
    state, (j0, j1, lanes) = split(state, target, column, [shape.panels, shape.columns])
    state = reorder(state, target, [*others, i0.uid, j0.uid, i1.uid, j1.uid, lanes.uid])
    return annotate(state, target, lanes.uid, "vectorize"), j0.uid


def _summed_up(state: State, k: int, shape: KernelShape) -> tuple[State, int, int]:
    """The product of a part in register tiles; the loops of cuts of the reduction and of a panel."""
    loops = state.stages[k].iters
    space = [it.uid for it in loops if it.kind == SPATIAL]
    (reduction,) = [it.uid for it in loops if it.kind == REDUCE]
    others = [uid for d, uid in enumerate(space) if d not in (shape.row, shape.lane)]
    state, (i0, i1) = split(state, k, space[shape.row], [shape.rows])
    state, (j0, j1) = split(state, k, space[shape.lane], [shape.columns])
    state, (k0, k1) = split(state, k, reduction, [TERMS])
    state = reorder(state, k, [*others, k0.uid, j0.uid, i0.uid, k1.uid, i1.uid, j1.uid])
    state = annotate(annotate(state, k, i1.uid, "unroll"), k, j1.uid, "vectorize")
    return state, k0.uid, j0.uid


def long_product_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch of a product of many terms for each of the best shapes."""
    return cpu_sketches(ctx, [LongProduct(n) for n in range(SHAPES)])


def product_sketches(ctx: SketchContext) -> list[State]:
    """The sketches of a product with its sums in registers, then those of one with so many terms that it is cut."""
    return micro_kernel_sketches(ctx) + long_product_sketches(ctx)
