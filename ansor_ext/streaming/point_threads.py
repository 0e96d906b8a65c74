"""Parts of nests of GPUs that need no search: a thread for each point, with what it computes in its own registers."""

from __future__ import annotations

from collections.abc import Sequence

from ansor.core.values.schedule_primitives import annotate, compute_at, fuse, split
from ansor.sketch.plain import THREADS
from te_lite.schedule.replay import apply
from te_lite.schedule.stage_steps import CacheWrite
from te_lite.schedule.state import Iter, State

from ..analysis.own_stages import elementwise_reader

RESIDENT = 1 << 18
"""Threads that keep a large GPU busy."""
SERIAL = 4
"""Points of a thread of which each is little work."""


def with_reader(state: State, k: int) -> tuple[State, int]:
    """The stage that reads a reduction point by point, a copy of it where there is none.

    What a thread computes alone is then its own until it is done.  An element of a result is memory that a compiler
    may write after each term.
    """
    reader = elementwise_reader(state, k)
    if reader is not None:
        return state, reader
    if state.stages[k].op.num_outputs > 1:
        return state, k
    return apply(state, CacheWrite(k, "local")), k + 1


def computed_in(state: State, k: int, reader: int, loop: Iter) -> State:
    return state if reader == k else compute_at(state, k, reader, loop.uid)


def point_threads(
    state: State, k: int, space: Sequence[int], threads: int = THREADS, apart: int = 1
) -> tuple[State, Iter]:
    """A thread for each point of neighbouring loops, or for some that are apart."""
    state, point = one_loop(state, k, space)
    state, (block, *several, thread) = split(state, k, point.uid, (apart, threads) if apart > 1 else (threads,))
    for it in several:
        state = annotate(state, k, it.uid, "unroll")
    state = annotate(state, k, block.uid, "blockIdx.x")
    return annotate(state, k, thread.uid, "threadIdx.x"), thread


def one_loop(state: State, k: int, uids: Sequence[int]) -> tuple[State, Iter]:
    """Neighbouring loops as one (no step where there is one)."""
    if len(uids) > 1:
        return fuse(state, k, uids)
    return state, next(it for it in state.stages[k].iters if it.uid == uids[0])
