"""Where layers stand below the roof of a machine, with latencies hidden behind work and not, as VTA's paper plots it.

A layer cannot be faster than the products allow, nor than memory allows by the operations done for each byte.  Virtual
threads bring it nearer to both: while one waits for its loads another one multiplies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ansor.core.target.target import Target
from te_lite import ComputeDAG, State, Tensor
from te_lite.errors import require

from ..compiler import compile_schedule
from ..compiler.module import Module
from ..core.config import Config
from ..core.errors import CompileError
from ..core.kinds import Memory
from ..sim import PYNQ, CycleModel
from ..sim.profiler import dram_bytes
from ..sketch.draft import draft
from ..sketch.tiles import MOST_THREADS
from .explore import Layer, tensors_of


@dataclass(frozen=True)
class Played:
    """The fastest program of a layer: operations for each byte of DRAM that it moves, and 10^9 operations a second."""

    intensity: float
    gops: float


@dataclass(frozen=True)
class Roof:
    """A machine: 10^9 operations a second at most, and 10^9 bytes."""

    gops: float
    bandwidth: float

    def at(self, intensity: float) -> float:
        """The most operations a second with so many of them for each byte."""
        return min(self.gops, intensity * self.bandwidth)


def roof_of(config: Config, model: CycleModel = PYNQ) -> Roof:
    """The roof of a machine; loads of weights are slower than its bandwidth, so its slope is an upper bound."""
    clock = model.mhz / 1e3
    return Roof(2 * clock * config.batch * config.block_in * config.block_out, clock * model.bandwidth)


def played(layer: Layer, config: Config, threads: int = MOST_THREADS, model: CycleModel = PYNQ) -> Played:
    """The program of a layer that takes the fewest cycles with at most so many virtual threads.

    Raises CompileError for a layer that the machine has no program of.
    """
    tensors = tensors_of(layer, config)
    state = draft(ComputeDAG(tensors), Target(f"vta -model={config.model}"), threads)
    require(state is not None, CompileError, f"layer {layer}", "the machine has no program of it", machine=config.model)
    assert state is not None
    return _played(state, tensors, config, model)


def _played(state: State, tensors: list[Tensor], config: Config, model: CycleModel) -> Played:
    module = Module(compile_schedule(state, tensors, config))
    module.device.moves_tensors = False
    launch = module.launch(*[np.zeros(t.shape, t.dtype) for t in tensors])
    moved = launch.columns.mem["memory"] != Memory.UOP
    nbytes = float(dram_bytes(launch.columns)[launch.columns.is_mem & moved].sum())
    _, ci, kh, kw, _, block = tensors[1].shape
    flop = 2.0 * math.prod(tensors[-1].shape) * ci * kh * kw * block
    return Played(flop / nbytes, flop / launch.timing(model).ms / 1e6)
