"""Kernels of a network as compiled programs on a device.

kernels = DeviceKernels(Device(config))
network = VtaNetwork(graph, run_kernel=kernels, cpu=CompiledCpu("c"))
network.run({"data": image})
kernels.launches                                     # (kernel, launch): counters and modelled times
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relay_lite.ir.nodes import Array

from ..compiler.module import Module, build
from ..graph.machine_kernel import MachineKernel
from ..graph.schedule import schedule_kernel
from ..sim import Device, Launch


class DeviceKernels:
    """Runs kernels on `device`.  Each is compiled when it first runs, with the configurations of the dispatch context
    of that moment, and kept.  `launches` says what has run since it was last cleared."""

    def __init__(self, device: Device | None = None) -> None:
        self.device = device or Device()
        self.launches: list[tuple[MachineKernel, Launch]] = []
        self._modules: dict[MachineKernel, Module] = {}

    def __call__(self, kernel: MachineKernel, inputs: Sequence[Array]) -> Array:
        """The output of a kernel.  Raises CompileError when no tiles fit the machine."""
        output = np.empty(kernel.output.shape, kernel.output.dtype)
        self.launches.append((kernel, self.module(kernel).launch(*inputs, output)))
        return output

    def module(self, kernel: MachineKernel) -> Module:
        """The compiled program of a kernel."""
        if kernel not in self._modules:
            self._modules[kernel] = build(*schedule_kernel(kernel, self.device.config), device=self.device)
        return self._modules[kernel]
