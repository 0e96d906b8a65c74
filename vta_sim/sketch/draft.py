"""Programs that nobody measured: those that take the fewest cycles of all that the sketches of a computation have.

Cycles of the lanes are near those of the simulator, so this is a good program already.  A `Drafts` is a context: what
records do not know it answers for target `vta`.
"""

from __future__ import annotations

import numpy as np

from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.records.dispatch import DispatchContext
from ansor.sketch import generate_sketches
from ansor.space.programs import programs
from ansor.space.spaces import home, space_of
from ansor.space.states import concrete
from te_lite import ComputeDAG, State
from te_lite.schedule.replay import replay

from .lane_nest import lane_nest
from .machine import machine_of
from .tiles import MOST_THREADS


def draft(dag: ComputeDAG, target: Target, threads: int = MOST_THREADS) -> State | None:
    """The program of the fewest cycles with at most so many virtual threads; None where the machine has none."""
    hardware, machine = HardwareParams(target=target), machine_of(target)
    best: tuple[float, State] | None = None
    for sketch in generate_sketches(dag, target, hardware):
        variant = home(space_of(sketch, target, hardware))
        (grid,) = variant.space.grids
        every = programs(variant, grid.table.points, target, hardware)
        few = np.broadcast_to(np.less_equal(lane_nest(every.bounds).threads, threads), (every.n,))
        seconds = np.where(few, machine.seconds(every), np.inf)
        k = int(np.argmin(seconds))
        if seconds[k] < (np.inf if best is None else best[0]):
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
