"""Where untiled stages are computed on CPUs: inlined, on their own, or inside a loop of their consumer (spec 5.3)."""

from __future__ import annotations

import numpy as np

from te_lite.bounds import infer_bounds
from te_lite.errors import LowerError
from te_lite.replay import apply
from te_lite.state import ATTACHED, INLINED, REDUCE, ROOT, SPATIAL, Iter, State
from te_lite.step import ComputeInline, ComputeRoot

from ..moves import compute_at
from ..sketch.predicates import has_reduce_iter, is_tiled, needs_tiling, single_consumer

Place = tuple[int, int]

TRIES = 20


def is_unit(it: Iter) -> bool:
    return isinstance(it.extent, int) and it.extent == 1


def location_candidates(state: State, k: int) -> list[Place]:
    """The loops `(stage, uid)` at which stage `k` may be computed; extents of `state` are those known so far."""
    target = single_consumer(state, k)
    if target is None:
        return []
    out = _target_loops(state, target)
    attach = state.stages[target].attach
    if attach is not None:
        out += _outer_target_loops(state, attach.stage)
    return out


def _target_loops(state: State, t: int) -> list[Place]:
    stage = state.stages[t]
    tiled = is_tiled(stage)
    inside_reduction = False
    out: list[Place] = []
    for it in stage.iters:
        if it.kind == REDUCE:
            inside_reduction = True
        leaves_tile = inside_reduction and (it.kind == SPATIAL or not tiled)
        if leaves_tile or it.annotation == "unroll":
            break
        first_level = stage.where == ATTACHED and it.kind == SPATIAL and it.name.endswith(".0")
        if is_unit(it) or first_level:
            continue
        out.append((t, it.uid))
        if state.attached_to(t, it.uid):
            break
    return out


def _outer_target_loops(state: State, t: int) -> list[Place]:
    out: list[Place] = []
    for it in state.stages[t].iters:
        if it.kind == REDUCE or it.annotation == "unroll" or state.attached_to(t, it.uid):
            break
        if not is_unit(it):
            out.append((t, it.uid))
    return out


def movable_stages(state: State) -> list[int]:
    """The stages whose place is free, last first."""
    return [
        k
        for k in range(len(state.stages) - 1, -1, -1)
        if not state.stages[k].is_placeholder
        and state.stages[k].where != INLINED
        and not state.access.is_output(k)
        and not is_tiled(state.stages[k])
        and not needs_tiling(state, k)
    ]


def change_locations(bounded: State, rng: np.random.Generator) -> State:
    """Choose a place for every movable stage of a bounded state; the result is bounded again.

    Each of inline, root and the candidate loops is equally likely; inline falls back to the present place for a
    stage that cannot be inlined.  Draws that have no loop nest are drawn again.  TVM draws inline without effect
    for stages at root; here it takes effect.
    """
    if not movable_stages(bounded):
        return bounded
    for _ in range(TRIES):
        state = bounded
        for k in movable_stages(bounded):
            if state.stages[k].where != INLINED:
                state = _move(state, k, rng)
        try:
            return infer_bounds(state).state
        except LowerError:
            continue
    return bounded


def _move(state: State, k: int, rng: np.random.Generator) -> State:
    candidates = location_candidates(state, k)
    choice = int(rng.integers(len(candidates) + 2))
    stage = state.stages[k]
    if choice == 0:
        holds_others = any(s.attach is not None and s.attach.stage == k for s in state.stages)
        return state if has_reduce_iter(stage) or holds_others else apply(state, ComputeInline(k))
    if choice == 1:
        return state if stage.where == ROOT else apply(state, ComputeRoot(k))
    return compute_at(state, k, *candidates[choice - 2])
