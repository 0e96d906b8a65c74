"""Nests of GPUs for windows of one large tensor, as pools and depthwise convolutions have them.

- A thread has all elements of a small window under way.  Where windows overlap it has some of them, two by two or one
  below the other, and reads each element that they need once.
- Weights are read by each thread: they are few, and the same for all windows along an axis that windows move along.
- Of short windows that do not it has several, as far apart as a block is wide.
- The terms of long windows that lie side by side are shared: a thread sums up one column of one window.
"""

from __future__ import annotations

from math import prod

from ansor.core.values.schedule_primitives import annotate, compute_at, reorder, split
from ansor.sketch.plain import THREADS
from te_lite.bounds.reads import reads_by
from te_lite.computation.tensor import Operation
from te_lite.schedule.place_steps import ComputeRoot
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheRead
from te_lite.schedule.state import INLINED, REDUCE, Iter, State

from ..analysis.read_again import UNROLLED, WARP, Moved, extents_of, moved_in, terms_of, weighed_read
from .point_threads import RESIDENT, SERIAL, computed_in, one_loop, point_threads, with_reader

SHORT = 16
"""Terms below which a thread has several windows."""
SQUARE, BELOW = 2, (4, 6, 5, 3, 7, 2)
"""How many windows that overlap a thread may have along each of two axes, and along one, best first."""
IN_REGISTERS = 96
"""Elements that a thread reads for them at most."""
BLOCK = 512
"""Threads of a block that share the terms of windows, at most."""


def windows(state: State, k: int) -> State:
    """A thread for each point, or for some next to each other whose windows have elements in common."""
    if not state.stages[k].op.axis:
        return state
    held = _held(state, k)
    several = {} if held is None else _neighbours(state, k)
    state, reader = with_reader(state, k)
    outer, inner = list[Iter](), list[Iter]()
    rest = [it for it in state.stages[reader].iters if it.kind == REDUCE]
    for a, it in enumerate(state.stages[reader].iters[: len(state.stages[reader].op.axis)]):
        outer.append(it)
        if a in several:
            state, (outer[a], own) = split(state, reader, it.uid, (several[a],))
            inner.append(own)
    state = reorder(state, reader, [it.uid for it in (*outer, *inner, *rest)]) if inner else state
    threads, apart = (THREADS, 1) if inner else _window_block(state.stages[k].op)
    state, thread = point_threads(state, reader, [it.uid for it in outer], threads, apart)
    for own in inner:
        state = annotate(state, reader, own.uid, "unroll")
    state = _unrolled(computed_in(state, k, reader, inner[-1] if inner else thread), k)
    return state if held is None or not inner else _read_first(state, k, held, reader, thread)


def _window_block(op: Operation) -> tuple[int, int]:
    """The threads of a block, and the points of each: a block that has few loads is over when it is started."""
    points = prod(op.shape)
    if terms_of(op) < SHORT and points >= RESIDENT * SERIAL:
        return 2 * THREADS, SERIAL
    return (4 * THREADS if points >= RESIDENT else THREADS), 1


def _held(state: State, k: int) -> int | None:
    """The stage whose windows a reduction reads, of which a thread may have its part in registers."""
    found = windowed(state, k)
    if found is None or (state.stages[found].where == INLINED and len(state.access.read_by[found]) > 1):
        return None
    return found


def windowed(state: State, k: int) -> int | None:
    """The stage whose windows stage `k` reads: the only one that it reads, or the one beside the weights of windows."""
    reads = reads_by(k, state.ops)
    if len({p for p, _ in reads}) < 2:
        return reads[0][0] if reads else None
    weighed = weighed_read(state, k)
    return None if weighed is None else reads[weighed][0]


def _neighbours(state: State, k: int) -> dict[int, int]:
    """How many points a thread has along axes but the last, where windows without gaps overlap: two by two if it can.

    What they read fits into registers, and no point is beyond the edge.
    """
    extents, moved = extents_of(state.stages[k].op), _moved(state, k)
    last = len(state.stages[k].op.axis) - 1
    axes = [a for a, m in moved.items() if a < last and m.length > m.step]
    ways = [{a: SQUARE for a in axes[-2:]}] if len(axes) > 1 else []
    ways += [{a: n} for a in reversed(axes) for n in BELOW]
    for way in ways:
        read = prod([(way.get(a, 1) - 1) * m.step + m.length for a, m in moved.items()])
        if read <= IN_REGISTERS and all(extents[a] % n == 0 for a, n in way.items()):
            return way
    return {}


def _moved(state: State, k: int) -> dict[int, Moved]:
    """The axes along which windows move; none where elements of one lie apart."""
    held = windowed(state, k)
    return moved_in(state, k, [read for p, read in reads_by(k, state.ops) if p == held])


def _read_first(state: State, k: int, held: int, reader: int, thread: Iter) -> State:
    """Each element that the points of a thread need is read once: no compiler sees that two conditions are one."""
    if state.stages[held].where == INLINED:
        return compute_at(apply(state, ComputeRoot(held)), held, reader, thread.uid)
    state = apply(state, CacheRead(held, "local", (k,)))
    return compute_at(state, held + 1, reader + 1, thread.uid)


def _unrolled(state: State, k: int, without: int = -1) -> State:
    """The last reduction loops of a thread written out, as far as that is short."""
    stage, length = state.stages[k], 1
    for it in reversed([it for it in stage.iters if it.kind == REDUCE and it.uid != without]):
        length *= int(stage.op.reduce_axis[it.uid - len(stage.op.axis)].extent)
        if length <= UNROLLED:
            state = annotate(state, k, it.uid, "unroll")
    return state


def side_by_side_windows(state: State, k: int) -> State | None:
    """Threads for all columns of the windows of a row; None where windows are no such.

    A warp that has one window reads a short piece of each of its rows.  The windows of a block divide the points, since
    a condition around each term keeps loads behind the ones before.
    """
    op = state.stages[k].op
    last, points = len(op.axis) - 1, prod(op.shape)
    own = _moved(state, k).get(last) if _held(state, k) is not None else None
    if own is None or not 1 < own.length <= own.step <= 2 * own.length < 2 * WARP or points * own.length < RESIDENT:
        return None
    several = _divisor(op.shape[last], BLOCK // own.length)
    if several * own.length < THREADS:
        several = _divisor(points, BLOCK // own.length)
    column = next(it.uid for it in state.stages[k].iters if it.uid == own.term)
    rest = [it.uid for it in state.stages[k].iters if it.kind == REDUCE and it.uid != column]
    state, point = one_loop(state, k, [it.uid for it in state.stages[k].iters if it.kind != REDUCE])
    state, (block, window) = split(state, k, point.uid, (several,))
    state = reorder(state, k, [block.uid, window.uid, *rest, column])
    state = annotate(state, k, block.uid, "blockIdx.x")
    state = annotate(state, k, window.uid, "threadIdx.y")
    return annotate(_unrolled(state, k, column), k, column, "threadIdx.x")


def _divisor(n: int, most: int) -> int:
    """The largest divisor that is not above `most`."""
    return next(m for m in range(min(n, most), 0, -1) if n % m == 0)
