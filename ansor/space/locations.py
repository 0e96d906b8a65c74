"""Where untiled stages are computed on CPUs: inlined, on their own, or inside a loop of their consumer.

Only structure counts here, and extents that are known to be 1; so the lengths of a state may be undecided, or lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from te_lite.schedule.loop_value import root_axes
from te_lite.schedule.place_steps import ComputeInline, ComputeRoot
from te_lite.schedule.replay import apply
from te_lite.schedule.state import ATTACHED, INLINED, REDUCE, SPATIAL, Iter, Stage, State

from ..core.values.schedule_primitives import compute_at
from ..sketch.predicates import (
    has_reduce_iter,
    is_read_argument,
    is_tiled,
    may_be_computed_at,
    needs_tiling,
    single_consumer,
)

TRIES = 20


@dataclass(frozen=True, slots=True)
class ComputeLocation:
    """Where a movable stage is computed: "inline", "root", or "at" loop `uid` of stage `target`."""

    stage: int
    how: Literal["inline", "root", "at"]
    target: int = -1
    uid: int = -1


def place_of(state: State, k: int) -> ComputeLocation:
    """Where stage `k` is computed now."""
    attach = state.stages[k].attach
    if attach is not None:
        return ComputeLocation(k, "at", attach.stage, attach.iter)
    return ComputeLocation(k, "inline" if state.stages[k].where == INLINED else "root")


def put(state: State, place: ComputeLocation) -> State:
    """The state with a stage in its place; no step when it is there already."""
    match place:
        case _ if place == place_of(state, place.stage):
            return state
        case ComputeLocation(stage=k, how="inline"):
            return apply(state, ComputeInline(k))
        case ComputeLocation(stage=k, how="root"):
            return apply(state, ComputeRoot(k))
        case ComputeLocation(stage=k, target=target, uid=uid):
            return compute_at(state, k, target, uid)


def is_unit(stage: Stage, it: Iter) -> bool:
    """The loop has extent 1: known, or because all axes it was made from have."""
    if isinstance(it.extent, int):
        return it.extent == 1
    axes = (*stage.op.axis, *stage.op.reduce_axis)
    extents = [axes[n].extent for n in root_axes(stage, it.uid)]
    return all(isinstance(e, int) and e == 1 for e in extents)


def location_candidates(state: State, k: int) -> list[ComputeLocation]:
    """The loops at which stage `k` may be computed."""
    target = single_consumer(state, k)
    if target is None or not may_be_computed_at(state, k):
        return []
    out = _target_loops(state, target)
    attach = state.stages[target].attach
    if attach is not None:
        out += _outer_target_loops(state, attach.stage)
    return [ComputeLocation(k, "at", t, uid) for t, uid in out]


def _target_loops(state: State, t: int) -> list[tuple[int, int]]:
    stage = state.stages[t]
    tiled = is_tiled(stage)
    inside_reduction = False
    out: list[tuple[int, int]] = []
    for it in stage.iters:
        if it.kind == REDUCE:
            inside_reduction = True
        leaves_tile = inside_reduction and (it.kind == SPATIAL or not tiled)
        if leaves_tile or it.annotation == "unroll":
            break
        first_level = stage.where == ATTACHED and it.kind == SPATIAL and it.name.endswith(".0")
        if is_unit(stage, it) or first_level:
            continue
        out.append((t, it.uid))
        if state.attached_to(t, it.uid):
            break
    return out


def _outer_target_loops(state: State, t: int) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for it in state.stages[t].iters:
        if it.kind == REDUCE or it.annotation == "unroll" or state.attached_to(t, it.uid):
            break
        if not is_unit(state.stages[t], it):
            out.append((t, it.uid))
    return out


def movable_stages(state: State) -> list[int]:
    """The stages whose place is free, last first: not those of which a sketch has marked loops."""
    return [
        k
        for k in range(len(state.stages) - 1, -1, -1)
        if not state.stages[k].is_placeholder
        and state.stages[k].where != INLINED
        and not state.access.is_output(k)
        and not state.stages[k].op.scans
        and not is_tiled(state.stages[k])
        and not needs_tiling(state, k)
        and all(it.annotation == "none" for it in state.stages[k].iters)
    ]


def places_for(state: State, k: int) -> list[ComputeLocation]:
    """Everything that may be drawn for stage `k`: inline, root, and the candidate loops.

    A stage that cannot be inlined has its present place instead.
    """
    holds_others = any(s.attach is not None and s.attach.stage == k for s in state.stages)
    fixed = has_reduce_iter(state.stages[k]) or holds_others or is_read_argument(state, k)
    inline = place_of(state, k) if fixed else ComputeLocation(k, "inline")
    return [inline, ComputeLocation(k, "root"), *location_candidates(state, k)]


def draw_places(state: State, rng: np.random.Generator) -> State:
    """Put every movable stage in a place, one after the other, each of `places_for` equally likely.

    The result need not have a loop nest.  TVM draws inline without effect for stages at root; here it takes effect.
    """
    for k in movable_stages(state):
        if state.stages[k].where != INLINED:
            places = places_for(state, k)
            state = put(state, places[int(rng.integers(len(places)))])
    return state
