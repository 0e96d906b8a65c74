"""One convolution of a network: its tensors, the tiles that it gets without a record, and its program."""

from __future__ import annotations

from dataclasses import asdict

from ansor.autotvm import FallbackContext
from ansor.autotvm.config import ConfigEntity
from ansor.autotvm.knob import OtherOptionEntity
from ansor.autotvm.split import SplitEntity
from ansor.autotvm.task import Task, deserialize_args
from ansor.core.target.target import Target
from te_lite import ComputeDAG, Tensor
from te_lite.errors import require

from ..compiler.module import build
from ..core.config import Config
from ..core.errors import CompileError
from ..graph.machine_kernel import Workload
from ..graph.schedule import choose_knobs
from ..sim import Launch
from ..sketch.draft import draft
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
    return build(schedule_conv2d_packed(knobs, output, config), [*inputs, output], config).launch_without_data()


def launch_draft(workload: Workload, config: Config) -> Launch:
    """The program of a workload's sketches that takes the fewest cycles, played without data.  Raises CompileError
    when the machine has none."""
    inputs, output = layer_output(workload)
    tensors = [*inputs, output]
    state = draft(ComputeDAG(tensors), Target(f"vta -model={config.model}"))
    require(state is not None, CompileError, f"layer {workload}", "the machine has no program of it")
    assert state is not None
    return build(state, tensors, config).launch_without_data()
