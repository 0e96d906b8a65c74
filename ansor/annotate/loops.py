"""Annotate the loops of a bounded state: parallel, vectorized, unrolled (spec autoscheduler 5.4, 5.5, 5.7)."""

from __future__ import annotations

import numpy as np

from te_lite.replay import apply
from te_lite.state import INLINED, REDUCE, ROOT, Iter, Stage, State
from te_lite.step import Pragma

from ..moves import annotate, fuse
from ..sketch.predicates import UNROLL_INNER, has_reduce_iter, is_tiled, named_axes, root_axes

CPU_UNROLL = (0, 16, 64, 512)
GPU_UNROLL = (0, 16, 64, 512, 1024)


def extent_of(it: Iter) -> int:
    """The extent of a loop of a bounded state."""
    assert isinstance(it.extent, int)
    return it.extent


def _loops_of_programs(state: State) -> list[int]:
    return [k for k, s in enumerate(state.stages) if not s.is_placeholder and s.where != INLINED]


# ------------------------------------------------------------------------------------------------ parallel


def add_parallel(state: State, num_cores: int) -> State:
    """Run the outermost loops of every root stage in parallel, fused until they give `num_cores * 16` tasks.

    Where they all have extent 1, the loops inside them are taken.  TVM marks the outer loops too and later drops
    such a program for its nested parallel loops; here the outer ones stay plain.
    """
    for k in _loops_of_programs(state):
        if state.stages[k].where == ROOT:
            state, _ = _parallel_from(state, k, 0, num_cores * 16)
    return state


def _parallel_from(state: State, k: int, offset: int, enough: int) -> tuple[State, bool]:
    """Mark the loops of stage `k` from `offset` on; whether any loop was marked."""
    loops: list[Iter] = []
    degree = 1
    stop: Iter | None = None
    for it in state.stages[k].iters[offset:]:
        if it.kind == REDUCE or it.annotation != "none":
            break
        loops.append(it)
        degree *= extent_of(it)
        if degree > enough:
            break
        if state.attached_to(k, it.uid):
            stop = it
            break
    if degree == 1 and stop is not None:
        state, inside = _parallel_inside(state, k, stop, offset + len(loops), enough)
        if inside:
            return state, True
    if not loops:
        return state, False
    first = loops[0]
    if len(loops) > 1:
        state, first = fuse(state, k, [it.uid for it in loops])
    return annotate(state, k, first.uid, "parallel"), True


def _parallel_inside(state: State, k: int, stop: Iter, offset: int, enough: int) -> tuple[State, bool]:
    """Mark the loops of what is computed at loop `stop` of stage `k`, and those of `k` behind it."""
    found = False
    for child in state.attached_to(k, stop.uid):
        state, marked = _parallel_from(state, child, 0, enough)
        found = found or marked
    state, marked = _parallel_from(state, k, offset, enough)
    return state, found or marked


# ------------------------------------------------------------------------------------------------ vectorize


def add_vectorize(state: State, rng: np.random.Generator, max_size: int) -> State:
    """Vectorize some of the innermost loops of every stage, up to `max_size` lanes; a tiled stage gives one loop."""
    for k in _loops_of_programs(state):
        usable = _vector_loops(state, k, max_size)
        if usable:
            count = 1 + int(rng.integers(len(usable)))
            loop = usable[-1]
            if count > 1:
                state, loop = fuse(state, k, [it.uid for it in usable[-count:]])
            state = annotate(state, k, loop.uid, "vectorize")
    return state


def _vector_loops(state: State, k: int, max_size: int) -> list[Iter]:
    """The innermost loops that may become lanes, outermost first."""
    stage = state.stages[k]
    out: list[Iter] = []
    lanes = 1
    for it in reversed(stage.iters):
        if state.attached_to(k, it.uid) or it.kind == REDUCE or it.annotation != "none":
            break
        if out and is_tiled(stage):
            break
        lanes *= extent_of(it)
        if lanes > max_size:
            break
        out.insert(0, it)
    return out


# ------------------------------------------------------------------------------------------------ unroll


def add_unroll(state: State, rng: np.random.Generator, values: tuple[int, ...]) -> State:
    """Give every stage with a reduction a limit below which its loops are unrolled, one of `values` (steps)."""
    for k in _loops_of_programs(state):
        stage = state.stages[k]
        for it in _always_unrolled(stage):
            state = annotate(state, k, it.uid, "unroll")
        if has_reduce_iter(stage):
            value = values[int(rng.integers(len(values)))]
            state = apply(state, Pragma(k, 0, f"auto_unroll_max_step${value}"))
    return state


def _always_unrolled(stage: Stage) -> list[Iter]:
    """The loops of the innermost tile that the operation asks to unroll."""
    listed = named_axes(stage, UNROLL_INNER)
    out: list[Iter] = []
    seen: set[int] = set()
    for it in reversed(stage.iters) if listed else ():
        axes = root_axes(stage, it.uid)
        if axes <= seen:
            continue
        seen |= axes
        if len(axes) == 1 and axes <= listed and it.annotation == "none":
            out.append(it)
    return out
