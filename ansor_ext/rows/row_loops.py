"""Rows on a CPU: all stages of a row program in one pass of loops over rows, so that a row stays in the cache.

    for row                                               parallel, as the search decides
      partial      for outer, lane                        `lanes` sums (or maxima, ...) that run side by side
      reduction    for lane                               of the partial ones
      kept row     for outer, lane                        stays in the cache
      output       for outer, lane

A fold along a row is one chain of operations that wait for each other; its inner part becomes a space axis (`RF`),
whose lanes are vectors.  The lanes are a number of the sketch, one or several vectors of the machine.
"""

from __future__ import annotations

from ansor.core.values.schedule_primitives import annotate, compute_at, fuse, reorder, split
from ansor.sketch.reduction_rules import fuse_reductions
from ansor.sketch.rule import SketchContext
from ansor.sketch.shared_memory import element_bytes
from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import REDUCE, State

from .row_stages import RowProgram, row_program

VECTORS = (1, 2, 4)
MOST_WASTE = 1 / 4
LEAST_LANES = 4


def lane_counts(ctx: SketchContext, program: RowProgram) -> list[int]:
    """How many elements of a row are taken at a time: whole vectors, or parts of one for short rows.

    The last ones may run over the end of the row, where lanes are masked, if the row is long enough for that.
    """
    size = max(element_bytes(ctx.dag.init_state.ops[k].dtype) for k in (program.output, *program.reductions))
    vector = max(1, ctx.hardware.vector_unit_bytes // size)
    counts = [vector * n for n in VECTORS if _fits(program, vector * n)]
    parts = [n for n in (vector // 2, vector // 4) if n >= LEAST_LANES and _fits(program, n)]
    return counts or parts[:1]


def _fits(program: RowProgram, lanes: int) -> bool:
    return -program.length % lanes <= MOST_WASTE * program.length


class _Loops:
    """The steps that bring a row program together; stages have the numbers of the computation throughout."""

    def __init__(self, state: State, program: RowProgram, lanes: int) -> None:
        self.state, self.program, self.lanes = state, program, lanes
        self.factored: list[int] = []

    def number(self, k: int) -> int:
        """The present number of stage `k`, partial results having come before the reductions."""
        return k + sum(f <= k for f in self.factored)

    def build(self) -> State:
        for k in self.program.inlined:
            self.state = apply(self.state, ComputeInline(k))
        for k in sorted(self.program.reductions, reverse=True):
            self._factor(k)
        at = self._output()
        rest = {self.number(k) for k in (*self.program.reductions, *self.program.values, *self.program.kept)}
        rest |= {self.number(k) - 1 for k in self.program.reductions}
        output = self.number(self.program.output)
        for k in sorted(rest - {output}, reverse=True):
            self.state = compute_at(self.state, k, output, at)
        for k in self.program.kept:
            self._cut(self.number(k))
        return self.state

    def _factor(self, k: int) -> None:
        """Reduction `k` as partial ones, a lane each, and what folds these."""
        state, fused = fuse_reductions(self.state, k)
        state, (_, lane) = split(state, k, fused.uid, [self.lanes])
        space = len(state.stages[k].op.axis)
        state = apply(state, RFactor(k, state.stages[k].position(lane.uid), space))
        leaf = state.stages[k].leaf
        state = reorder(state, k, (*leaf[:space], *leaf[space + 1 :], leaf[space]))
        state = annotate(state, k, leaf[space], "vectorize")
        (lanes,) = [it for it in state.stages[k + 1].iters if it.kind == REDUCE]
        self.state = annotate(state, k + 1, lanes.uid, "unroll")
        self.factored.append(k)

    def _output(self) -> int:
        """The output cut into lanes, and the loop over rows in which everything else is computed."""
        k = self.number(self.program.output)
        lead = self.state.stages[k].leaf[: self.program.lead]
        if not lead:
            self.state, unit = fuse(self.state, k, [])
            lead = (unit.uid,)
        if self.program.output not in self.program.reductions:
            self._cut(k)
        return lead[-1]

    def _cut(self, k: int) -> None:
        """The loops of stage `k` along the row as vectors."""
        stage = self.state.stages[k]
        along = range(self.program.lead, len(stage.op.axis))
        if stage.op.shape[self.program.lead :] != self.program.row:
            return
        uid = along[0]
        if len(along) > 1:
            self.state, fused = fuse(self.state, k, along)
            uid = fused.uid
        self.state, (_, lane) = split(self.state, k, uid, [self.lanes])
        self.state = annotate(self.state, k, lane.uid, "vectorize")


def row_loop_sketches(ctx: SketchContext) -> list[State]:
    """On a CPU, one sketch of a row program for each count of lanes."""
    state = ctx.dag.init_state
    program = None if ctx.target.is_gpu else row_program(state)
    return [] if program is None else [_Loops(state, program, n).build() for n in lane_counts(ctx, program)]
