"""Rows and steps: from a row to the steps of its program, and from recorded steps back to a row.

The way back is for thousands of log lines.  Steps are compared with those of a structure, numbers read off where the
structure has none; only programs whose steps rest on extents are made again to be sure.  Extents that a split notes are
advisory and not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.errors import ScheduleError
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.place_steps import ComputeAt, ComputeInline, ComputeRoot
from te_lite.schedule.replay import replay
from te_lite.schedule.state import SplitRel, State
from te_lite.schedule.step import Step

from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from ..core.values.options import SketchOptions
from .decisions.draw import Matrix, require_matrix
from .decisions.loops import rfactor_positions, split_positions
from .decisions.table import Decisions
from .locations import ComputeLocation, place_of
from .programs import Programs, Shape, Structure, program, structure
from .spaces import Space, Variant, has_nest, placed, space_of


def concrete(variant: Variant, row: np.ndarray, target: Target | str, hardware: HardwareParams) -> State:
    """The program of one row (int64 [width]): a state that is the replay of its steps.

    Raises TaskError for another shape or dtype.  Whether the numbers are points of the space is not looked at:
    `ansor.evolve.checked.require_rows` does.
    """
    return written(variant, row, target, hardware)[0]


def written(
    variant: Variant, row: np.ndarray, target: Target | str, hardware: HardwareParams
) -> tuple[State, Bounds | None]:
    """What `concrete` gives, and its bounds where they were needed to write its steps."""
    require_matrix("concrete: the row", row, (variant.space.width,))
    target = Target.of(target)
    hardware = hardware.completed(target)
    if any(d.shapes_steps for d in variant.space.decisions):
        one = program(variant, row, target, hardware)
        found = structure(variant, hardware, _shape(variant, one))
        late = _late(found, variant)
        return replay(found.state.dag, _noted(_steps(found, row.tolist()), one.bounds.state, late)), None
    found = structure(variant, hardware)
    late = _late(found, variant)
    state = replay(found.state.dag, _steps(found, row.tolist()))
    bounds = infer_bounds(state)
    return replace(state, steps=tuple(_noted(state.steps, bounds.state, late))), bounds


def _shape(variant: Variant, one: Programs) -> Shape:
    shaping = [d.name for d in variant.space.decisions if d.shapes_steps]
    return tuple([(name, tuple(sorted(one.of(name).items()))) for name in shaping])


def _steps(found: Structure, row: list[int]) -> list[Step]:
    """The steps with their numbers."""
    out = list(found.state.steps)
    for position, (decision, columns) in found.holes.items():
        out[position] = decision.write(out[position], tuple([row[c] for c in columns]))
    return out


def _late(found: Structure, variant: Variant) -> set[int]:
    """The positions of the steps with numbers that are not the sketch's."""
    return {position for position in found.holes if position >= len(variant.space.sketch.steps)}


def _noted(steps: Sequence[Step], bounded: State, late: Collection[int]) -> list[Step]:
    """The steps; those at the positions `late` that split loops note the extents of these."""
    known = _known_extents(bounded) if late else {}
    return [
        replace(step, extent=known[k]) if k in late and isinstance(step, Split) else step
        for k, step in enumerate(steps)
    ]


def _known_extents(bounded: State) -> dict[int, int]:
    """The extent of the loop that each split step splits, by the position of the step."""
    out = {}
    for k, stage in enumerate(bounded.stages):
        splits = [rel for rel in stage.relations if isinstance(rel, SplitRel)]
        for position, rel in zip(split_positions(bounded, k), splits, strict=True):
            extent = stage.vars[rel.parent].extent
            assert isinstance(extent, int)
            out[position] = extent
    return out


# -------------------------------------------------------------------------------------------------- from steps to a row


def parse(
    sketches: Sequence[State],
    steps: Sequence[Step],
    target: Target | str,
    hardware: HardwareParams,
    options: SketchOptions | None = None,
    decisions: Decisions | None = None,
) -> tuple[Variant, np.ndarray] | None:
    """The variant and row (int64 [width]) of which `concrete` makes `steps`, up to extents that splits note.

    None when no sketch has them: other rules made them, or a number is none of the values of its choice.
    """
    target = Target.of(target)
    hardware = hardware.completed(target)
    for sketch in sketches:
        if begins(sketch.steps, steps):
            factors = tuple([(p, _factor(steps[p])) for p in rfactor_positions(sketch)])
            space = space_of(sketch, target, hardware, options, factors, decisions)
            found = _parsed(space, steps, target, hardware)
            if found is not None:
                return found
    return None


