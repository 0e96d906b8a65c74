"""From recorded steps back to a row: the inverse of `concrete`, for thousands of log lines.

Steps are compared with those of a structure, numbers read off where the structure has none; only programs whose
parallel loops are inside others are made again to be sure.  Extents that a split notes are advisory and not compared.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from te_lite.errors import ScheduleError
from te_lite.state import State
from te_lite.step import Annotate, ComputeAt, ComputeInline, ComputeRoot, Fuse, Pragma, Split, Step

from ..core.hardware import HardwareParams
from ..core.options import SketchOptions
from ..core.target import Target
from .choices import Matrix, Space, Variant
from .locations import Place, place_of
from .parallel_loops import parallel_loops
from .programs import hole_columns
from .spaces import rfactor_positions, space_of
from .states import concrete, unroll_text
from .variants import Depths, has_nest, placed, structure

UNROLL = re.compile(r"auto_unroll_max_step\$[0-9]{1,9}")


def parse(
    sketches: Sequence[State],
    steps: Sequence[Step],
    target: Target | str,
    hardware: HardwareParams,
    options: SketchOptions | None = None,
) -> tuple[Variant, np.ndarray] | None:
    """The variant and row (int64 [width]) of which `concrete` makes `steps`, up to extents that splits note.

    None when no sketch has them: other rules made them, or a number is none of the values of its choice.
    """
    target = Target.of(target)
    hardware = hardware.completed(target)
    for sketch in sketches:
        if _begins(sketch.steps, steps):
            factors = tuple([(p, _lengths(steps[p])[0]) for p in rfactor_positions(sketch)])
            found = _parsed(space_of(sketch, target, hardware, options, factors), steps, target, hardware)
            if found is not None:
                return found
    return None


def _begins(pattern: Sequence[Step], steps: Sequence[Step]) -> bool:
    if len(steps) < len(pattern):
        return False
    return all(a == b or _same_split(a, b) for a, b in zip(pattern, steps, strict=False))


def _same_split(pattern: Step, step: Step) -> bool:
    """The same split up to its extent, and its lengths where the pattern has none."""
    if not (isinstance(pattern, Split) and isinstance(step, Split)):
        return False
    where = (pattern.stage, pattern.iter, pattern.inner_to_outer, len(pattern.lengths))
    same = where == (step.stage, step.iter, step.inner_to_outer, len(step.lengths))
    return same and all(a is None or a == b for a, b in zip(pattern.lengths, step.lengths, strict=True))


def _lengths(step: Step) -> tuple[int, ...]:
    assert isinstance(step, Split)
    return tuple([int(x) for x in step.lengths])  # type: ignore[arg-type]


def _parsed(
    space: Space, steps: Sequence[Step], target: Target, hardware: HardwareParams
) -> tuple[Variant, np.ndarray] | None:
    variant = _variant(space, steps)
    if variant is None:
        return None
    parallel, vectorize = ((), ()) if target.is_gpu else _marked(steps[len(space.sketch.steps) :])
    try:
        state = structure(variant, target, hardware, parallel, vectorize)
    except ScheduleError:
        return None
    if len(state.steps) != len(steps) or not _begins(state.steps, [_any_limit(step) for step in steps]):
        return None
    row = _row(space, state, steps, parallel, vectorize)
    if row is None or (
        _is_inside(placed(variant), parallel) and not _made_again(variant, row, steps, target, hardware)
    ):
        return None
    return variant, row


def _variant(space: Space, steps: Sequence[Step]) -> Variant | None:
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


def _marked(steps: Sequence[Step]) -> tuple[Depths, Depths]:
    """How many loops the steps run in parallel and make lanes of, for each stage."""
    parallel: dict[int, int] = {}
    vectorize: dict[int, int] = {}
    fused: dict[int, int] = {}
    for step in steps:
        match step:
            case Fuse(stage=k, iters=iters):
                fused[k] = len(iters)
            case Annotate(stage=k, iter=i, annotation="parallel"):
                parallel[k] = i + fused.pop(k, 1)
            case Annotate(stage=k, annotation="vectorize"):
                vectorize[k] = fused.pop(k, 1)
    return tuple(sorted(parallel.items())), tuple(sorted(vectorize.items()))


def _any_limit(step: Step) -> Step:
    """The step with an unroll limit of 0."""
    if isinstance(step, Pragma) and UNROLL.fullmatch(step.text):
        return Pragma(step.stage, step.iter, unroll_text(0))
    return step


def _row(space: Space, state: State, steps: Sequence[Step], parallel: Depths, vectorize: Depths) -> np.ndarray | None:
    """The numbers of steps that have this structure; None when one is none of its choice's values."""
    row: Matrix = np.zeros(space.width, np.int64)
    for position, columns in hole_columns(space, state).items():
        row[list(columns)] = _lengths(steps[position])
    limits = {step.stage: int(step.text.rpartition("$")[2]) for step in steps if isinstance(step, Pragma)}
    given = {"parallel": dict(parallel), "vectorize": dict(vectorize), "unroll": limits}
    for c in space.choices:
        if c.kind in given:
            row[c.column] = given[c.kind].get(c.stage, 0)
        if int(row[c.column]) not in c.values:
            return None
    return row


def _is_inside(state: State, parallel: Depths) -> bool:
    """Some parallel loops are inside others, which must then have extent 1."""
    for k, depth in parallel:
        attached = state.stages[k].attach is not None
        if attached or depth > len(parallel_loops(state, k)):
            return True
    return False


def _made_again(
    variant: Variant, row: np.ndarray, steps: Sequence[Step], target: Target, hardware: HardwareParams
) -> bool:
    again = concrete(variant, row, target, hardware).steps
    return len(again) == len(steps) and _begins(again, steps)
