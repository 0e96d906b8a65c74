"""A compiled network with open extents: kernels for all sizes, and for the sizes of a run a plan, made when they come.

    lib = relay_lite.build(mod, "c")                                # an input is (n, 128), n of 1 to 512
    module = graph_executor.GraphModule(lib["default"](ansor.device("c")))
    module.run(x=np.ones((77, 128), "float32"))                     # any n; what it is, the arrays say

The types of the fused graph say what every tensor needs at some sizes, so the plan, and with it where tensors lie in
the arena, is that of the graph of these numbers: exact for them, and kept for the last ones that were seen.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansor.core.device.nd import DeviceId
from ansor.core.target.target import Target
from te_lite.errors import require
from te_lite.expr.expr import SizeVar

from ..ir.at_sizes import AtSizes
from ..ir.errors import GraphError
from ..ir.extents import Sizes, value_of
from ..ir.nodes import Function
from ..ir.visit import sizes_in
from .assemble import GroupKernel, make_plan
from .devices import network_backend
from .library import NetworkLibrary, NetworkOnDevice
from .open_executor import OpenOnDevice, Unopened

DRIVER, BINARY = "network.c", "network.so"


@dataclass(frozen=True, eq=False)
class OpenCode:
    """What was compiled: `calls` says of each group how a plan calls its kernel, `networks` runs them."""

    networks: Any
    kernels: Sequence[Any]
    calls: Mapping[Function, GroupKernel]
    driver: str
    binary: bytes


@dataclass(frozen=True, eq=False, repr=False)
class OpenLibrary(NetworkLibrary):
    """A network for all sizes; `plan` is that of the greatest ones."""

    code: OpenCode = field(kw_only=True)

    @staticmethod
    def of(fused: Function, target: Target, code: OpenCode) -> OpenLibrary:
        """Raises GraphError for a size that is no extent of an input."""
        greatest = {v: v.range[1] for v in sizes_in(fused)}
        shown = {d for v in fused.params for d in v.shape if isinstance(d, SizeVar)}
        hidden = [v.name for v in greatest if v not in shown]
        law = "an input must have each open size as an extent by itself"
        require(not hidden, GraphError, "build", law, sizes=hidden)
        kernels = {k.code.name: k.code for k in code.kernels}
        backend = network_backend(target.kind.name)
        closed = AtSizes(greatest)
        plan, values = make_plan(closed.of(fused), lambda f: code.calls[closed.functions[f]], backend.alignment)
        return OpenLibrary(
            str(target), target.kind.name, plan, values, kernels, {DRIVER: code.driver}, {BINARY: code.binary},
            backend.machine(str(target)), fused, code=code,
        )  # fmt: skip

    @property
    def main(self) -> Function:
        """The fused graph."""
        assert self.graph is not None
        return self.graph

    @property
    def sizes(self) -> tuple[SizeVar, ...]:
        """The open sizes, in the order of the inputs."""
        return sizes_in(self.main)

    def at(self, sizes: Sizes) -> NetworkLibrary:
        """The network at some sizes: its plan and, once for all sizes, its parameters."""
        closed, calls = AtSizes(sizes), self.code.calls
        alignment = network_backend(self.kind).alignment
        plan, _ = make_plan(closed.of(self.main), lambda f: calls[closed.functions[f]], alignment)
        fields = (self.target, self.kind, plan, self.values, self.kernels, self.sources, self.binaries, self.machine)
        return NetworkLibrary(*fields, _held=self._held)

    def on(self, device: DeviceId | None = None) -> OpenOnDevice:
        """See `NetworkLibrary`; memory is had when sizes come."""
        backend = network_backend(self.kind)
        device = DeviceId(backend.device_type) if device is None else device
        law = f"was built for target {self.target!r}, which runs on {backend.device_type} devices"
        ok = isinstance(device, DeviceId) and device.device_type == backend.device_type
        require(ok, GraphError, "network", law, device=str(device))
        backend.check_machine(self.machine, device.device_id)
        return OpenOnDevice(self, Unopened(), device, main=self.main, made=lambda sizes: self._on(device, sizes))

    def _on(self, device: DeviceId, sizes: Sizes) -> NetworkOnDevice:
        """The network at some sizes, with memory of its own."""
        network, code = self.at(sizes), self.code
        known = {v: value_of(v, sizes) for kernel in code.kernels for v in kernel.sizes}
        return NetworkOnDevice(network, code.networks.open(code.binary, code.kernels, network, known), device)

    def export(self, path: str | os.PathLike[str]) -> None:
        """Raises GraphError: files hold networks of numbers."""
        raise GraphError(f"network: one with open extents is not exported, build it where it runs, got path={path!r}")

    export_library = export
