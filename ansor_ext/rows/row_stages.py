"""Which computations are row programs: everything in them belongs to rows that nothing else mixes.

The axes of a tensor are the `lead` that number the rows, and those along a row.  A stage of a row program is one of

    full        elementwise, shape lead + row: an element for each one of the row
    value       elementwise, shape lead (or lead and ones): a number for each row
    reduction   a value that is folded along the whole row

and reads the others at the same row and, if both are full, at the same place in it (`is_aligned`).  Inputs may be read
in any way.  What is cheap, or read once, is written into its reader; what is left of the stages is computed once.

A row is kept in registers where it is computed (`kept`), and where it is read from memory by several stages, or by a
reduction, which reads element by element (`cached`).  What keeps no row (a pooling, whose windows overlap) is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from operator import is_

from ansor.sketch.predicates import is_read_argument, needs_tiling
from te_lite.bounds.reads import Affine, Form, Read, expanded_bodies, reads_by_producer
from te_lite.computation.tensor import ComputeOp, Operation, PlaceholderOp
from te_lite.expr.expr import Binary, Call, Expr, Load
from te_lite.expr.visit import walk
from te_lite.schedule.state import State

CHEAP_OPERATIONS = 2


@dataclass(frozen=True)
class RowProgram:
    """Stage numbers of a computation whose rows have the shape `row`, numbered by `lead` axes, the last `last` long.

    `kept` are computed rows, `values` elementwise numbers of a row, `inlined` is written into its readers; `cached` are
    inputs.  The output is not in any of these; a reduction may be the output.  `together` rows are needed at a time.
    """

    output: int
    lead: int
    row: tuple[int, ...]
    last: int
    reductions: tuple[int, ...]
    values: tuple[int, ...]
    kept: tuple[int, ...]
    inlined: tuple[int, ...]
    cached: tuple[int, ...]
    together: int

    @property
    def length(self) -> int:
        """Elements of a row."""
        return prod(self.row)


def row_program(state: State) -> RowProgram | None:
    """The row program that an untouched state is; None when it is none."""
    computed = [k for k, op in enumerate(state.ops) if isinstance(op, ComputeOp)]
    outputs = [k for k in computed if state.access.is_output(k)]
    folds = [k for k in computed if state.ops[k].reduce_axis]
    extra = any(op.num_outputs > 1 and not op.reduce_axis for op in state.ops)
    extra = extra or any(is_read_argument(state, k) for k in computed)
    if len(outputs) != 1 or not folds or extra or any(needs_tiling(state, k) for k in folds):
        return None
    row = _reduced(state.ops[folds[0]])
    if row is None or prod(row) == 1 or any(_reduced(state.ops[k]) != row for k in folds):
        return None
    found = [_Rows(state, tuple(computed), outputs[0], lead, row).program() for lead in _leads(state, computed, row)]
    return max([p for p in found if p is not None and p.together], key=lambda p: p.together, default=None)


def _reduced(op: Operation) -> tuple[int, ...] | None:
    """The extents of the reduction axes; None when one depends on others."""
    extents = [v.extent for v in op.reduce_axis]
    return None if any(isinstance(e, Expr) for e in extents) else tuple([int(e) for e in extents])


def _leads(state: State, computed: Sequence[int], row: tuple[int, ...]) -> list[tuple[int, ...]]:
    """What the leading extents may be, by the shapes of the output and the reductions."""
    rank = len(row)
    shapes = [state.ops[k].shape for k in computed if state.access.is_output(k) or state.ops[k].reduce_axis]
    ends = [s[: len(s) - rank] for s in shapes if s[len(s) - rank :] in (row, (1,) * rank)]
    return list(dict.fromkeys([*ends, *shapes]))


class _Rows:
    """The stages of a computation as those of a row program of rows `row`, numbered by `lead`."""

    def __init__(self, state: State, computed: tuple[int, ...], output: int, lead: Sequence[int], row: Sequence[int]):
        self.state, self.ops, self.computed, self.output = state, state.ops, computed, output
        self.lead, self.row = tuple(lead), tuple(row)
        self.full = (*self.lead, *self.row)
        self.one = (self.lead, (*self.lead, *[1] * len(self.row)))

    def program(self) -> RowProgram | None:
        inlined = self._inlined()
        rest = [k for k in self.computed if k not in inlined]
        reads = reads_by_producer(self.ops, frozenset(inlined))
        if not all(self._fits(k) and all(self.is_aligned(k, r) for r in reads[k]) for k in rest):
            return None
        folds = [k for k in rest if self.ops[k].reduce_axis]
        inner = [k for k in rest if k != self.output and k not in folds]
        values = [k for k in inner if self.ops[k].shape != self.full]
        kept = [k for k in inner if self.ops[k].shape == self.full]
        cached = [k for k, op in enumerate(self.ops) if isinstance(op, PlaceholderOp) and self._is_cached(k, reads[k])]
        together = _together([{r.reader for r in reads[k]} | ({k} if k in kept else set()) for k in (*kept, *cached)])
        return RowProgram(
            self.output, len(self.lead), self.row, (1, *self.lead)[-1],
            tuple(folds), tuple(values), tuple(kept), tuple(sorted(inlined)), tuple(cached), together,
        )  # fmt: skip

    def _fits(self, k: int) -> bool:
        """A stage that is not inlined is full or has one value a row."""
        op = self.ops[k]
        return op.shape in self.one or (not op.reduce_axis and op.shape == self.full)

    # ------------------------------------------------------------------------------------------- alignment

    def is_aligned(self, k: int, read: Read) -> bool:
        """Whether a stage is read at the row of the reader, and at its place in the row."""
        reader, shape = self.ops[read.reader], self.ops[k].shape
        space = len(self.lead)
        if shape == self.full and reader.shape != self.full and not reader.reduce_axis:
            return False
        along = len(reader.axis) if reader.reduce_axis else space
        axes = [d if d < space else along + d - space for d in range(len(shape))]
        return all(size == 1 or _is_axis(form, axis) for form, axis, size in zip(read.forms, axes, shape, strict=True))

    def _is_cached(self, k: int, reads: Sequence[Read]) -> bool:
        """An input of rows that several stages or a reduction read, all at their place."""
        readers = {read.reader for read in reads}
        often = len(readers) > 1 or any(self.ops[r].reduce_axis for r in readers)
        return often and self.ops[k].shape == self.full and all(self.is_aligned(k, read) for read in reads)

    # ------------------------------------------------------------------------------------------- inlining

    def _inlined(self) -> set[int]:
        """The stages that are written into their readers; each is judged with what was written into it."""
        found: set[int] = set()
        for k in self.computed:
            op = self.ops[k]
            if k != self.output and not op.reduce_axis and (not self._fits(k) or self._is_cheap(k, found)):
                found.add(k)
        return found

    def _is_cheap(self, k: int, inlined: set[int]) -> bool:
        """Whether stage k is computed at little cost where it is read."""
        op, readers = self.ops[k], self.state.access.read_by[k]
        folded = any(self.ops[r].reduce_axis for r in readers)
        if op.shape != self.full:
            return len(readers) == 1 and not folded and all(self.ops[r].shape in self.one for r in readers)
        if len(readers) == 1 and not folded:
            return True
        (body,) = expanded_bodies(self.ops, frozenset(inlined))[k]
        nodes = list(walk(body))
        rows = {n.tensor for n in nodes if isinstance(n, Load) and n.tensor.shape not in self.one}
        reads = [n.indices for n in nodes if isinstance(n, Load) and n.tensor in rows]
        in_place = all(len(i) == len(op.axis) and all(map(is_, i, op.axis)) for i in reads)
        calls = any(isinstance(n, Call) or (isinstance(n, Binary) and n.op == "/") for n in nodes)
        work = sum(isinstance(n, Binary) and n.dtype == op.dtype for n in nodes)
        little = len(readers) == 1 or (work <= CHEAP_OPERATIONS and not calls)
        return little and in_place and len(rows) <= 1


def _together(uses: list[set[int]]) -> int:
    """How many rows are needed at a time, by the stages that use each; the last one may replace it by another."""
    spans = [(min(stages), max(max(stages), min(stages) + 1)) for stages in uses]
    return max([sum(a <= first < z for a, z in spans) for first, _ in spans], default=0)


def _is_axis(form: Form, axis: int) -> bool:
    return isinstance(form, Affine) and form.terms == ((axis, 1),) and form.const == 0