def begins(pattern: Sequence[Step], steps: Sequence[Step]) -> bool:
    """Whether steps begin as a pattern does, up to the extents of splits and the lengths that it leaves open."""
    if len(steps) < len(pattern):
        return False
    return all(a == b or _same_split(a, b) for a, b in zip(pattern, steps, strict=False))


def _same_split(pattern: Step, step: Step) -> bool:
    """The same split up to its extent, and its lengths where the pattern has none."""
    if not (isinstance(pattern, Split) and isinstance(step, Split)):
        return False
    where = (pattern.stage, pattern.iter, pattern.inner_to_outer, len(pattern.lengths))
    same = where == (step.stage, step.iter, step.inner_to_outer, len(step.lengths))
    return same and all(b is not None and a in (None, b) for a, b in zip(pattern.lengths, step.lengths, strict=True))


def _factor(step: Step) -> int:
    assert isinstance(step, Split) and isinstance(step.lengths[0], int)
    return step.lengths[0]


def _parsed(
    space: Space, steps: Sequence[Step], target: Target, hardware: HardwareParams
) -> tuple[Variant, np.ndarray] | None:
    variant = variant_of(space, steps)
    if variant is None:
        return None
    shape = shape_of(space, steps)
    try:
        found = structure(variant, hardware, shape)
    except ScheduleError:
        return None
    row = _row(space, found, steps, shape) if len(found.state.steps) == len(steps) else None
    if row is None or (_rests_on_extents(variant, shape) and not _made_again(variant, row, steps, target, hardware)):
        return None
    return variant, row


def variant_of(space: Space, steps: Sequence[Step]) -> Variant | None:
    """The places that the steps behind the sketch's give its movable stages."""
    places = {k: place_of(space.sketch, k) for k in space.movable}
    for step in steps[len(space.sketch.steps) :]:
        match step:
            case ComputeInline(stage=k) if k in places:
                places[k] = ComputeLocation(k, "inline")
            case ComputeRoot(stage=k) if k in places:
                places[k] = ComputeLocation(k, "root")
            case ComputeAt(stage=k, target=t, target_iter=i) if k in places and i < len(space.sketch.stages[t].leaf):
                places[k] = ComputeLocation(k, "at", t, space.sketch.stages[t].leaf[i])
            case _:
                break
    variant = Variant(space, tuple(places.values()))
    return variant if not space.movable or has_nest(variant) else None


def shape_of(space: Space, steps: Sequence[Step]) -> Shape:
    """The numbers that the steps behind the sketch's say for the kinds that shape them."""
    behind = steps[len(space.sketch.steps) :]
    return tuple([(d.name, tuple(sorted(d.count(behind).items()))) for d in space.decisions if d.shapes_steps])


def _row(space: Space, found: Structure, steps: Sequence[Step], shape: Shape) -> np.ndarray | None:
    """The numbers of the steps; None when they have another structure, one is none of its choice's values, or tiles
    divide none of their extents.
    """
    row: Matrix = np.zeros(space.width, np.int64)
    pattern = list(found.state.steps)
    for position, (decision, columns) in found.holes.items():
        numbers = tuple([x for x in decision.read(steps[position]) or () if isinstance(x, int)])
        if len(numbers) != len(columns):
            return None
        pattern[position] = decision.write(pattern[position], numbers)
        row[list(columns)] = numbers
    if any(all(e % int(row[t.columns].prod()) for e in t.extents) for t in space.tiles):
        return None
    if not all(g.table.holds(row[None, g.columns]).all() for g in space.grids):
        return None
    given = {name: dict(numbers) for name, numbers in shape}
    for c in space.choices:
        if c.kind in given:
            row[c.column] = given[c.kind].get(c.stage, 0)
        if int(row[c.column]) not in c.values:
            return None
    return row if begins(pattern, steps) else None


def _rests_on_extents(variant: Variant, shape: Shape) -> bool:
    """Some numbers mean these steps for some extents only, as parallel loops that are inside others do."""
    shaped = {name: dict(numbers) for name, numbers in shape}
    state = placed(variant)
    return any(d.rests_on_extents(state, shaped[d.name]) for d in variant.space.decisions if d.name in shaped)


def _made_again(
    variant: Variant, row: np.ndarray, steps: Sequence[Step], target: Target, hardware: HardwareParams
) -> bool:
    again = concrete(variant, row, target, hardware).steps
    return len(again) == len(steps) and begins(again, steps)
