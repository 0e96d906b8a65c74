"""Rows that are longer than the registers of a block, or too few to fill the machine.

A row program (`row_stages.py`) whose rows are not kept reads them again for every reduction, and for the output.

    streamed    one kernel, a block a row                     split    a kernel for each reduction, and one more

    for row                        blockIdx.x                 for row, part                   blockIdx.x
      reduction  for part                                       reduction.rf   for item, thread, lane
        cached   for item, thread, lane                       for row, part                   blockIdx.x
        reduced  for item, thread, lane                         reduction      for part       over threads
      output     for part                                       cached         for item, thread, lane
        cached   for item, thread, lane                         output         for item, thread, lane
                 for item, thread, lane

The kernel that reads what a reduction gives sums up its partial results in each of its blocks; where several kernels
read it, a small one does so first.  An extreme and a sum that refers to it become one reduction of pairs (`JRD`,
ansor_ext/online/online.py): one pass, and two kernels for softmax.

Everything elementwise is written into its readers.  A part of a row that one stage reads by ways of its own goes
through registers, all loads first; where rows have one axis, that is, or a part would be no region.  Other reads of
reductions are those of single elements, side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from ansor.core.values.schedule_primitives import annotate, compute_at, fuse, reorder, split
from ansor.sketch.reduction_rules import fuse_reductions
from ansor.sketch.rule import SketchContext
from te_lite.schedule.place_steps import ComputeInline
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead, RFactor
from te_lite.schedule.state import INLINED, REDUCE, SPATIAL, State
from te_lite.schedule.storage_steps import SetScope

from ..analysis.nominal import NOMINAL_SMS
from ..online.online import joined_ops
from ..online.steps import JoinReductions
from .row_stages import RowProgram, row_program
from .rows import BLOCK, THREAD, shapes, widest_lanes

FEW_ROWS, LONG_ROW = 2 * NOMINAL_SMS, 16384
STREAM_THREADS, SPLIT_THREADS = (512, 1024), 256
STREAM_ELEMENTS, SPLIT_ELEMENTS = (8, 16, 32), (4, 8, 16, 32)
MOST_PARTS, LEAST_BLOCKS, MOST_BLOCKS = 1024, NOMINAL_SMS, 32 * NOMINAL_SMS


@dataclass(frozen=True, slots=True)
class Cut:
    """A part of a row: so many elements for each of `threads` threads, in vectors of `lanes`; `split` over blocks."""

    threads: int
    elements: int
    lanes: int
    split: bool

    @property
    def length(self) -> int:
        """Elements of a part."""
        return self.threads * self.elements


def cuts(ctx: SketchContext, program: RowProgram, rows: int) -> list[Cut]:
    """The ways to cut rows that are not kept: none for short rows, nor for rows that fit when there are enough."""
    few, fits = rows < FEW_ROWS, bool(shapes(ctx, program))
    if program.length < LONG_ROW or (fits and not few):
        return []
    lanes = widest_lanes(ctx, program)
    counts = dict.fromkeys([-(-program.length // (SPLIT_THREADS * e)) for e in SPLIT_ELEMENTS])
    parts = [n for n in counts if 1 < n <= MOST_PARTS]
    filling = [n for n in parts if LEAST_BLOCKS <= n * rows <= MOST_BLOCKS]
    found = [Cut(SPLIT_THREADS, _elements(program, n * SPLIT_THREADS, lanes), lanes, True) for n in filling or parts]
    if not fits and 2 * rows >= NOMINAL_SMS:
        found += [Cut(t, e, lanes, False) for t in STREAM_THREADS for e in STREAM_ELEMENTS if e >= lanes]
    return found


def _elements(program: RowProgram, threads: int, lanes: int) -> int:
    """Elements for each of so many threads of a row, in whole vectors."""
    return -(-program.length // (threads * lanes)) * lanes


class _LongRows:
    """The steps for a row program.  Stages are named by the keys of their operations, which the steps keep."""

    def __init__(self, state: State, program: RowProgram, cut: Cut) -> None:
        self.state, self.program, self.cut = state, program, cut
        self.keys = [op.key for op in state.ops]
        self.output = self.keys[program.output]
        self.values = [self.keys[k] for k in program.values]
        self.folds = [self.keys[k] for k in program.reductions]

    def number(self, key: object) -> int:
        return [op.key for op in self.state.ops].index(key)

    def build(self) -> State:
        for k in (*self.program.inlined, *self.program.kept):
            self.state = apply(self.state, ComputeInline(k))
        self._join()
        early = [key for key in self.folds if self._feeds_fold(key)]
        self._inline_values()
        partial = [self._factor(key) for key in reversed(self.folds)] if self.cut.split else []
        self._bind_output()
        for key in partial:
            self._bind_parts(key)
        for key in reversed([*self.folds, *self.values]):
            if key in early and self.cut.split:
                self._bind_alone(key)
            elif key != self.output:
                self._attach(key)
        return self.state

    # ------------------------------------------------------------------------------------------ which stages

    def _join(self) -> None:
        """Two reductions, of which the second refers to the first, as one where a law allows it."""
        if len(self.folds) != 2 or self.output in self.folds:
            return
        first, second = [self.number(key) for key in self.folds]
        stages = self.state.stages
        hidden = tuple([s.compute for s in stages if s.where == INLINED])
        if joined_ops(stages[first].compute, stages[second].compute, hidden) is not None:
            self.state = apply(self.state, JoinReductions(first, second))
            self.values += self.folds
            self.folds = [self.state.stages[first].op.key]

    def _feeds_fold(self, key: object) -> bool:
        """Whether a reduction reads a stage, directly or through elementwise ones."""
        readers = self.state.access.read_by[self.number(key)]
        return any(self.state.ops[r].reduce_axis or self._feeds_fold(self.state.ops[r].key) for r in readers)

    def _inline_values(self) -> None:
        """Numbers of a row that a kernel of partial results reads are computed there."""
        for key in list(self.values):
            if self.cut.split and self._feeds_fold(key):
                self.state = apply(self.state, ComputeInline(self.number(key)))
                self.values.remove(key)
        self.values.sort(key=self.number)

    # ------------------------------------------------------------------------------------------------ loops

    def _factor(self, key: object) -> object:
        """A reduction as partial results, a part of the row each; the key of these."""
        k = self.number(key)
        state, fused = fuse_reductions(self.state, k)
        state, (part, _) = split(state, k, fused.uid, [self.cut.length])
        self.state = apply(state, RFactor(k, state.stages[k].position(part.uid), len(state.stages[k].op.axis)))
        return self.state.stages[k].op.key

    def _blocks(self, k: int, uids: list[int]) -> int:
        """The loops `uids` of stage `k` as one loop over blocks."""
        uid = uids[0] if len(uids) == 1 else -1
        if len(uids) != 1:
            self.state, block = fuse(self.state, k, uids)
            uid = block.uid
        self.state = annotate(self.state, k, uid, BLOCK)
        return uid

    def _cut_row(self, k: int, uids: list[int], lanes: int) -> int:
        """The loops `uids` along the row as parts, items, threads and lanes; the loop over parts."""
        uid = uids[0]
        if len(uids) > 1:
            self.state, fused = fuse(self.state, k, uids)
            uid = fused.uid
        items = self.cut.elements // lanes
        lengths = [items, self.cut.threads, lanes] if lanes > 1 else [items, self.cut.threads]
        state, (part, item, thread, *lane) = split(self.state, k, uid, lengths)
        state = annotate(annotate(state, k, item.uid, "unroll"), k, thread.uid, THREAD)
        for it in lane:
            state = annotate(state, k, it.uid, "unroll" if it.kind == REDUCE else "vectorize")
        self.state = state
        return part.uid

    def _bind_output(self) -> None:
        """The output's loops over blocks; `self.at` is the loop in which what it needs of a row is computed."""
        k, lead = self.number(self.output), self.program.lead
        stage = self.state.stages[k]
        space = [it.uid for it in stage.iters if it.kind == SPATIAL]
        whole = stage.op.shape[lead:] == self.program.row and not stage.op.reduce_axis
        self.at = self._blocks(k, space) if not whole else -1
        if self.output in self.folds:
            self._fold_row(self.output)
        elif whole:
            part = self._cut_row(k, space[lead:], self.cut.lanes)
            outer = [*space[:lead], part] if self.cut.split else space[:lead]
            self.at = self._blocks(k, outer)
            self._cache(self.output, self.at if self.cut.split else part)
        else:
            self._one_thread(k)

    def _one_thread(self, k: int) -> None:
        """A loop of one iteration, bound to threads: one of them stores."""
        self.state, unit = fuse(self.state, k, [])
        order = [*(it.uid for it in self.state.stages[k].iters if it is not unit), unit.uid]
        self.state = annotate(reorder(self.state, k, order), k, unit.uid, THREAD)

    def _bind_parts(self, key: object) -> None:
        """The kernel of the partial results of a reduction: a part of a row is a block."""
        k = self.number(key)
        space = [it.uid for it in self.state.stages[k].iters if it.kind == SPATIAL]
        block = self._blocks(k, space)
        reduce = [it.uid for it in self.state.stages[k].iters if it.kind == REDUCE]
        part = self._cut_row(k, reduce, self._lanes(key))
        self.state = annotate(self.state, k, part, "unroll")
        self._cache(key, block)

    def _bind_alone(self, key: object) -> None:
        """The kernel that sums up partial results which several kernels read: a row is a block."""
        k = self.number(key)
        self._blocks(k, [it.uid for it in self.state.stages[k].iters if it.kind == SPATIAL])
        self._fold_row(key)

    def _attach(self, key: object) -> None:
        """A number of the row: computed by all threads of the output's block, which all get it."""
        k = self.number(key)
        state = apply(self.state, SetScope(k, "local"))
        self.state = compute_at(state, k, self.number(self.output), self.at)
        if self.state.stages[k].op.reduce_axis:
            self._fold_row(key)

    def _fold_row(self, key: object) -> None:
        """A reduction across threads: of the whole row, or of the results of its parts."""
        k = self.number(key)
        reduce = [it.uid for it in self.state.stages[k].iters if it.kind == REDUCE]
        if not self.cut.split:
            self._cache(key, self._cut_row(k, reduce, self._lanes(key)))
            return
        state, (iteration, thread) = split(self.state, k, reduce[0], [self.cut.threads])
        self.state = annotate(annotate(state, k, iteration.uid, "unroll"), k, thread.uid, THREAD)

    # ----------------------------------------------------------------------------------------------- copies

    def _ways(self, key: object) -> dict[int, list[int]]:
        """The inputs along the row that only stage `key` reads by some stages: these, itself or inlined ones."""
        if len(self.program.row) > 1:
            return {}
        target, inputs = self.number(key), [self.number(self.keys[c]) for c in self.program.cached]
        found = {k: [r for r in self.state.access.read_by[k] if self._readers(r) == {target}] for k in inputs}
        return {k: readers for k, readers in found.items() if readers}

    def _readers(self, k: int) -> set[int]:
        """The stages, not inlined, that read by stage `k`."""
        if self.state.stages[k].where != INLINED:
            return {k}
        return set().union(*[self._readers(r) for r in self.state.access.read_by[k]])

    def _lanes(self, key: object) -> int:
        """Elements that a reduction takes at a time: several if all it reads along the row comes in vectors."""
        target = self.number(key)
        reads = [k for k in range(len(self.state.ops)) if self._reads_row(k, target)]
        return self.cut.lanes if reads and set(reads) == set(self._ways(key)) else 1

    def _reads_row(self, k: int, target: int) -> bool:
        stage = self.state.stages[k]
        long = prod(stage.op.shape) >= self.program.length
        return stage.is_placeholder and long and any(target in self._readers(r) for r in self.state.access.read_by[k])

    def _cache(self, key: object, at: int) -> None:
        """Inputs of stage `key` to registers, all loads of a part before their use, in the loop `at` of it."""
        ways = self._ways(key)
        for k in sorted(ways, reverse=True):
            lanes = self._lanes(key) if self.state.ops[self.number(key)].reduce_axis else self.cut.lanes
            self.state = apply(self.state, CacheRead(k, "local", tuple(sorted(ways[k]))))
            self.state = compute_at(self.state, k + 1, self.number(key), at)
            self._cut_copy(k + 1, lanes)

    def _cut_copy(self, k: int, lanes: int) -> None:
        """The copy of a part, cut as its reader is; it has no loop over parts."""
        axes = list(range(self.program.lead, len(self.state.stages[k].op.axis)))
        uid = axes[0]
        if len(axes) > 1:
            self.state, fused = fuse(self.state, k, axes)
            uid = fused.uid
        lengths = [self.cut.threads, lanes] if lanes > 1 else [self.cut.threads]
        state, (item, thread, *lane) = split(self.state, k, uid, lengths)
        state = annotate(annotate(state, k, item.uid, "unroll"), k, thread.uid, THREAD)
        for it in lane:
            state = annotate(state, k, it.uid, "vectorize")
        self.state = state


def in_parts(state: State, program: RowProgram, cut: Cut) -> State:
    """The stages of a row program, of an untouched state, with rows cut in parts that nobody keeps."""
    return _LongRows(state, program, cut).build()


def long_row_sketches(ctx: SketchContext) -> list[State]:
    """On a GPU, one sketch of a row program for each cut of rows that are not kept."""
    state = ctx.dag.init_state
    program = row_program(state) if ctx.target.is_gpu else None
    if program is None:
        return []
    fold = state.ops[program.reductions[0]]
    return [in_parts(state, program, cut) for cut in cuts(ctx, program, prod(fold.shape))]
