"""From a row to the steps of its program: the structure of its variant, with the numbers of the row."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import replay
from te_lite.schedule.state import SplitRel, State
from te_lite.schedule.step import Step

from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from .choices import Variant
from .decisions.draw import require_matrix
from .decisions.splits import split_positions
from .programs import Programs, program
from .structures import Shape, Structure, structure


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
