"""The machine that a target means, and how long its programs take: the draft model of the search."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ansor.core.target.target import Target
from ansor.space.programs import Programs

from ..core.config import Config, config_of_model
from ..sim import PYNQ, CycleModel
from .cycles import cycles
from .lane_nest import lane_nest
from .whole_grid import of_rows

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
        return of_rows(programs, _Seconds(self.config, self.model))


@dataclass(frozen=True)
class _Seconds:
    """The time of each program; equal for equal machines, so that it is worked out once."""

    config: Config
    model: CycleModel

    def __call__(self, programs: Programs) -> Floats:
        found = cycles(lane_nest(programs.bounds), programs.n, self.config, self.model)
        seconds: Floats = found / (self.model.mhz * 1e6)
        return seconds


@lru_cache(maxsize=64)
def config_of(target: Target) -> Config:
    """The configuration that `-model` of a target names; the default one without it.  Raises ConfigError."""
    named = target.attrs.get("model", "")
    return config_of_model(named) if named else Config()


def machine_of(target: Target) -> VtaMachine:
    """The machine of a target."""
    return VtaMachine(config_of(target))
