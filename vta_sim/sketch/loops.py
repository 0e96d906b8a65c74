"""Loop transformations of the rules: splits of undecided lengths, tiles, loops of the host."""

from __future__ import annotations

from collections.abc import Sequence

from te_lite import Schedule
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.schedule import Loop, StageHandle
from te_lite.schedule.step import Length

PLANE = -4
"""The last axes of packed tensors are rows, columns, and the two of an element."""


def split(s: Schedule, stage: StageHandle, axis: Loop, lengths: tuple[Length, ...]) -> list[Loop]:
    """Split a loop, the rest outermost; None is an undecided length."""
    position, extent = stage.position(axis), stage.stage.vars[axis.uid].extent
    s.apply(Split(stage.id, position, extent if isinstance(extent, int) else 0, lengths))
    return list(stage.leaf_iter_vars[position : position + len(lengths) + 1])


def unroll_for_host(load: StageHandle) -> None:
    """Let the host run the loops of a load that are neither rows nor columns, where one instruction cannot."""
    for axis, loop in zip(load.op.axis[:PLANE], load.leaf_iter_vars, strict=False):
        if axis.length > 1:
            load.unroll(loop)


def tile_axes(s: Schedule, output: StageHandle, axes: Sequence[int], threaded: Sequence[int]) -> dict[int, list[Loop]]:
    """Cut `axes` into tiles, those `threaded` among virtual threads, too: (outer, [thread,] inner) of each."""
    loops = list(output.leaf_iter_vars)
    made = {a: split(s, output, loops[a], (None, None) if a in threaded else (None,)) for a in axes}
    for a in axes:
        if a < len(output.op.axis) + PLANE:
            output.unroll(made[a][-1])
    return made
