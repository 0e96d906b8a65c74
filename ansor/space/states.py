"""From a row to the steps of its program: the structure of its variant, with the numbers of the row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from te_lite.replay import replay
from te_lite.state import SplitRel, State
from te_lite.step import Split, Step

from ..core.hardware import HardwareParams
from ..core.target import Target
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
    require_matrix("concrete: the row", row, (variant.space.width,))
    target = Target.of(target)
    hardware = hardware.completed(target)
    one = program(variant, row, target, hardware)
    found = structure(variant, hardware, _shape(variant, one))
    return replay(found.state.dag, _steps(found, len(variant.space.sketch.steps), row.tolist(), one))


def _shape(variant: Variant, one: Programs) -> Shape:
    shaping = [d.name for d in variant.space.decisions if d.shapes_steps]
    return tuple([(name, tuple(sorted(one.of(name).items()))) for name in shaping])


def _steps(found: Structure, of_sketch: int, row: list[int], one: Programs) -> list[Step]:
    """The steps with their numbers; splits that are not the sketch's note the extents of their loops."""
    known = _known_extents(one.bounds.state)
    out = list(found.state.steps)
    for position, (decision, columns) in found.holes.items():
        step = decision.write(out[position], tuple([row[c] for c in columns]))
        if isinstance(step, Split) and position >= of_sketch:
            step = replace(step, extent=known[position])
        out[position] = step
    return out


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
