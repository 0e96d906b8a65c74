"""The machine that a target means, and how long its programs take: the draft model of the search."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ansor.core.hardware import HardwareParams
from ansor.core.target import Target
from ansor.space.choices import Variant
from ansor.space.decisions.parts import Grid
from ansor.space.programs import Programs, RowPrograms, programs

from ..core.config import Config, config_of_model
from ..sim import PYNQ, CycleModel
from .cycles import cycles
from .lane_nest import lane_nest

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class VtaMachine:
    """A machine as the analytical model asks it (`ansor.analytical.machine.EstimatesItself`)."""

    config: Config
    model: CycleModel = PYNQ

    @property
    def name(self) -> str:
        """As records call it."""
        return self.config.model

    @property
    def flops(self) -> float:
        """Operations per second at best: two for each product of numbers, a block of them each cycle."""
        return 2e6 * self.model.mhz * self.config.batch * self.config.block_in * self.config.block_out

    @property
    def dram(self) -> float:
        """Bytes per second at best."""
        return 1e6 * self.model.mhz * self.model.bandwidth

    def seconds(self, programs: Programs) -> Floats:
        """The time of each program, float64 [programs.n].  Those of a sketch are worked out once, all together."""
        grid = _grid(programs)
        if grid is None or not isinstance(programs, RowPrograms):
            found = cycles(lane_nest(programs.bounds), programs.n, self.config, self.model)
        else:
            origin = programs.origin
            rows = np.stack(origin.columns[grid.columns], axis=1)
            every = _all_cycles(origin.variant, origin.target, origin.hardware, self)
            found = every[grid.table.place(rows)]
        seconds: Floats = found / (self.model.mhz * 1e6)
        return seconds


def _grid(found: Programs) -> Grid | None:
    """The grid that all columns of rows are points of."""
    parts = found.origin.variant.space.parts if isinstance(found, RowPrograms) else ()
    return parts[0] if len(parts) == 1 and isinstance(parts[0], Grid) else None


@lru_cache(maxsize=128)
def _all_cycles(variant: Variant, target: Target, hardware: HardwareParams, machine: VtaMachine) -> Floats:
    """Cycles of all points of the grid of a sketch, float64 [points]."""
    (grid,) = variant.space.grids
    rows = grid.table.points
    bounds = programs(variant, rows, target, hardware).bounds
    return cycles(lane_nest(bounds), len(rows), machine.config, machine.model)


@lru_cache(maxsize=64)
def config_of(target: Target) -> Config:
    """The configuration that `-model` of a target names; the default one without it.  Raises ConfigError."""
    named = target.attrs.get("model", "")
    return config_of_model(named) if named else Config()


def machine_of(target: Target) -> VtaMachine:
    """The machine of a target."""
    return VtaMachine(config_of(target))
