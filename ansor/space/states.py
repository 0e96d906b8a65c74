"""From a row to the steps of its program: the structure of its variant, with the numbers of the row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from te_lite.replay import replay
from te_lite.state import SplitRel, State
from te_lite.step import Pragma, Split, Step

from ..core.hardware import HardwareParams
from ..core.target import Target
from .choices import Space, Variant
from .programs import Programs, hole_columns, program
from .spaces import split_positions
from .variants import Depths, structure


def concrete(variant: Variant, row: np.ndarray, target: Target | str, hardware: HardwareParams) -> State:
    """The program of one row (int64 [width]): a state that is the replay of its steps."""
    target = Target.of(target)
    hardware = hardware.completed(target)
    one = program(variant, row, target, hardware)
    state = structure(variant, target, hardware, _depths(one.parallel), _depths(one.vectorize))
    return replay(state.dag, _steps(variant.space, state, row.tolist(), one))


def _depths(numbers: object) -> Depths:
    return tuple(sorted(dict(numbers).items()))  # type: ignore[call-overload]


def _steps(space: Space, state: State, row: list[int], one: Programs) -> list[Step]:
    columns = hole_columns(space, state)
    limits = {c.stage: row[c.column] for c in space.choices if c.kind == "unroll"}
    known = _known_extents(one.bounds.state)
    out: list[Step] = []
    for position, step in enumerate(state.steps):
        match step:
            case Split() if position in columns:
                lengths = tuple([row[c] for c in columns[position]])
                extent = step.extent if position < len(space.sketch.steps) else known[position]
                step = replace(step, lengths=lengths, extent=extent)
            case Pragma(stage=k):
                step = replace(step, text=unroll_text(limits[k]))
        out.append(step)
    return out


def unroll_text(limit: int) -> str:
    return f"auto_unroll_max_step${limit}"


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
