"""Whether a reduction reads its elements several times, as products do, or once, or in windows: what it is told from.

A reduction of many more points than elements reads them again, unless each point is one of few neighbours of a tensor
(a window), which a thread sums up alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ansor.core.tasks.task import SearchTask
from ansor.sketch.plain import inlined
from te_lite.bounds.index_span import form_axes, usual_steps
from te_lite.bounds.reads import Read, reads_by
from te_lite.computation.tensor import Operation
from te_lite.schedule.state import INLINED, ROOT, State

WARP = 32
AGAIN = 2
"""Points for each element that is read, up to which a reduction reads about once."""
WINDOW = 128
"""Terms that a thread sums up alone."""
UNROLLED = 32
"""Terms of a thread that are written out."""


@dataclass(frozen=True)
class Steps:
    """How far apart in memory neighbours along each axis of a stage (`by_axis`) are in a tensor that it reads."""

    size: int
    by_axis: tuple[float, ...]


@dataclass(frozen=True)
class Moved:
    """How far windows are from one to the next along an axis, how long they are, and along which axis of theirs."""

    step: int
    length: int
    term: int


def reads_again(task: SearchTask) -> bool:
    """Whether a task has a reduction, as products and convolutions are, that reads its elements several times."""
    state, computed = left_of(task)
    sums = [k for k in computed if state.stages[k].op.reduce_axis and is_fixed(state.stages[k].op)]
    return any(_reads_again(state, k) for k in sums)


def left_of(task: SearchTask) -> tuple[State, list[int]]:
    """The task with all inlined that can be, and the stages that are left."""
    state = inlined(task.compute_dag.init_state)
    return state, [k for k, s in enumerate(state.stages) if not s.is_placeholder and s.where == ROOT]


def is_fixed(op: Operation) -> bool:
    """Whether its extents are numbers: that of a reduction may depend on the point."""
    return all(isinstance(v.extent, int) for v in (*op.axis, *op.reduce_axis))


def _reads_again(state: State, k: int) -> bool:
    again = points_of(state.stages[k].op) > AGAIN * max(s.size for s in steps_of(state, k) or [Steps(0, ())])
    return again and not is_window(state, k)


def is_window(state: State, k: int) -> bool:
    """Whether a thread is to sum up each point alone: few terms of one tensor, in a window or in a row, or weighed."""
    op = state.stages[k].op
    reads, terms = steps_of(state, k), terms_of(op)
    if reads and points_of(op) > AGAIN * reads[0].size:
        return terms <= WINDOW if len(reads) == 1 else weighed_read(state, k) is not None
    return terms < WARP


def points_of(op: Operation) -> int:
    return prod(extents_of(op))


def steps_of(state: State, k: int) -> list[Steps]:
    """What stage `k` reads, the largest first."""
    hidden = frozenset(j for j, s in enumerate(state.stages) if s.where == INLINED)
    count, found = len(extents_of(state.stages[k].op)), []
    for producer, read in reads_by(k, state.ops, hidden):
        shape = state.ops[producer].shape
        by_axis = [0.0] * count
        for d, form in enumerate(read.forms):
            for axis, step in usual_steps(form).items():
                by_axis[axis] += step * prod(shape[d + 1 :])
        found.append(Steps(prod(shape), tuple(by_axis)))
    return sorted(found, key=lambda steps: -steps.size)


def weighed_read(state: State, k: int) -> int | None:
    """Which of the two reads of stage `k` is that of windows of a channel of their own, and the other one of weights.

    All terms are those of a window, so few that they are written out, and all points have windows of their own; the
    weights are the same along each axis that windows move along, the last one among them.
    """
    op, reads = state.stages[k].op, reads_by(k, state.ops)
    if len(reads) != 2 or terms_of(op) > UNROLLED:
        return None
    extents, space = extents_of(op), len(op.axis)
    for n, ((_, read), (_, weights)) in enumerate((reads, reads[::-1])):
        moved, along = moved_in(state, k, [read]), _axes(weights)
        terms = {a for a in range(space, len(extents)) if extents[a] > 1}
        points = {a for a in range(space) if extents[a] > 1}
        whole = terms <= {m.term for m in moved.values()} and points <= _axes(read)
        if whole and space - 1 in moved and not along & set(moved):
            return n
    return None


def _axes(read: Read) -> set[int]:
    """The axes that move a read."""
    return {axis for form in read.forms for axis in form_axes(form)}


def moved_in(state: State, k: int, reads: Sequence[Read]) -> dict[int, Moved]:
    """The axes along which the windows of some reads move."""
    op, found = state.stages[k].op, dict[int, Moved]()
    for read in reads:
        for steps in map(usual_steps, read.forms):
            along = [a for a in steps if a >= len(op.axis)]
            moved = [a for a in steps if a < len(op.axis)]
            if len(along) > 1 or (along and (len(moved) != 1 or steps[along[0]] != 1 or steps[moved[0]] < 1)):
                return {}
            if along:
                found[moved[0]] = Moved(int(steps[moved[0]]), extents_of(op)[along[0]], along[0])
    return dict(sorted(found.items()))


def extents_of(op: Operation) -> tuple[int, ...]:
    return tuple([int(v.extent) for v in (*op.axis, *op.reduce_axis)])


def terms_of(op: Operation) -> int:
    return prod([int(v.extent) for v in op.reduce_axis])
