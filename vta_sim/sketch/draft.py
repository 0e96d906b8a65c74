"""Programs that nobody measured: those that take the fewest cycles of all that the sketches of a computation have.

Cycles of the lanes are near those of the simulator, so this is a good program already.  A `Drafts` is a context: what
records do not know it answers for target `vta`.
"""

from __future__ import annotations

import numpy as np

from ansor.core.hardware import HardwareParams
from ansor.core.target import Target
from ansor.records.dispatch import DispatchContext
from ansor.sketch import generate_sketches
from ansor.space.programs import programs
from ansor.space.spaces import space_of
from ansor.space.states import concrete
from ansor.space.variants import home
from te_lite import ComputeDAG, State
from te_lite.replay import replay

from .machine import machine_of


def draft(dag: ComputeDAG, target: Target) -> State | None:
    """The program of the fewest cycles; None where the machine has no sketch of the computation."""
    hardware, machine = HardwareParams(target=target), machine_of(target)
    best: tuple[float, State] | None = None
    for sketch in generate_sketches(dag, target, hardware):
        variant = home(space_of(sketch, target, hardware))
        (grid,) = variant.space.grids
        seconds = machine.seconds(programs(variant, grid.table.points, target, hardware))
        k = int(np.argmin(seconds))
        if best is None or seconds[k] < best[0]:
            best = float(seconds[k]), concrete(variant, grid.table.points[k], target, hardware)
    return None if best is None else best[1]


class Drafts(DispatchContext):
    """Answers with `draft`, which is made once for a computation; nothing for other targets."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], State | None] = {}

    def _query_inside(self, target: Target, workload_key: str, dag: ComputeDAG | None) -> State | None:
        if target.kind.name != "vta" or dag is None:
            return None
        key = str(target), workload_key
        if key not in self._made:
            self._made[key] = draft(dag, target)
        made = self._made[key]
        return None if made is None else replay(dag, made.steps)
