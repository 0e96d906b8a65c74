"""Joined rows and columns: micro-kernels that run on from one line of an image to the next.

    for parts of the pixels, i.0, j.0                  parallel, as the search decides
      panel of W filters
      for tiles of the part, i.1
        for window, channel:  R x W accumulators += A[pixel // 7, pixel % 7] * panel
        R x W outputs

Lines of 7 pixels are two tiles of 4, an eighth of which is idle, or one of 7, whose sums leave no register for two
vectors of filters.  The 49 pixels of the image are ten tiles of 5.  Where a tile reads is computed once for all terms.

    for parts of the filters, of 196 pixels           parallel, as the search decides
      for tiles of the part
        for channel:  R x 28 accumulators += weight * data[channel, 28 pixels]
        R x 28 outputs

With the channels in front of the pixels (NCHW) and windows of one pixel, all pixels of a channel lie side by side: a
product of two matrices.  Lines of 14 pixels are vectors with idle lanes, each of which is loaded for few sums; two of
them are a wider tile.  Tiles are of widths that leave no pixel over, for lanes behind the last one would be read one by
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from ansor.core.target.hardware import HardwareParams
from ansor.core.values.schedule_primitives import fuse
from ansor.sketch.predicates import is_read_argument
from ansor.sketch.rule import Condition, Outcome, SketchContext
from te_lite.bounds.reads import Affine, Form, Read, Unknown, reads_by
from te_lite.loops.register_tile import largest_divisor
from te_lite.schedule.replay import apply
from te_lite.schedule.state import State

from ..analysis.own_stages import axes_of, axes_read, cpu_sketches, extents_of, runs_of, with_reader
from ..axes.steps import JoinAxes
from .micro_kernel import SHAPES, KernelShape, MicroKernel, is_product, shapes
from .operands import paddings
from .shape_costs import shape_costs, sides

# ----------------------------------------------------------------------------------------------------------------- rows


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


def _in_whole_parts(made: Joined, k: int, shape: KernelShape) -> KernelShape:
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

    def made(self, ctx: SketchContext, state: State, k: int) -> tuple[Joined, KernelShape] | None:
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

    def made(self, ctx: SketchContext, state: State, k: int) -> tuple[Joined, KernelShape] | None:
        made = joined(state, k, ctx.hardware)
        found = [] if made is None else shapes(made.state, k, ctx.hardware, self.inside, row=made.first)[self.number :]
        return (made, _in_whole_parts(made, k, found[0])) if made is not None and found else None


def joined_row_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch for each of the best shapes and each place of padding."""
    return cpu_sketches(ctx, [JoinedRows(n, inside) for n in range(SHAPES) for inside in (True, False)])


# -------------------------------------------------------------------------------------------------------------- columns


def joined_as_columns(state: State, k: int, hardware: HardwareParams) -> Joined | None:
    """Stage `k` with one axis for its last ones; None where that is not possible or gains nothing as columns.

    What it gains is compared with tiles whose columns are of the last axis.
    """
    first, last = first_column(state, k), len(state.stages[k].op.axis) - 1
    before = {way: cost for way, cost in shape_costs(state, k, hardware).items() if way[0].lane == last}
    made = with_axes_joined(state, k, first, last + 1 - first) if before and first < last else None
    after = {} if made is None else shape_costs(made.state, k, hardware, whole=first)
    return made if after and min(after.values()) < LEAST_GAIN * min(before.values()) else None


def first_column(state: State, k: int) -> int:
    """From which space axis on all of them move through memory as one, in whatever stage `k` reads along the last."""
    op = state.stages[k].op
    extents, last = extents_of(op), len(op.axis) - 1
    first = 0
    for source, read in reads_by(k, state.ops):
        moved = axes_read(read, extents)
        others = [d + 1 for d in moved if d < last]
        seen = last not in moved and not any(isinstance(form, Unknown) for form in read.forms)
        shape = state.stages[source].op.shape
        first = max([first, *(others if seen else [_first_whole(read, shape, extents, last)])])
    return first


def _first_whole(read: Read, shape: Sequence[int], extents: Sequence[int], last: int) -> int:
    """From which axis on they are the last dimensions of what is read, and no others; `last` where they are not."""
    axis = last + 1
    for form, size in zip(reversed(read.forms), reversed(shape), strict=True):
        if axis == 0 or size != extents[axis - 1] or not _is_axis(form, axis - 1, extents):
            break
        axis -= 1
    before = read.forms[: len(read.forms) - (last + 1 - axis)]
    again = any(isinstance(form, Unknown) or axes_of(form, extents) & {*range(axis, last + 1)} for form in before)
    return last if again else min(axis, last)


def _is_axis(form: Form, axis: int, extents: Sequence[int]) -> bool:
    match form:
        case Affine(terms=terms, const=0):
            return [term for term in terms if extents[term[0]] > 1] == [(axis, 1)]
        case _:
            return False


class JoinedColumns(OfJoinedAxes):
    """In tiles with columns along the joined axes."""

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM."

    def made(self, ctx: SketchContext, state: State, k: int) -> tuple[Joined, KernelShape] | None:
        made = joined_as_columns(state, k, ctx.hardware)
        found = [] if made is None else shapes(made.state, k, ctx.hardware, whole=made.first)[self.number :]
        return (made, found[0]) if made is not None and found else None


def joined_column_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch for each of the best shapes."""
    return cpu_sketches(ctx, [JoinedColumns(n) for n in range(SHAPES)])
