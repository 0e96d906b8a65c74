"""Steps named by iterators instead of positions.

Each function appends one step to a state.  Iterators are named by `uid`, which never changes; positions are looked
up when the step is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from te_lite.schedule.loop_steps import Annotate, FollowFusedSplit, FollowSplit, Fuse, Reorder, Split
from te_lite.schedule.place_steps import ComputeAt
from te_lite.schedule.replay import apply
from te_lite.schedule.state import Iter, State
from te_lite.schedule.step import Length


def _new(before: State, after: State, k: int) -> tuple[Iter, ...]:
    return after.stages[k].vars[len(before.stages[k].vars) :]


def split(state: State, k: int, uid: int, lengths: Sequence[Length]) -> tuple[State, tuple[Iter, ...]]:
    """Split a loop, the rest outermost; None is an undecided length.  The step keeps the extent (0: unknown)."""
    position = state.stages[k].position(uid)
    extent = state.stages[k].vars[uid].extent
    known = extent if isinstance(extent, int) else 0
    after = apply(state, Split(k, position, known, tuple(lengths)))
    return after, _new(state, after, k)


def follow_split(state: State, k: int, uid: int, source: int, n_split: int) -> tuple[State, tuple[Iter, ...]]:
    """Split a loop like the split at step `source`."""
    after = apply(state, FollowSplit(k, state.stages[k].position(uid), source, n_split))
    return after, _new(state, after, k)


def follow_fused_split(
    state: State, k: int, uid: int, sources: Sequence[int], level: int
) -> tuple[State, tuple[Iter, ...]]:
    """Split a loop by the product of length number `level` of the splits at steps `sources`."""
    after = apply(state, FollowFusedSplit(k, state.stages[k].position(uid), tuple(sources), level, True))
    return after, _new(state, after, k)


def fuse(state: State, k: int, uids: Sequence[int]) -> tuple[State, Iter]:
    """Fuse neighbouring loops; no loops at all make an outermost loop of extent 1."""
    after = apply(state, Fuse(k, tuple([state.stages[k].position(u) for u in uids])))
    return after, _new(state, after, k)[0]


def reorder(state: State, k: int, uids: Iterable[int]) -> State:
    return apply(state, Reorder(k, tuple([state.stages[k].position(u) for u in uids])))


def annotate(state: State, k: int, uid: int, annotation: str) -> State:
    return apply(state, Annotate(k, state.stages[k].position(uid), annotation))


def compute_at(state: State, k: int, target: int, uid: int) -> State:
    return apply(state, ComputeAt(k, target, state.stages[target].position(uid)))
