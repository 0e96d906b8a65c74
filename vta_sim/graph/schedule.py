"""A kernel as a scheduled program, and the tiles that it gets where no record says better.

A convolution takes the configuration of its workload from the current dispatch context of templates.  That was tuned
with a shorter epilogue; where bias or residual do not fit beside its tiles, and where there is no record, the largest
tiles that fit are taken.  Kernels without a convolution have no knobs.

Programs of sketches go first: `with ApplyHistoryBest(log)` of `ansor.records` they are those of its records, `with
Drafts()` those of the fewest cycles.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from ansor.autotvm.dispatch import DispatchContext
from ansor.records.dispatch import DispatchContext as SketchPrograms
from te_lite import ComputeDAG, Schedule, State, Tensor, create_schedule
from te_lite.computation.tensor import ComputeOp
from te_lite.errors import require

from ..compiler.scopes import ACC
from ..core.config import Config
from ..core.errors import CompileError
from ..core.kinds import Memory
from ..top import ConvKnobs, ConvShape, broken_rule, conv_shape, fused, schedule_conv2d_packed
from ..top.conv2d import TAG
from ..top.tiled import tiled
from .machine_kernel import MachineKernel, Workload
from .tensors import kernel_tensors


def schedule_kernel(kernel: MachineKernel, config: Config) -> tuple[Schedule | State, list[Tensor]]:
    """The schedule of a kernel, and its tensors: inputs, then the output.

    That is the program of the kernel's sketches which the current context of records knows, else that of a template.
    Raises CompileError when no tiles fit the machine.
    """
    tensors = kernel_tensors(kernel)
    dag = ComputeDAG(tensors)
    known = SketchPrograms.current.query(config.target_text, dag.workload_key(), dag=dag)
    if known is not None:
        return known, tensors
    if kernel.workload is None:
        return _schedule_elementwise(tensors, config), tensors
    other = kernel.grouped or kernel.windows
    require(not other, CompileError, str(kernel), "groups and windows have no template, only sketches")
    shape = conv_shape(fused(tensors[-1], TAG))
    return schedule_conv2d_packed(choose_knobs(kernel.workload, shape, config), tensors[-1], config), tensors


def choose_knobs(workload: Workload, shape: ConvShape, config: Config) -> ConvKnobs:
    """The recorded configuration of a workload where it fits `shape`, else the default one.  Raises CompileError."""
    found = DispatchContext.current.query(config.target_text, workload)
    recorded = None if found is None or found.is_fallback else knobs_of(found)
    if recorded is not None and broken_rule(shape, recorded, config) is None:
        return recorded
    valid = (k for k in _by_size(shape) if broken_rule(shape, k, config) is None)
    knobs = next(valid, None)
    require(knobs is not None, CompileError, "conv2d_packed", "no tiles fit the machine", shape=shape)
    assert knobs is not None
    return knobs


def knobs_of(config: Any) -> ConvKnobs:
    """The knobs of a configuration of the template `conv2d_packed.vta`."""
    tiles = {name: config[name].size[-1] for name in ("tile_b", "tile_h", "tile_w", "tile_ci", "tile_co")}
    return ConvKnobs(**tiles, oc_nthread=config["oc_nthread"].val, h_nthread=config["h_nthread"].val)


def _by_size(shape: ConvShape) -> list[ConvKnobs]:
    """Tiles of one block of input channels: with two threads before one, then the largest first."""
    height, width = shape.out
    spans = itertools.product(_divisors(height), _divisors(width), _divisors(shape.co), ((2, 1), (1, 2), (1, 1)))
    tiles = [ConvKnobs(1, h, w, 1, c, *threads) for h, w, c, threads in spans]
    return sorted(tiles, key=lambda k: (-k.threads, -k.tile_h * k.tile_w * k.tile_co))


def _divisors(n: int) -> Iterator[int]:
    return (d for d in range(n, 0, -1) if n % d == 0)


def _schedule_elementwise(tensors: list[Tensor], config: Config) -> Schedule:
    """Rows of one block of channels at a time, two virtual threads where the blocks are even in number."""
    *inputs, output = tensors
    threads = 2 if output.shape[1] % 2 == 0 else 1
    rows = _rows(output, config.depth(Memory.ACC) // (threads * len(inputs)))
    s = create_schedule(output)
    stages = [op for op in (st.op for st in s.state.stages) if isinstance(op, ComputeOp) and op.key != output.op.key]
    inner = [op.output() for op in stages]
    for t in inner:
        s[t].set_scope(ACC)
    loads = [s.cache_read(t, ACC, [op for op in stages if t in op.input_tensors()]) for t in inputs]
    tile = tiled(s[output], {2: rows}, (0, 1, 2), {1: threads})
    for t in (*loads, *inner):
        s[t].compute_at(s[output], tile)
    return s


def _rows(output: Tensor, room: int) -> int:
    """How many rows of a block of channels to do at a time.  Raises CompileError when not even one fits."""
    height, width = output.shape[2:4]
    rows = next((d for d in _divisors(height) if d * width <= room), None)
    require(rows is not None, CompileError, "element-wise kernel", f"a row of {width} elements must fit {room}")
    assert rows is not None
    return rows
