"""Programs with a machine to run on: a schedule in, a function of arrays out.

module = build(schedule, [data, kernel, output])
module(data, kernel, output)                 arrays; the output is filled in
module.launch(data, kernel, output).timing().ms
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from te_lite import Schedule, State, Tensor
from te_lite.errors import require
from te_lite.loops.stmt import Buffer

from ..core.config import Config
from ..core.errors import QueueError
from ..runtime import CommandQueue
from ..sim import Device, Launch
from .program import Program, compile_schedule

Array = np.ndarray[Any, np.dtype[Any]]


class Module:
    """A program on a device, which holds buffers for its arguments."""

    def __init__(self, program: Program, device: Device | None = None) -> None:
        self.program = program
        self.device = device or Device(program.config)
        self._queue = CommandQueue(self.device)
        self._buffers = [self.device.dram.alloc(b.size * np.dtype(b.dtype).itemsize) for b in program.args]

    def __call__(self, *arrays: Array) -> None:
        """Run on arrays, one an argument, in order; the outputs are filled in.  As `launch`."""
        self.launch(*arrays)

    def launch(self, *arrays: Array, rng: np.random.Generator | None = None) -> Launch:
        """Run, and tell what ran; `rng` as in `Device.launch`.

        Raises QueueError for an array that does not fit its argument, MachineError for what the machine refuses.
        """
        args = self.program.args
        require(len(arrays) == len(args), QueueError, "module", f"{len(args)} arrays are needed", got=len(arrays))
        for array, arg, buffer in zip(arrays, args, self._buffers, strict=True):
            _check_argument(array, arg)
            buffer.write(array)
        self.program.emit(self._queue, self._buffers)
        launch = self._queue.synchronize(rng)
        for array, arg, buffer in zip(arrays, args, self._buffers, strict=True):
            if arg in self.program.outputs:
                array[...] = buffer.view(array.dtype, array.shape)
        return launch

    def launch_without_data(self) -> Launch:
        """Run, and tell what ran, with nothing moved or computed: counters and times are those of any arrays."""
        moves, self.device.moves_tensors = self.device.moves_tensors, False
        launch = self.launch(*[np.zeros(b.shape, b.dtype) for b in self.program.args])
        self.device.moves_tensors = moves
        return launch


def _check_argument(array: Array, arg: Buffer) -> None:
    fits = array.shape == arg.shape and array.dtype == arg.dtype
    law = f"must be {arg.dtype} {list(arg.shape)}"
    require(fits, QueueError, arg.name, law, dtype=str(array.dtype), shape=array.shape)


def build(
    schedule: Schedule | State, args: Sequence[Tensor], config: Config | None = None, device: Device | None = None
) -> Module:
    """Compile a schedule for the accelerator and load it.  Raises as `compile_schedule`."""
    return Module(compile_schedule(schedule, args, config or (device.config if device else None)), device)
