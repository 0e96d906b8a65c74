"""Joined columns: micro-kernels whose lanes run on from one line of an image to the next.

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
from typing import ClassVar

from ansor.core.target.hardware import HardwareParams
from ansor.sketch.rule import SketchContext
from te_lite.bounds.reads import Affine, Form, Read, Unknown, reads_by
from te_lite.schedule.state import State

from ..analysis.own_stages import cpu_sketches
from ..analysis.read_axes import axes_of, axes_read, extents_of
from .joined_rows import LEAST_GAIN, Joined, OfJoinedAxes, with_axes_joined
from .micro_kernel import SHAPES, Shape, shapes
from .shape_costs import shape_costs


def joined(state: State, k: int, hardware: HardwareParams) -> Joined | None:
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

    def made(self, ctx: SketchContext, state: State, k: int) -> tuple[Joined, Shape] | None:
        made = joined(state, k, ctx.hardware)
        found = [] if made is None else shapes(made.state, k, ctx.hardware, whole=made.first)[self.number :]
        return (made, found[0]) if made is not None and found else None


def joined_column_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch for each of the best shapes."""
    return cpu_sketches(ctx, [JoinedColumns(n) for n in range(SHAPES)])
