"""Which outer loops of a program run in parallel.

The number of a stage is a depth: how many of its outermost loops run in parallel, fused into one.  Where the loops
around other stages all have extent 1, what is inside them is marked instead: a depth of an attached stage, or a depth
of the root stage that reaches beyond the loop that holds others, says so.  TVM marks the outer loops too and later
drops such a program for its nested parallel loops; here the outer ones stay plain.

What the depths mean depends on structure only; `default_depths` and `settled_depths` read extents, ints or lanes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from te_lite.bounds.bounds import Bounds
from te_lite.expr.lanes import smaller, where
from te_lite.schedule.state import REDUCE, ROOT, Iter, State
from te_lite.schedule.step import Step

from ...core.target.hardware import HardwareParams
from ...core.values.schedule_primitives import annotate, fuse
from .decision import Choice, Draft, Number, Numbers, Phase, Setting
from .loops import always_unrolled, annotated_loops, loops_of_programs, without_units


class Parallel(Number):
    """How many of the outermost loops of a stage run in parallel, fused into one (0: none)."""

    name = "parallel"
    cpu_weight = 0.01
    phase = Phase.BOUNDED
    turn = 1
    shapes_steps = True

    def values(self, sketch: State, setting: Setting) -> Mapping[int, tuple[int, ...]]:
        depths = {k: deepest(sketch, k) for k in loops_of_programs(sketch)}
        return {k: tuple(range(depth + 1)) for k, depth in depths.items() if depth}

    def draw(self, parts: Sequence[Choice], draft: Draft) -> None:
        depths = default_depths(draft.bounds.state, draft.setting.hardware.num_cores)
        for c in parts:
            draft.rows[:, c.column] = depths.get(c.stage, 0)

    def lanes(self, given: Numbers, bounds: Bounds, others: Mapping[str, Numbers]) -> Numbers:
        return settled_depths(bounds.state, given)

    def simplest(self, meant: Numbers, bounds: Bounds) -> Numbers:
        return {k: without_units(bounds.state.stages[k].iters, depth) for k, depth in meant.items()}

    def apply(self, state: State, k: int, numbers: Numbers, hardware: HardwareParams) -> State:
        return _mark(state, k, 0, numbers) if state.stages[k].where == ROOT else state

    def count(self, steps: Sequence[Step]) -> Mapping[int, int]:
        return {step.stage: step.iter + fused for step, fused in annotated_loops(steps, "parallel")}

    def rests_on_extents(self, state: State, numbers: Mapping[int, int]) -> bool:
        """Some parallel loops are inside others, which must then have extent 1."""
        return any(
            state.stages[k].attach is not None or depth > len(parallel_loops(state, k)) for k, depth in numbers.items()
        )


def parallel_loops(state: State, k: int, offset: int = 0) -> list[Iter]:
    """The loops of stage `k` from `offset` on that may be fused and run in parallel."""
    unrolled = {it.uid for it in always_unrolled(state.stages[k])}
    out: list[Iter] = []
    for it in state.stages[k].iters[offset:]:
        if it.kind == REDUCE or it.annotation != "none" or it.uid in unrolled:
            break
        out.append(it)
        if state.attached_to(k, it.uid):
            break
    return out


def deepest(state: State, k: int) -> int:
    """The largest depth that stage `k` may have in any place."""
    loops = state.stages[k].iters
    unrolled = {it.uid for it in always_unrolled(state.stages[k])}
    plain = [it.kind != REDUCE and it.annotation == "none" and it.uid not in unrolled for it in loops]
    return plain.index(False) if False in plain else len(plain)


def _inside(state: State, k: int, loops: list[Iter]) -> list[int]:
    """The stages computed at the last of the loops."""
    return state.attached_to(k, loops[-1].uid) if loops else []


def _roots(state: State) -> list[int]:
    return [k for k in loops_of_programs(state) if state.stages[k].where == ROOT]


# ------------------------------------------------------------------------------------------------ extents


def default_depths(bounded: State, num_cores: int) -> dict[int, Any]:
    """For every root stage the fewest loops that give more than `num_cores * 16` tasks, or all."""
    depths: dict[int, Any] = {}
    for k in _roots(bounded):
        depths.update(_default(bounded, k, 0, num_cores * 16))
    return depths


def _default(state: State, k: int, offset: int, enough: int) -> dict[int, Any]:
    """Depths for stage `k` from loop `offset` on and for what is computed in it; empty when nothing can be marked."""
    loops = parallel_loops(state, k, offset)
    if not loops:
        return {}
    depth: Any = offset + 1
    degree: Any = loops[0].extent
    for it in loops[1:]:
        depth = depth + where(degree <= enough, 1, 0)
        degree = degree * it.extent
    children = _inside(state, k, loops)
    deeper: dict[int, Any] = {}
    for child in children:
        deeper.update(_default(state, child, 0, enough))
    behind = _default(state, k, offset + len(loops), enough) if children else {}
    if not deeper and not behind:
        return {k: depth}
    unit = degree == 1
    out = {s: where(unit, d, 0) for s, d in {**behind, **deeper}.items()}
    out[k] = where(unit, behind.get(k, 0), depth)
    return out


def settled_depths(bounded: State, depths: Numbers) -> dict[int, Any]:
    """The depths that say the same in one way: those without effect 0, those that reach too far cut."""
    out: dict[int, Any] = dict.fromkeys(depths, 0)
    for k in _roots(bounded):
        out.update(_settled(bounded, k, 0, depths))
    return out


def _settled(state: State, k: int, offset: int, depths: Numbers) -> dict[int, Any]:
    loops = parallel_loops(state, k, offset)
    limit = offset + len(loops)
    wanted = depths.get(k, 0)
    own = smaller(wanted, limit)
    children = _inside(state, k, loops)
    if not children:
        return {k: where(own > offset, own, 0)}
    degree: Any = 1
    for it in loops:
        degree = degree * it.extent
    deeper: dict[int, Any] = {}
    for child in children:
        deeper.update(_settled(state, child, 0, depths))
    behind = _settled(state, k, limit, depths)
    inside = (degree == 1) & (sum(d > 0 for d in (*deeper.values(), behind[k])) > 0)
    out = {s: where(inside, d, 0) for s, d in {**behind, **deeper}.items()}
    out[k] = where(inside, behind[k], where(own > offset, own, 0))
    return out


# ------------------------------------------------------------------------------------------------ structure


def _mark(state: State, k: int, offset: int, depths: Mapping[int, int]) -> State:
    loops = parallel_loops(state, k, offset)
    limit, depth = offset + len(loops), depths.get(k, 0)
    children = _inside(state, k, loops)
    if children and (depth > limit or any(_marks(state, child, depths) for child in children)):
        for child in children:
            state = _mark(state, child, 0, depths)
        return _mark(state, k, limit, depths)
    chosen = loops[: max(0, depth - offset)]
    if not chosen:
        return state
    first = chosen[0]
    if len(chosen) > 1:
        state, first = fuse(state, k, [it.uid for it in chosen])
    return annotate(state, k, first.uid, "parallel")


def _marks(state: State, k: int, depths: Mapping[int, int]) -> bool:
    """Something is to be marked in stage `k` or in what is computed in its outer loops."""
    loops = parallel_loops(state, k)
    own = bool(loops) and depths.get(k, 0) > 0
    return own or any(_marks(state, child, depths) for child in _inside(state, k, loops))
