"""Joined rows: micro-kernels whose rows run on from one line of an image to the next.

    for parts of the pixels, i.0, j.0                  parallel, as the search decides
      panel of W filters
      for tiles of the part, i.1
        for window, channel:  R x W accumulators += A[pixel // 7, pixel % 7] * panel
        R x W outputs

Lines of 7 pixels are two tiles of 4, an eighth of which is idle, or one of 7, whose sums leave no register for two
vectors of filters.  The 49 pixels of the image are ten tiles of 5.  Where a tile reads is computed once for all terms.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from ansor.core.target.hardware import HardwareParams
from ansor.core.values.schedule_primitives import fuse
from ansor.sketch.predicates import is_read_argument
from ansor.sketch.rule import Condition, Outcome, SketchContext
from te_lite.loops.register_tile import largest_divisor
from te_lite.schedule.axis_steps import JoinAxes
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State

from ..analysis.own_stages import cpu_sketches, with_reader
from ..analysis.read_axes import extents_of, runs_of
from .micro_kernel import SHAPES, MicroKernel, Shape, is_product, shapes
from .padding import paddings
from .shape_costs import shape_costs, sides

LEAST_GAIN = 0.93
"""Time relative to tiles of separate lines, by the estimate of shapes, above which joining is not worth a sketch.

Where a tile reads takes time: of lines of 14 pixels the estimate said 0.94, and 1.1 was measured (vectors of 32 bytes).
"""


@dataclass(frozen=True)
class Joined:
    """A state whose stage has one axis for `count` from `first` on, and the stage that takes up what it computes."""

    state: State
    target: int
    first: int
    count: int

    def with_loops_fused(self) -> State:
        """With one loop for those axes of the stage that takes up what is computed, too."""
        loops = self.state.stages[self.target].leaf[self.first : self.first + self.count]
        return fuse(self.state, self.target, loops)[0]


def joined(state: State, k: int, hardware: HardwareParams) -> Joined | None:
    """Stage `k` with its rows and their neighbours in one axis; None where that is not possible or gains nothing.

    What it gains is compared with tiles of any axes as rows and columns.
    """
    run, before = _run(state, k), shape_costs(state, k, hardware)
    made = with_axes_joined(state, k, *run) if run is not None and before else None
    after = {} if made is None else shape_costs(made.state, k, hardware, row=made.first)
    return made if after and min(after.values()) < LEAST_GAIN * min(before.values()) else None


def with_axes_joined(state: State, k: int, first: int, count: int) -> Joined | None:
    """Stage `k` with one axis for `count` from `first` on; None where that is not possible."""
    state, target = with_reader(state, k)
    if target is None or is_read_argument(state, k) or not _is_one_sum(state, k):
        return None
    return Joined(apply(state, JoinAxes(k, first, count)), target, first, count)


def _is_one_sum(state: State, k: int) -> bool:
    op = state.stages[k].compute
    return op.num_outputs == 1 and all(isinstance(axis.extent, int) for axis in op.reduce_axis)


def _run(state: State, k: int) -> tuple[int, int] | None:
    """The free axes beside that of the rows, first and count, without those of length 1 in front."""
    extents = extents_of(state.stages[k].op)
    for way in sides(state, k):
        longer = [d for d in way.free if extents[d] > 1]
        for run in runs_of([d for d in way.free if longer and d >= longer[0]]):
            if way.row in run and len(run) > 1:
                return run[0], len(run)
    return None


def _in_whole_parts(made: Joined, k: int, shape: Shape) -> Shape:
    """`shape` in parts of equally many tiles: where a tile behind the last pixel reads lies in no part of a copy."""
    tiles = -(-extents_of(made.state.stages[k].op)[shape.row] // shape.rows)
    blocks = list(shape.blocks)
    blocks[shape.row] = int(largest_divisor(tiles, blocks[shape.row], blocks[shape.row]))
    return replace(shape, blocks=tuple(blocks))


class OfJoinedAxes(MicroKernel):
    """Compute a reduction in register tiles of one of the best shapes for axes that are joined."""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        if not is_product(state, k) or (self.inside and not paddings(state, k, ctx.hardware)):
            return Condition.SKIP
        return Condition.SKIP if self.made(ctx, state, k) is None else Condition.APPLY_AND_SKIP_REST

    def made(self, ctx: SketchContext, state: State, k: int) -> tuple[Joined, Shape] | None:
        """Stage `k` with its axes joined, and the shape; None where there is none."""
        raise NotImplementedError

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        found = self.made(ctx, state, k)
        assert found is not None
        made, shape = found
        return [(self.computed(ctx, made.with_loops_fused(), k, made.target, shape), k - 1)]


class JoinedRows(OfJoinedAxes):
    """In tiles with rows along the joined axes."""

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM."

    def made(self, ctx: SketchContext, state: State, k: int) -> tuple[Joined, Shape] | None:
        made = joined(state, k, ctx.hardware)
        found = [] if made is None else shapes(made.state, k, ctx.hardware, self.inside, row=made.first)[self.number :]
        return (made, _in_whole_parts(made, k, found[0])) if made is not None and found else None


def joined_row_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch for each of the best shapes and each place of padding."""
    return cpu_sketches(ctx, [JoinedRows(n, inside) for n in range(SHAPES) for inside in (True, False)])
