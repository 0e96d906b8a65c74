"""Nests of GPUs for large tensors that are read about once: copies, copies that turn axes, and sums of long rows.

Such a program takes as long as its bytes do, if many loads are under way at any time, the threads of a warp touch
neighbours, and blocks are worth starting.  So nothing is to be searched:

- a thread computes some neighbours of the result side by side, and reads and writes them as vectors;
- where another axis than the last runs through neighbours of what is read, blocks are tiles of both axes, so that
  whole sectors are read and written;
- the threads of a block share the terms of a row, or have neighbouring columns and share the terms of each;
- windows have nests of their own (`window_nests.py`);
- few rows are cut into parts, whose sums are summed up by a second kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, prod

from ansor.core.tasks.task import SearchTask
from ansor.core.values.schedule_primitives import annotate, fuse, reorder, split
from ansor.sketch.plain import LARGE, LONG_ROW, THREADS, in_threads, inlined, side_by_side, widest_access
from ansor.sketch.predicates import loop_length
from ansor.sketch.reduction_rules import fuse_reductions
from te_lite.computation.tensor import Operation
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import REDUCE, ROOT, SPATIAL, State

from ..analysis.own_stages import is_untouched
from ..analysis.read_again import (
    WARP,
    Steps,
    extents_of,
    is_fixed,
    is_window,
    left_of,
    points_of,
    reads_again,
    steps_of,
    terms_of,
)
from .point_threads import RESIDENT, SERIAL, computed_in, one_loop, point_threads, with_reader
from .window_nests import side_by_side_windows, windows

LOADS = 8
"""Loads that a thread of a reduction has under way."""
APART = 8
"""Elements between neighbours from which each load brings a sector for itself."""
TURN_COLUMNS, TURN_ROWS, TURN_SERIAL = 8, 16, 4
"""Threads of a tile along the last axis and along the other one, and elements of a thread along the other one."""
BLOCKS, MOST_PARTS = 2048, 1 << 15
"""Blocks of a reduction that keep a large GPU busy, and how many parts it has at most, if they are long.

