"""A tile: the points of a stage that are computed while its loops outside of one, and that one, are invariant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.bounds.loop_scope import LoopKey, enclosing_loops
from te_lite.errors import ScheduleError, require
from te_lite.expr.expr import Expr, Var, as_expr
from te_lite.expr.visit import free_vars
from te_lite.schedule.loop_value import all_values, split_guards
from te_lite.schedule.region import DivAtom, Linear
from te_lite.schedule.state import INLINED, ROOT, Stage, State
from te_lite.verify.verify_points import value_at

from .touched import Group, Mask, Points, joined, touched


@dataclass(frozen=True, eq=False)
class ComputedTile:
    """The elements of stage `stage` of `state` that one iteration of a loop computes, and those of inputs that they
    need.

    Invariant loops are in the middle of their iterations, or, where nothing is computed there, in their first
    one.
    """

    state: State
    stage: int
    loop: str
    own: Mask
    inputs: dict[int, Mask]


def tile_of(state: State, stage: str | None = None, loop: str | None = None) -> ComputedTile:
    """The tile of a loop of a stage, by names as the nest shows them.

    Without names, of the last stage at root, and of its first loop with more than one iteration.  Raises ScheduleError
    for names that are not there, LowerError for a state without a loop nest and for tiles with too many points.
    """
    bounds = infer_bounds(state)
    k = _stage_named(bounds.state, stage)
    place = _loop_named(bounds.state.stages[k], loop)
    turns: tuple[Callable[[int], int], ...] = (lambda n: (n - 1) // 2, lambda n: 0)  # the middle one, else the first
    points = next(p for turn in turns if _any(p := _points(bounds, k, place, turn)))
    op = bounds.state.ops[k]
    axes = [g for g in points if set(g.axes) & set(op.axis)]
    whole = joined(axes)
    own = np.zeros(op.shape, bool)
    own[tuple([whole.values[:, whole.axes.index(v)] for v in op.axis])] = True
    found = touched(bounds.state.ops, k, points)
    inputs = {j: mask for j, mask in sorted(found.items()) if bounds.state.stages[j].is_placeholder}
    stood = bounds.state.stages[k].iters[place].name if bounds.state.stages[k].leaf else ""
    return ComputedTile(bounds.state, k, stood, own, inputs)


def _stage_named(state: State, name: str | None) -> int:
    shown = {s.op.name: k for k, s in enumerate(state.stages) if not s.is_placeholder and s.where != INLINED}
    if name is None:
        return max([k for k in shown.values() if state.stages[k].where == ROOT])
    require(name in shown, ScheduleError, "stage", f"the stages are {', '.join(shown)}", got=name)
    return shown[name]


def _loop_named(stage: Stage, name: str | None) -> int:
    names = [it.name for it in stage.iters]
    if name is None:
        return next((n for n, it in enumerate(stage.iters) if it.length > 1), len(names) - 1)
    require(name in names, ScheduleError, "loop", f"the loops of {stage.op.name} are {', '.join(names)}", got=name)
    return names.index(name)


def _any(points: Points) -> bool:
    return all(len(group.values) for group in points)


def _points(bounds: Bounds, k: int, place: int, turn: Callable[[int], int]) -> Points:
    """The values of the axes in one `iteration` of the invariant loops."""
    stage, starts = bounds.state.stages[k], _starts(bounds, k, turn)
    standing = set(stage.leaf[: place + 1])
    running = {Var(it.name): it.length for it in stage.iters if it.uid not in standing}
    variables: dict[int, Expr] = dict(zip([u for u in stage.leaf if u not in standing], running, strict=True))
    variables |= {uid: as_expr(turn(stage.vars[uid].length)) for uid in standing}
    values, guards = all_values(stage, variables), split_guards(stage, variables)
    axes: tuple[Var, ...] = (*stage.op.axis, *stage.op.reduce_axis)
    sizes = [stage.vars[n].length for n in range(len(axes))]
    exprs = {v: values[n] + starts[n] for n, v in enumerate(axes)}
    inside = [values[n] < size for n, size in enumerate(sizes)]
    inside += [exprs[v] < size for v, size in zip(stage.op.axis, stage.op.shape, strict=True)]
    return tuple(_grouped(exprs, [*guards, *inside], running))


def _grouped(exprs: Mapping[Var, Expr], guards: Sequence[Expr], running: Mapping[Var, int]) -> list[Group]:
    """The values of the axes, those together that share loops or guards."""
    parts: list[tuple[set[Var], set[Var]]] = []
    for v, e in exprs.items():
        parts = _merged(parts, {v}, set(free_vars(e)))
    for guard in guards:
        if free_vars(guard):
            parts = _merged(parts, set(), set(free_vars(guard)))
    return [
        _evaluated(sorted(own, key=list(exprs).index), loops, exprs, guards, running) for own, loops in parts if own
    ]


def _merged(
    parts: Sequence[tuple[set[Var], set[Var]]], own: set[Var], loops: set[Var]
) -> list[tuple[set[Var], set[Var]]]:
    near = [part for part in parts if part[1] & loops]
    rest = [part for part in parts if not part[1] & loops]
    return [*rest, (own.union(*[a for a, _ in near]), loops.union(*[b for _, b in near]))]


def _evaluated(
    own: Sequence[Var], loops: set[Var], exprs: Mapping[Var, Expr], guards: Sequence[Expr], running: Mapping[Var, int]
) -> Group:
    grid = joined([Group((v,), np.arange(running[v])[:, None]) for v in running if v in loops])
    at, count = dict(zip(grid.axes, grid.values.T, strict=True)), len(grid.values)
    keep = np.ones(count, bool)
    for guard in [g for g in guards if free_vars(g) <= loops]:
        keep &= np.broadcast_to(value_at(guard, at), count)
    columns = [np.broadcast_to(value_at(exprs[v], at), count)[keep] for v in own]
    return Group(tuple(own), np.unique(np.stack(columns, axis=1), axis=0))


def _starts(bounds: Bounds, k: int, turn: Callable[[int], int]) -> list[int]:
    """Where the axes of a stage begin in one `iteration` of all loops around it."""
    stages = bounds.state.stages
    values: dict[LoopKey, int] = {}
    for j in dict.fromkeys([stage for stage, _ in enclosing_loops(stages, k)]):
        fixed = {uid: as_expr(turn(stages[j].vars[uid].length)) for uid in stages[j].leaf}
        values |= {(j, uid): int(value_at(e, {})) for uid, e in all_values(stages[j], fixed).items()}
    return [_number(region.min, values) for region in bounds.regions[k]]


def _number(low: Linear, values: Mapping[LoopKey, int]) -> int:
    total = int(low.const)
    for atom, c in low.terms.items():
        if isinstance(atom, DivAtom):
            base = _number(atom.base, values)
            total += int(c) * (base % atom.divisor if atom.mod else base // atom.divisor)
        elif c:
            total += int(c) * values[atom.stage, atom.uid]
    return total
