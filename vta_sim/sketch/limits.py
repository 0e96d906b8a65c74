"""Constraints of the machine: tiles in scratchpads, copies in instructions, kernels in micro-ops.

What the compiler would refuse is known here from the extents of loops, for many programs at once, so it is never drawn.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from te_lite.expr.lanes import product
from te_lite.schedule.loop_value import root_axes
from te_lite.schedule.state import SplitRel, Stage

from ..compiler.scopes import ACC, MEMORY_OF
from ..core.config import Config
from ..core.kinds import Memory
from .lane_kernel import lane_kernel
from .lane_nest import Kind, LaneNest, kind_of
from .lane_transfer import ELEMENT, lane_transfer

COPIES = (Kind.LOAD, Kind.STORE)


def fits(nest: LaneNest, config: Config) -> Any:
    """Which lanes are programs: bools."""
    ok: Any = _divides(nest)
    for memory, needed in tiles(nest).items():
        ok = ok & (needed * nest.threads <= config.depth(memory))
    for piece in nest.pieces:
        copies = piece.kind in COPIES
        part = lane_transfer(nest.bounds, piece) if copies else lane_kernel(nest.bounds, piece, config)
        ok = ok & part.fits
    return ok


def tiles(nest: LaneNest) -> dict[Memory, Any]:
    """Elements of one thread's tiles in each memory; an element-wise result takes the place of an operand."""
    state = nest.bounds.state
    out: dict[Memory, Any] = {memory: np.int64(0) for memory in MEMORY_OF.values()}
    for k, stage in enumerate(state.stages):
        if stage.op.scope in MEMORY_OF and not (stage.op.scope == ACC and kind_of(state, k) is Kind.ALU):
            extents = [r.extent for r in nest.bounds.regions[k][: len(stage.op.axis) - ELEMENT]]
            out[MEMORY_OF[stage.op.scope]] += product(extents)
    return out


def _divides(nest: LaneNest) -> Any:
    """Whether every split divides its loop: no instruction has a condition.

    Bounds give sums room for whole tiles, which shows where they are longer than the tile of the output.
    """
    ok: Any = np.bool_(True)
    for k, stage in enumerate(nest.bounds.state.stages):
        for rel in stage.relations:
            if isinstance(rel, SplitRel):
                ok = ok & (np.asarray(stage.vars[rel.parent].extent) % product(rel.lengths) == 0)
        if stage.op.reduce_axis and stage.attach is not None:
            for axis, length in enumerate(_tile(nest.bounds.state.stages[stage.attach.stage], stage.attach.iter)):
                ok = ok & (nest.bounds.regions[k][axis].extent == length)
    return ok


def _tile(root: Stage, at: int) -> list[Any]:
    """How long the loops inside loop `at` of a stage run, axis by axis."""
    inside = root.iters[root.position(at) + 1 :]
    return [
        product([it.extent for it in inside if axis in root_axes(root, it.uid)]) for axis in range(len(root.op.axis))
    ]