More parts than can run at once even out what the parts of memory serve: sums of 2^30 terms reach 4.47 TB/s on an H200
with 2^15 parts, 4.10 with 2^11.
"""
WIDE, WIDE_TERMS = (128, 64, 32), 8
"""Columns of a block where there are many, best first, and how many threads share the terms of one of the first."""
MOST_THREADS = 16
"""Threads that share the terms of a column."""
SHORT_PART, LONG_PART = 1 << 11, 1 << 15
"""Terms of a part that are worth a block, and those that are where blocks enough are there."""


def streaming(task: SearchTask) -> Callable[[], State] | None:
    """What makes the nests of a task; None where it is not worth them."""
    return (lambda: streaming_state(task)) if streams(task) else None


def streaming_state(task: SearchTask) -> State:
    """Every stage computed at root, or inlined, in a nest that depends on what it reads."""
    state, k = inlined(task.compute_dag.init_state), 0
    while k < len(state.stages):
        stage = state.stages[k]
        if not stage.is_placeholder and stage.where == ROOT:
            before = len(state.stages)
            state = _nested(task, state, k)
            k += len(state.stages) - before
        k += 1
    return state


def _nested(task: SearchTask, state: State, k: int) -> State:
    """The state with a nest for a stage at root; nothing where it has one, as what a reduction is computed in."""
    if not is_untouched(state.stages[k]):
        return state
    if not state.stages[k].op.reduce_axis:
        return _copy(task, state, k)
    return windows(state, k) if is_window(state, k) else _reduction(state, k)


def streams(task: SearchTask) -> bool:
    """Whether a task is worth such nests: it is large, its reductions read about once, and no block can keep rows."""
    state, computed = left_of(task)
    points = [points_of(state.stages[k].op) for k in computed if is_fixed(state.stages[k].op)]
    scans = any(state.stages[k].op.scans for k in computed)
    if scans or len(points) < len(computed) or max(points, default=0) < LARGE or reads_again(task):
        return False
    terms = [terms_of(state.stages[k].op) for k in computed if state.stages[k].op.reduce_axis]
    return len(terms) < 2 or max(terms) >= LONG_ROW


# ------------------------------------------------------------------------------------------------------- copies


def _copy(task: SearchTask, state: State, k: int) -> State:
    """A stage without reductions: tiles where it turns axes, else vectors in the order of the result."""
    extents = extents_of(state.stages[k].op)
    turned = _turned(extents, steps_of(state, k))
    if turned is None or prod(extents) < LARGE:
        return _in_order(task, state, k)
    return _tiles(task, state, k, turned)


def _in_order(task: SearchTask, state: State, k: int) -> State:
    """Threads with vectors; with some elements apart where no access may touch several, or blocks would be too many.

    Where all that is read lies as the result does, one vector may be cut by its end.
    """
    op = state.stages[k].op
    lanes = widest_access(task, op.dtype) if _lies_alike(state, k) else side_by_side(task, state, k)
    if lanes > 1 or points_of(state.stages[k].op) < LARGE:
        return in_threads(state, k, lanes)
    state, fused = one_loop(state, k, [it.uid for it in state.stages[k].iters])
    state, (block, several, thread) = split(state, k, fused.uid, (SERIAL, THREADS))
    state = annotate(state, k, several.uid, "unroll")
    state = annotate(state, k, block.uid, "blockIdx.x")
    return annotate(state, k, thread.uid, "threadIdx.x")


def _lies_alike(state: State, k: int) -> bool:
    """Whether all that stage `k` reads has its elements in the order of its points."""
    extents = extents_of(state.stages[k].op)
    strides = tuple([prod(extents[a + 1 :]) for a in range(len(extents))])
    return all(r.size == prod(extents) and r.by_axis == strides for r in steps_of(state, k))


def _turned(extents: Sequence[int], reads: Sequence[Steps]) -> int | None:
    """The axis that runs through neighbours of a tensor of which the last axis does not, the largest such one."""
    long = [a for a, extent in enumerate(extents) if extent > 1]
    for read in reads:
        beside = [a for a in long[:-1] if read.by_axis[a] == 1 and extents[a] >= TURN_SERIAL]
        if beside and abs(read.by_axis[long[-1]]) >= APART:
            return beside[-1]
    return None


def _run(extents: Sequence[int], last: int, enough: int, without: int) -> list[int]:
    """Neighbouring axes that end with `last`, until they have points enough."""
    first = last
    while first > 0 and first - 1 != without and prod(extents[first : last + 1]) < enough:
        first -= 1
    return list(range(first, last + 1))


def _tiles(task: SearchTask, state: State, k: int, turned: int) -> State:
    """Blocks that are tiles of the last axis and `turned`, each with neighbours of its own until they are long."""
    extents, iters = extents_of(state.stages[k].op), state.stages[k].iters
    columns = _run(extents, len(extents) - 1, TURN_COLUMNS * TURN_SERIAL, turned)
    rows = _run(extents, turned, TURN_ROWS * TURN_SERIAL, -1)
    others = [iters[a].uid for a in range(len(extents)) if a not in (*rows, *columns)]
    state, column = one_loop(state, k, [iters[a].uid for a in columns])
    state, row = one_loop(state, k, [iters[a].uid for a in rows])
    lanes = gcd(side_by_side(task, state, k), prod([extents[a] for a in columns]))
    wide = TURN_COLUMNS if lanes > 1 else WARP
    state, (right, across, lane) = split(state, k, column.uid, (wide, lanes))
    state, (down, along, several) = split(state, k, row.uid, (THREADS // wide, TURN_SERIAL))
    order = [*others, down.uid, right.uid, along.uid, across.uid, several.uid, lane.uid]
    state = reorder(state, k, order)
    state, block = fuse(state, k, order[:-4])
    state, thread = fuse(state, k, [along.uid, across.uid])
    state = annotate(state, k, block.uid, "blockIdx.x")
    state = annotate(state, k, thread.uid, "threadIdx.x")
    state = annotate(state, k, several.uid, "unroll")
    return annotate(state, k, lane.uid, "vectorize") if lanes > 1 else state


# --------------------------------------------------------------------------------------------------- reductions


def _reduction(state: State, k: int) -> State:
    """A reduction: in parts where it has few and long rows or columns."""
    beside = side_by_side_windows(state, k)
    if beside is not None:
        return beside
    op = state.stages[k].op
    space, terms = prod(op.shape), terms_of(op)
    sideways = _is_column(op, steps_of(state, k))
    busy = space // WARP * _column_block(space, terms)[1] // (THREADS // WARP) if sideways else space
    parts = max(
        min(-(-most // max(1, busy)), terms // part) for most, part in ((BLOCKS, SHORT_PART), (MOST_PARTS, LONG_PART))
    )
    if parts < 2:
        return _sums(state, k, sideways)
    state, fused = fuse_reductions(state, k)
    state, (part, _) = split(state, k, fused.uid, (-(-terms // parts),))
    place = 0 if sideways else len(op.axis)
    state = apply(state, RFactor(k, state.stages[k].position(part.uid), place))
    return _sums(_sums(state, k + 1, sideways), k, sideways)


def _is_column(op: Operation, reads: Sequence[Steps]) -> bool:
    """Whether neighbours in the largest tensor are terms of different points."""
    extents = extents_of(op)
    steps = [(abs(step), a) for a, step in enumerate(reads[0].by_axis) if step and extents[a] > 1] if reads else []
    return bool(steps) and min(steps)[1] < len(op.axis)


def _column_block(space: int, terms: int) -> tuple[int, int]:
    """How many columns a block has, and how many threads share the terms of each: both powers of two.

    Where columns are many, a block reads wide pieces of several rows: odd ones begin anywhere in sectors, so
    that neighbouring warps fetch some of them twice.  The pieces divide the columns, since a condition around each term
    keeps loads behind the ones before.
    """
    threads = 1
    if space >= RESIDENT // WIDE_TERMS:
        while threads < MOST_THREADS and terms >= 2 * threads * LOADS:
            threads *= 2
        wide = next((n for n in WIDE if space % n == 0), 0)
        return (wide, min(threads, THREADS * WIDE_TERMS // wide)) if wide and threads > 1 else (THREADS, 1)
    while threads < MOST_THREADS and threads * space < RESIDENT and terms >= 2 * threads * LOADS:
        threads *= 2
    return (WARP if threads > 1 else THREADS), threads


def _sums(state: State, k: int, sideways: bool) -> State:
    """The nest of a reduction without parts."""
    points, terms = loop_length(state.stages[k], SPATIAL), loop_length(state.stages[k], REDUCE)
    wide, threads = _column_block(points, terms)
    reader = k
    if sideways and threads == 1:
        state, reader = with_reader(state, k)
    space = [it.uid for it in state.stages[reader].iters if it.kind != REDUCE]
    state, fused = fuse_reductions(state, k)
    if not sideways:
        return _rows(state, k, space, fused.uid, terms)
    state, (_, ahead, thread) = split(state, k, fused.uid, (max(1, min(LOADS, terms // threads)), threads))
    state = annotate(state, k, ahead.uid, "unroll")
    if threads > 1:
        state = annotate(state, k, thread.uid, "threadIdx.y")
    state, lane = point_threads(state, reader, space, wide)
    return computed_in(state, k, reader, lane)


def _rows(state: State, k: int, space: Sequence[int], reduced: int, terms: int) -> State:
    """The threads of a block share the terms of a point, those of a warp where they are few."""
    threads = WARP if terms < WARP * LOADS else THREADS if terms < 2 * THREADS * LOADS else 2 * THREADS
    several = THREADS // threads if threads < THREADS else 1
    loads = max(1, min(LOADS, terms // threads))
    state, (_, ahead, thread) = split(state, k, reduced, (loads, threads))
    state = annotate(state, k, ahead.uid, "unroll")
    if space:
        state, point = one_loop(state, k, space)
        if several > 1:
            state, (point, beside) = split(state, k, point.uid, (several,))
            state = annotate(state, k, beside.uid, "threadIdx.y")
        state = annotate(state, k, point.uid, "blockIdx.x")
    return annotate(state, k, thread.uid, "threadIdx.x")
