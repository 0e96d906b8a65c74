"""Windows on a CPU: depthwise convolutions and pools with channels last, several outputs of a line in registers.

    for lines, R outputs of a line, vector of channels      parallel, as the search decides
      for terms of the window                               written out, and padding where it is read
        R accumulators (of a vector each) += data * weight
      R outputs                                             and what follows element by element

All operands move along the channels, so no panel serves several outputs; but windows of neighbours overlap, and all of
them read the same weights.  What several accumulators read is loaded once where their terms are written out.
"""

from __future__ import annotations

from math import prod
from typing import ClassVar

from te_lite.reads import reads_by_producer
from te_lite.replay import apply
from te_lite.state import REDUCE, SPATIAL, State
from te_lite.step import ComputeInline

from ...core.schedule_primitives import annotate, compute_at, reorder, split
from ..rule import Condition, Outcome, SketchContext
from ..shared_memory import element_bytes
from .micro_kernel import has_fixed_axes
from .own_stages import cpu_sketches, with_reader
from .padded_shared import axes_of, extents_of
from .padding import paddings

MOST_TERMS, MOST_OUTPUTS = 32, 8
LENGTHS = 2


def lengths(state: State, k: int, lanes: int) -> list[int]:
    """How many outputs of a line are computed together, the best first; none where stage `k` is no such window.

    Those that leave little of a line over, then the most.
    """
    op = state.stages[k].op
    if len(op.axis) < 2 or not op.reduce_axis or not has_fixed_axes(state, k):
        return []
    extents, last = extents_of(op), len(op.axis) - 1
    window = 1 < prod(extents[last + 1 :]) <= MOST_TERMS and extents[last] % lanes == 0
    if not window or not _moves_alone(state, k, last):
        return []
    line = extents[last - 1]
    counts = range(2, min(line, MOST_OUTPUTS) + 1)
    return sorted(counts, key=lambda n: (round(-(-line // n) * n / line, 1), -n))[:LENGTHS]


def _moves_alone(state: State, k: int, lane: int) -> bool:
    """Every read of stage `k` is along axis `lane` in steps of one element, and that of a line is among the windows."""
    extents = extents_of(state.stages[k].op)
    found = []
    for source, reads in enumerate(reads_by_producer(state.ops, inlined=frozenset())):
        shape = state.stages[source].op.shape
        for read in [read for read in reads if read.reader == k]:
            axes = [axes_of(form, extents) for form in read.forms]
            moved = [d for d, some in enumerate(axes) if lane in some]
            alone = len(moved) == 1 and axes[moved[0]] == {lane} and prod(shape[moved[0] + 1 :]) == 1
            found.append((alone, any({lane - 1} < some for some in axes)))
    return all(alone for alone, _ in found) and any(overlaps for _, overlaps in found)


class Window:
    """Compute a window with the outputs of one of its best lengths in registers."""

    paper: ClassVar[str] = ""
    departs: ClassVar[str] = "Not in TVM."

    def __init__(self, number: int) -> None:
        self.number = number

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        if state.stages[k].is_placeholder:
            return Condition.SKIP
        fits = len(lengths(state, k, _lanes(ctx, state, k))) > self.number
        return Condition.APPLY_AND_SKIP_REST if fits else Condition.SKIP

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        lanes = _lanes(ctx, state, k)
        length = lengths(state, k, lanes)[self.number]
        for p in paddings(state, k, ctx.hardware):
            state = apply(state, ComputeInline(p))
        state, target = with_reader(state, k)
        if target is None:
            return []
        *outer, line, channels = [it.uid for it in state.stages[target].iters]
        state, (parts, outputs) = split(state, target, line, [length])
        state, (vectors, vector) = split(state, target, channels, [lanes])
        state = reorder(state, target, [*outer, parts.uid, vectors.uid, outputs.uid, vector.uid])
        state = annotate(state, target, vector.uid, "vectorize")
        state = compute_at(state, k, target, vectors.uid)
        loops = state.stages[k].iters
        *others, row, lane = [it.uid for it in loops if it.kind == SPATIAL]
        terms = [it.uid for it in loops if it.kind == REDUCE]
        state = reorder(state, k, [*others, *terms, row, lane])
        for uid in (*terms, row):
            state = annotate(state, k, uid, "unroll")
        return [(annotate(state, k, lane, "vectorize"), k - 1)]


def _lanes(ctx: SketchContext, state: State, k: int) -> int:
    return max(1, ctx.hardware.vector_unit_bytes // element_bytes(state.stages[k].op.dtype))


def window_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch for each of the best lengths."""
    return cpu_sketches(ctx, [Window(n) for n in range(LENGTHS)], "unroll")
