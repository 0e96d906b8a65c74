"""Windows on a CPU: depthwise convolutions and pools with channels last, a tile of several lines in registers.

    for L lines, R outputs of each, vector of channels    parallel, as the search decides
      for terms of the window                             written out, and padding where it is read
        L x R accumulators (of a vector each) += data * weight
      L x R outputs                                       and what follows element by element

All operands move along the channels, so no panel serves several outputs; but windows of neighbours overlap, and all of
them read the same weights.  What several accumulators read is loaded once where their terms are written out.  Tiles of
several lines read each line fewer times from the cache behind the first one, and are faster where images are large;
of one line they meet the edges of an image less often, and are faster where they are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from ansor.core.values.schedule_primitives import annotate, compute_at, reorder, split
from ansor.sketch.rule import Condition, Outcome, SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.bounds.reads import Read, reads_by
from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import apply
from te_lite.schedule.state import REDUCE, SPATIAL, State

from ..analysis.own_stages import axes_of, cpu_sketches, extents_of, with_reader
from ..cpu_kernels.operands import paddings
from ..cpu_kernels.reuse import elements
from ..cpu_kernels.shape_costs import has_fixed_axes

MOST_TERMS, MOST_OUTPUTS = 32, 8
SEVERAL = 2
"""Sketches with tiles of several lines."""
FAR = 2
"""What comes from the cache behind the first one takes as long as so many loads, roughly."""


@dataclass(frozen=True)
class WindowTile:
    """So many outputs of each of so many lines."""

    lines: int
    outputs: int


def tiles(state: State, k: int, lanes: int) -> list[WindowTile]:
    """The best tiles of several lines by an estimate, then that of one; none where stage `k` is no such window."""
    op = state.stages[k].op
    if len(op.axis) < 2 or not op.reduce_axis or not has_fixed_axes(state, k):
        return []
    extents, last = extents_of(op), len(op.axis) - 1
    window = 1 < prod(extents[last + 1 :]) <= MOST_TERMS and extents[last] % lanes == 0
    reads = [read for _, read in reads_by(k, state.ops)]
    if not window or not _moves_alone(state, k, last):
        return []
    lines, line = extents[last - 2] if last > 1 else 1, extents[last - 1]
    found = [
        WindowTile(n, r)
        for n in range(1, min(lines, MOST_OUTPUTS) + 1)
        for r in range(1, min(line, MOST_OUTPUTS // n) + 1)
        if n * r > 1
    ]
    found.sort(key=lambda tile: _time(tile, reads, extents, last))
    several, one = [[tile for tile in found if (tile.lines == 1) == single] for single in (False, True)]
    return [*several[:SEVERAL], *one[:1]]


def _time(tile: WindowTile, reads: Sequence[Read], extents: Sequence[int], lane: int) -> tuple[float, int]:
    """Loads and sums for each output, and of tiles of equal times the one with the most outputs."""
    lines, line = extents[lane - 2] if lane > 1 else 1, extents[lane - 1]
    covered = -(-lines // tile.lines) * tile.lines / lines * (-(-line // tile.outputs) * tile.outputs / line)
    loads = _loads(tile, reads, extents, lane) / (tile.lines * tile.outputs)
    far = _loads(WindowTile(tile.lines, line), reads, extents, lane) / (tile.lines * line)
    return round(covered * (prod(extents[lane + 1 :]) + loads + FAR * far), 1), -tile.lines * tile.outputs


def _loads(tile: WindowTile, reads: Sequence[Read], extents: Sequence[int], lane: int) -> int:
    """How many vectors the outputs of a tile read."""
    space = [1] * (lane + 1)
    space[max(lane - 2, 0)] = tile.lines
    space[lane - 1] = tile.outputs
    within = (*space, *extents[lane + 1 :])
    return sum([elements(read, within) for read in reads])


def _moves_alone(state: State, k: int, lane: int) -> bool:
    """Every read of stage `k` is along axis `lane` in steps of one element, and that of a line is among the windows."""
    extents = extents_of(state.stages[k].op)
    found = []
    for source, read in reads_by(k, state.ops):
        shape = state.stages[source].op.shape
        axes = [axes_of(form, extents) for form in read.forms]
        moved = [d for d, some in enumerate(axes) if lane in some]
        alone = len(moved) == 1 and axes[moved[0]] == {lane} and prod(shape[moved[0] + 1 :]) == 1
        found.append((alone, any({lane - 1} < some for some in axes)))
    return all(alone for alone, _ in found) and any(overlaps for _, overlaps in found)


class Window:
    """Compute a window with the outputs of one of its best tiles in registers."""

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM."

    def __init__(self, number: int) -> None:
        self.number = number

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        if state.stages[k].is_placeholder:
            return Condition.SKIP
        fits = len(tiles(state, k, _lanes(ctx, state, k))) > self.number
        return Condition.APPLY_AND_SKIP_REST if fits else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        lanes = _lanes(ctx, state, k)
        tile = tiles(state, k, lanes)[self.number]
        for p in paddings(state, k, ctx.hardware):
            state = apply(state, ComputeInline(p))
        state, target = with_reader(state, k)
        if target is None:
            return []
        *others, line, channels = [it.uid for it in state.stages[target].iters]
        outer, inner = others, []
        if tile.lines > 1:
            state, (bands, lines) = split(state, target, others[-1], [tile.lines])
            outer, inner = [*others[:-1], bands.uid], [lines.uid]
        state, (parts, outputs) = split(state, target, line, [tile.outputs])
        state, (vectors, vector) = split(state, target, channels, [lanes])
        state = reorder(state, target, [*outer, parts.uid, vectors.uid, *inner, outputs.uid, vector.uid])
        state = annotate(state, target, vector.uid, "vectorize")
        state = compute_at(state, k, target, vectors.uid)
        *loops, lane = [it.uid for it in state.stages[k].iters if it.kind == SPATIAL]
        terms = [it.uid for it in state.stages[k].iters if it.kind == REDUCE]
        held = loops[-2:] if tile.lines > 1 else loops[-1:]
        state = reorder(state, k, [*loops[: -len(held)], *terms, *held, lane])
        for uid in (*terms, *held):
            state = annotate(state, k, uid, "unroll")
        return [(annotate(state, k, lane, "vectorize"), k - 1)]


def _lanes(ctx: SketchContext, state: State, k: int) -> int:
    return max(1, ctx.hardware.vector_unit_bytes // element_bytes(state.stages[k].op.dtype))


def window_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch for each of the best tiles."""
    return cpu_sketches(ctx, [Window(n) for n in range(SEVERAL + 1)], "unroll")
