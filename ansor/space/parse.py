"""From recorded steps back to a row: the inverse of `concrete`, for thousands of log lines.

Steps are compared with those of a structure, numbers read off where the structure has none; only programs whose
steps rest on extents are made again to be sure.  Extents that a split notes are advisory and not compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from te_lite.errors import ScheduleError
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.place_steps import ComputeAt, ComputeInline, ComputeRoot
from te_lite.schedule.state import State
from te_lite.schedule.step import Step

from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from ..core.values.options import SketchOptions
from .choices import Space, Variant
from .decisions.draw import Matrix
from .decisions.splits import rfactor_positions
from .decisions.table import Decisions
from .locations import Place, place_of
from .spaces import space_of
from .states import concrete
from .structures import Shape, Structure, structure
from .variants import has_nest, placed


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
                places[k] = Place(k, "inline")
            case ComputeRoot(stage=k) if k in places:
                places[k] = Place(k, "root")
            case ComputeAt(stage=k, target=t, target_iter=i) if k in places and i < len(space.sketch.stages[t].leaf):
                places[k] = Place(k, "at", t, space.sketch.stages[t].leaf[i])
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
