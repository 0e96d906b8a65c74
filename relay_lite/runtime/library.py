"""A compiled network: what `relay_lite.build` gives and `relay_lite.load` reads.

module = graph_executor.GraphModule(lib["default"](ansor.device("c")))
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansor.core.device.nd import DeviceId, NDArray, aligned_copy, cpu
from ansor.core.device.network_backend import Executor
from ansor.core.device.network_plan import ExecutionPlan, KernelCode
from ansor.core.device.read_plan import plan_from_json
from ansor.core.values.json_values import items, record, sizes, text
from te_lite.errors import TeError, require

from ..ir.errors import GraphError
from ..ir.module import IRModule
from ..ir.nodes import Array, Function
from .devices import network_backend, passes_over
from .files import NetworkFiles, read_folder, write_folder


@dataclass(frozen=True, eq=False, repr=False)
class NetworkLibrary:
    """ExecutionPlan, parameters, sources and machine code of a network.

    `target` is its text and `kind` the kind; `values` the parameters by name; `kernels` the source and launch facts of
    every kernel by name; `sources` and `binaries` further files; `machine` what the binaries were made for; `graph`
    the fused graph (None for a network that was loaded).  `lent` are addresses of parameters that are on the device
    already: programs that belong to somebody who has them there share them.
    """

    target: str
    kind: str
    plan: ExecutionPlan
    values: Mapping[str, Array]
    kernels: Mapping[str, KernelCode]
    sources: Mapping[str, str]
    binaries: Mapping[str, bytes]
    machine: Mapping[str, Any]
    graph: Function | None = None
    lent: Mapping[str, int] = field(default_factory=dict, repr=False)
    _held: dict[str, Array] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"NetworkLibrary(target={self.target!r}, kernels={len(self.kernels)}, parameters={len(self.values)})"

    def __getitem__(self, name: str) -> Callable[..., NetworkOnDevice]:
        """`lib["default"](device)` is the network on a device, ready to run.  Raises GraphError for other names."""
        require(name == "default", GraphError, "network", "its only module is 'default'", name=name)
        return self.on

    def on(self, device: DeviceId | None = None) -> NetworkOnDevice:
        """The network on a device: memory of its own, parameters in place.

        Raises GraphError when the device is of another kind than the target, or cannot run the binaries or the plan.
        """
        backend = network_backend(self.kind)
        device = DeviceId(backend.device_type) if device is None else device
        law = "a device is needed, such as ansor.device('c')"
        require(isinstance(device, DeviceId), GraphError, "network", law, got=device)
        ok = device.device_type == backend.device_type
        law = f"was built for target {self.target!r}, which runs on {backend.device_type} devices"
        require(ok, GraphError, "network", law, device=str(device))
        backend.check_machine(self.machine, device.device_id)
        guarded = [step.kernel for step in self.plan.steps if step.unless or (step.kernel and step.where)]
        law = f"executors of {self.kind!r} pass over no kernel"
        require(not guarded or passes_over(self.kind), GraphError, "network", law, kernels=guarded)
        return NetworkOnDevice(self, backend.open(self, device.device_id), device)

    def aligned_value(self, name: str) -> Array:
        """A parameter at an address that is a multiple of 64 bytes; executors on the processor share it."""
        if name not in self._held:
            made = aligned_copy(self.values[name])
            made.setflags(write=False)
            self._held[name] = made
        return self._held[name]

    @property
    def params(self) -> dict[str, NDArray]:
        """The parameters by name: the constants of the graph after all passes, p0, p1, ... in order of use."""
        return {name: NDArray(self.aligned_value(name), cpu()) for name in self.values}

    def get_params(self) -> dict[str, NDArray]:
        """`params`, under TVM's name."""
        return self.params

    @property
    def graph_json(self) -> str:
        """The plan as JSON text: kernels in order, tensors, storages."""
        return json.dumps(self.plan.to_json())

    def get_graph_json(self) -> str:
        """`graph_json`, under TVM's name."""
        return self.graph_json

    @property
    def ir_mod(self) -> IRModule | None:
        """The fused graph that was compiled; None for a network that was loaded."""
        return None if self.graph is None else IRModule({"main": self.graph})

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the network into a new or empty folder, to be read by `relay_lite.load`.

        The folder has sources, machine code, parameters and a manifest.  Raises GraphError when it is not empty, or
        cannot be written.
        """
        suffix = network_backend(self.kind).suffix
        facts = {
            "target": self.target, "kind": self.kind, "machine": dict(self.machine), "plan": self.plan.to_json(),
            "kernels": [{"name": k.name, "scratch": list(k.scratch), "facts": k.facts} for k in self.kernels.values()],
        }  # fmt: skip
        sources = {f"{name}{suffix}": kernel.source for name, kernel in self.kernels.items()}
        write_folder(path, NetworkFiles(facts, {**sources, **self.sources}, self.binaries, self.values))

    export_library = export


@dataclass(frozen=True, eq=False)
class NetworkOnDevice:
    """A network with its memory on a device; `GraphModule` gives it its methods.

    `given` are the names of the inputs that have a value.
    """

    library: NetworkLibrary
    executor: Executor
    device: DeviceId
    given: set[str] = field(default_factory=set)

    def runs_as(self, kind: type[Any]) -> type[Any]:
        """The class of its `GraphModule`, which is `kind` for most networks."""
        return kind


def load(path: str | os.PathLike[str]) -> NetworkLibrary:
    """The network that `NetworkLibrary.export` wrote into a folder.

    Machine code is run only when the network is put on a device; until then it is data.  Raises GraphError, in one
    sentence, for a folder that is no exported network or an incomplete one, and for another version.  That the
    machine fits is checked when the network is put on a device.
    """
    files = read_folder(path)
    subject = f"network {os.fspath(path)}"
    try:
        facts = record(files.facts, ("kind", "target", "machine", "kernels", "plan"), "its manifest")
        kind, target, machine = text(facts["kind"], "kind"), text(facts["target"], "target"), facts["machine"]
        suffix = network_backend(kind).suffix
        kernels = {k.name: k for k in [_kernel(k, files.sources, suffix) for k in items(facts["kernels"], "kernels")]}
        plan, machine = plan_from_json(facts["plan"]), record(machine, (), "machine")
    except TeError as error:
        raise GraphError(f"{subject}: {error}") from error
    unknown = sorted({step.kernel for step in plan.steps} - {"", *kernels})
    require(not unknown, GraphError, subject, "a step calls a kernel that is not there", kernels=unknown)
    for place in plan.params:
        value = files.arrays.get(place.name)
        fits = value is not None and value.shape == place.shape and str(value.dtype) == place.dtype
        require(fits, GraphError, subject, "a parameter is missing or has another shape", parameter=place.name)
    others = {name: source for name, source in files.sources.items() if name.removesuffix(suffix) not in kernels}
    return NetworkLibrary(target, kind, plan, files.arrays, kernels, others, files.binaries, machine)


def _kernel(data: Any, sources: Mapping[str, str], suffix: str) -> KernelCode:
    """A kernel of the manifest, with its source."""
    facts = record(data, ("name", "scratch", "facts"), "kernel")
    name = text(facts["name"], "kernel")
    require(f"{name}{suffix}" in sources, GraphError, f"kernel {name}", "its source is missing")
    return KernelCode(
        name, sources[f"{name}{suffix}"], sizes(facts["scratch"], "scratch"), record(facts["facts"], (), name)
    )
