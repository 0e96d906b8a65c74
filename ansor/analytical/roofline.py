"""Seconds of programs without running them: the entry of the analytical models."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..space.programs import Programs
from .cpu import cpu_seconds
from .gpu import gpu_seconds
from .loop_nests import loop_nests
from .machine import GPU, Machine

Array = np.ndarray[Any, np.dtype[np.float64]]


def seconds(programs: Programs, machine: Machine) -> Array:
    """The estimated run time of each program, in seconds: float64 [programs.n], finite and positive.

    A roofline with occupancy and wave quantisation on GPUs, with cache levels on CPUs.  The estimate orders programs;
    its absolute value is good to about a factor of two.
    """
    nests = loop_nests(programs)
    value = gpu_seconds(nests, machine) if isinstance(machine, GPU) else cpu_seconds(nests, machine)
    return np.array(np.broadcast_to(np.asarray(value, np.float64), (programs.n,)))
