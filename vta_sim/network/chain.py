"""Kernels that follow each other as one program: launched once, with images that stay in the memory of the machine.

    chained = ChainedKernels(kernels)
    results = chained(steps, values)               arrays by number
    chained.launches

Between two kernels the stores of the first must have ended: store tells compute, and compute tells load.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relay_lite.ir.nodes import Array

from ..core.kinds import Module
from ..graph.split import VtaStep
from ..runtime import CommandQueue
from ..sim import Device, Launch
from ..sim.dram import Buffer
from .device_kernels import DeviceKernels


class ChainedKernels:
    """Runs steps of a network that need nothing of the processor in between, on the device of `kernels`.

    `launches` says what has run since it was last cleared.
    """

    def __init__(self, kernels: DeviceKernels) -> None:
        self.kernels = kernels
        self.launches: list[Launch] = []
        self._chains: dict[VtaStep, _Chain] = {}

    def __call__(self, steps: Sequence[VtaStep], values: Mapping[int, Array]) -> dict[int, Array]:
        """The results of all steps; `values` are those that the steps read.  Raises as `Module.launch`."""
        if steps[0] not in self._chains:
            self._chains[steps[0]] = _Chain(steps, self.kernels.device)
        chain = self._chains[steps[0]]
        self.launches.append(chain.run(self.kernels, values))
        return chain.results()


class _Chain:
    """A queue, and a buffer for each value."""

    def __init__(self, steps: Sequence[VtaStep], device: Device) -> None:
        self.steps = steps
        self._queue = CommandQueue(device)
        self._buffers: dict[int, Buffer] = {}
        for step in steps:
            for number, t in zip((*step.inputs, step.output), (*step.kernel.inputs, step.kernel.output), strict=True):
                if number not in self._buffers:
                    self._buffers[number] = device.dram.alloc(int(np.prod(t.shape)) * np.dtype(t.dtype).itemsize)

    def run(self, kernels: DeviceKernels, values: Mapping[int, Array]) -> Launch:
        made = {step.output for step in self.steps}
        for number, buffer in self._buffers.items():
            if number not in made:
                buffer.write(np.ascontiguousarray(values[number]))
        for k, step in enumerate(self.steps):
            if k:
                self._barrier()
            buffers = [self._buffers[number] for number in (*step.inputs, step.output)]
            kernels.module(step.kernel).program.emit(self._queue, buffers)
        return self._queue.synchronize()

    def results(self) -> dict[int, Array]:
        outputs = {step.output: step.kernel.output for step in self.steps}
        return {n: self._buffers[n].view(np.dtype(t.dtype), t.shape).copy() for n, t in outputs.items()}

    def _barrier(self) -> None:
        for source, target in ((Module.STORE, Module.COMPUTE), (Module.COMPUTE, Module.LOAD)):
            self._queue.dep_push(source, target)
            self._queue.dep_pop(source, target)
