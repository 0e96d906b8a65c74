"""What another machine would make of a network: the best programs of its layers on a grid of configurations.

Every layer gets the program of the fewest cycles (`sketch/draft.py`), so a configuration takes seconds and nothing is
measured; the layers are the convolutions of ResNet-18, packed for the blocks of each machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch import generate_sketches
from ansor.space.programs import programs
from ansor.space.spaces import space_of
from ansor.space.variants import home
from te_lite import ComputeDAG, Tensor
from te_lite.errors import require

from ..core.config import Config
from ..core.errors import CompileError, ConfigError
from ..core.kinds import Memory
from ..sim import PYNQ, CycleModel
from ..sketch import VtaMachine
from ..top import conv2d_packed, requantized

Layer = tuple[int, int, int, int, int, int, int]
"""Rows, columns, channels in and out, kernel, padding, stride."""


@dataclass(frozen=True)
class Explored:
    """A machine, the bytes of its memories, and the cycles of all layers on it; `scale` multiplies its bandwidths."""

    config: Config
    scale: float
    memory: int
    cycles: float

    @property
    def name(self) -> str:
        return f"{self.config.bitstream} x{self.scale:g}"


def grid(base: Config, choices: Mapping[str, Sequence[int]]) -> Iterator[Config]:
    """All machines whose logarithms of sizes are changed by `choices` (field of Config: values); others are left out
    whose numbers do not fit together."""
    for values in product(*choices.values()):
        changed: dict[str, Any] = dict(zip(choices, values, strict=True))
        try:
            yield replace(base, **changed)
        except ConfigError:
            continue


def explore(
    layers: Mapping[Layer, int], configs: Iterable[Config], scales: Sequence[float] = (1.0,), model: CycleModel = PYNQ
) -> Iterator[Explored]:
    """Each machine with each bandwidth, in order; `layers` says how often each is run.

    Raises CompileError for a layer that a machine has no program of.
    """
    for config in configs:
        for scale in scales:
            scaled = replace(
                model, bandwidth=scale * model.bandwidth, wgt_bandwidth=scale * model.wgt_bandwidth,
                calibration=f"{model.calibration}, bandwidths times {scale:g}",
            )  # fmt: skip
            cycles = sum(runs * least_cycles(layer, config, scaled) for layer, runs in layers.items())
            yield Explored(config, scale, on_chip_bytes(config), cycles)


def on_chip_bytes(config: Config) -> int:
    """Bytes of the memories for micro-ops, inputs, weights and accumulators."""
    return sum(config.buffer_bytes(m) for m in (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC))


def least_cycles(layer: Layer, config: Config, model: CycleModel) -> float:
    """Cycles of the best program of a layer, the launch counted."""
    target = Target(config.target_text)
    machine, hardware = VtaMachine(config, model), HardwareParams(target=target)
    found = []
    for sketch in generate_sketches(ComputeDAG(tensors_of(layer, config)), target, hardware):
        variant = home(space_of(sketch, target, hardware))
        (parts,) = variant.space.grids
        found.append(float(machine.seconds(programs(variant, parts.table.points, target, hardware)).min()))
    require(found, CompileError, f"layer {layer}", "the machine has no program of it", machine=config.model)
    return min(found) * model.mhz * 1e6


def tensors_of(layer: Layer, config: Config) -> list[Tensor]:
    """A layer in the blocks of a machine, channels rounded up to whole ones: data, weights, output."""
    h, w, ci, co, k, pad, stride = layer
    n, block = config.batch, config.block_in
    blocks = [-(-channels // block) for channels in (ci, co)]
    data = te.placeholder((1, blocks[0], h, w, n, block), "int8", "data")
    kernel = te.placeholder((blocks[1], blocks[0], k, k, block, block), "int8", "kernel")
    layout = f"NCHW{n}n{block}c"
    return [data, kernel, requantized(conv2d_packed(data, kernel, (stride, stride), (pad, pad), (1, 1), layout))]


def pareto(found: Sequence[Explored]) -> list[Explored]:
    """Those that no other one beats in both memory and cycles of an image, the smallest first."""
    best, out = float("inf"), []
    for one in sorted(found, key=lambda e: (e.memory, per_image(e))):
        if per_image(one) < best:
            best = per_image(one)
            out.append(one)
    return out


def per_image(one: Explored) -> float:
    """Cycles of one image of a batch."""
    return one.cycles / one.config.batch
