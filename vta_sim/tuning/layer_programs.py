"""One convolution of a network: its tensors, the tiles that it gets without a record, and its program."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from ansor.autotvm import FallbackContext
from ansor.autotvm.config import ConfigEntity
from ansor.autotvm.knob import OtherOptionEntity
from ansor.autotvm.split import SplitEntity
from ansor.autotvm.task import Task, deserialize_args
from te_lite import Tensor

from ..compiler import compile_schedule
from ..compiler.module import Module
from ..core.config import Config
from ..graph.machine_kernel import Workload
from ..graph.schedule import choose_knobs
from ..sim import Launch
from ..top import ConvKnobs, conv2d_packed, conv_shape, fused, requantized, schedule_conv2d_packed
from ..top.conv2d import TAG

TILES, THREADS = ("tile_b", "tile_h", "tile_w", "tile_ci", "tile_co"), ("oc_nthread", "h_nthread")


def layer_output(workload: Workload) -> tuple[list[Tensor], Tensor]:
    """Inputs and output of a workload of the template: the convolution, shifted and clipped."""
    _, data, kernel, *rest = workload
    x, w = deserialize_args((data, kernel))
    return [x, w], requantized(conv2d_packed(x, w, *rest))


def default_knobs(workload: Workload, config: Config) -> ConvKnobs:
    """The tiles that a workload gets without a record.  Raises CompileError when none fit."""
    quiet = FallbackContext()
    quiet.silent = True
    with quiet:
        return choose_knobs(workload, conv_shape(fused(layer_output(workload)[1], TAG)), config)


def default_config(task: Task, config: Config) -> ConfigEntity:
    """The default tiles as a configuration of a task.  Raises CompileError when none fit."""
    knobs = default_knobs(task.workload, config)
    values = asdict(knobs)
    tiles = {name: SplitEntity((-1, values[name])) for name in TILES}
    threads = {name: OtherOptionEntity(values[name]) for name in THREADS}
    space, chosen = task.config_space, {**tiles, **threads}
    return space.get(space.knob2point([knob.entities.index(chosen[name]) for name, knob in space.space_map.items()]))


def launch_layer(workload: Workload, knobs: ConvKnobs, config: Config) -> Launch:
    """The program of a workload for one configuration, played without data.  Raises CompileError when it is none."""
    inputs, output = layer_output(workload)
    program = compile_schedule(schedule_conv2d_packed(knobs, output, config), [*inputs, output], config)
    module = Module(program)
    module.device.moves_tensors = False
    arrays = [np.zeros(t.shape, t.dtype) for t in program.args]
    return module.launch(*arrays)
