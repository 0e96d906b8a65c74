"""Seconds of programs without running them: the entry of the analytical models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from te_lite.later import when_called

from ..core.target.hardware import HardwareParams
from ..space.programs import Programs
from ..space.trace import Replayer, Symbol
from .cpu import cpu_seconds
from .loop_nests import Nest, loop_nests
from .machine import CPU, GPU, Machine

Array = np.ndarray[Any, np.dtype[np.float64]]
gpu_seconds: Callable[[Sequence[Nest], GPU], Any] = when_called("ansor.analytical.gpu", "gpu_seconds")


def seconds(programs: Programs, machine: Machine) -> Array:
    """The estimated run time of each program, in seconds: float64 [programs.n], finite and positive.

    A roofline with occupancy and wave quantisation on GPUs, with cache levels on CPUs.  The estimate orders programs;
    its absolute value is good to about a factor of two.  For the rows of a variant that comes again it is replayed.
    """
    if not isinstance(machine, GPU | CPU):
        return machine.seconds(programs)
    replayed = _player(machine).replayed(programs, HardwareParams())
    if replayed is None:
        value = _estimate(programs, machine)
    else:
        value = replayed.lanes(slice(0, programs.n))[0] if replayed.meaning is None else replayed.meaning
    return np.array(np.broadcast_to(np.asarray(value, np.float64), (programs.n,)))


def _estimate(programs: Programs, machine: GPU | CPU) -> Any:
    """The seconds of the programs, a number where all take the same."""
    nests = loop_nests(programs)
    return gpu_seconds(nests, machine) if isinstance(machine, GPU) else cpu_seconds(nests, machine)


@lru_cache(maxsize=16)
def _player(machine: GPU | CPU) -> Replayer[float | None]:
    """The recordings for a machine; what they mean is the number of seconds where there are no lanes."""

    def lanes(programs: Programs, _: HardwareParams) -> tuple[list[Any], float | None]:
        value = _estimate(programs, machine)
        return ([value], None) if isinstance(value, Symbol) else ([], np.asarray(value).item())

    return Replayer(lanes)
