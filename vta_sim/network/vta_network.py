"""A quantised, packed network that runs: kernels on the machine, the rest on the processor.

    graph = graph_pack(quantized["main"], env.BATCH, env.BLOCK_OUT, env.WGT_WIDTH, device_annot=True)
    network = VtaNetwork(graph, run_kernel=device.run, cpu=CompiledCpu("c"))
    probabilities = network.run({"data": image})

Whoever runs kernels is a function `(kernel, inputs) -> int8 array`; `vta_sim.graph.reference.run_kernel` is the one in
NumPy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np

import relay_lite as relay
from ansor.core.target.target import Target
from relay_lite.ir.errors import GraphError
from relay_lite.ir.module import IRModule, main_function
from relay_lite.ir.nodes import Array, Function
from relay_lite.ir.types import TensorType
from relay_lite.runtime.graph_executor import GraphModule
from te_lite.errors import require

from ..graph.machine_kernel import RunKernel
from ..graph.reference import run_kernel as numpy_kernel
from ..graph.split import NetworkPlan, Step, VtaStep, split

RunFunction: TypeAlias = Callable[[Function, Sequence[Array]], tuple[Array, ...]]
"""Runs a part of the processor on its inputs."""
RunSteps: TypeAlias = Callable[[Sequence[VtaStep], Mapping[int, Array]], Mapping[int, Array]]
"""Runs steps of the machine on the values that they read; gives the results of all, by number."""


def reference_cpu(function: Function, inputs: Sequence[Array]) -> tuple[Array, ...]:
    """Parts of the processor in NumPy."""
    out = relay.reference.run(function, list(inputs))
    return out if isinstance(out, tuple) else (out,)


class CompiledCpu:
    """Parts of the processor as compiled networks for `target`; each is compiled when it first runs, and kept.

    The programs are those of the dispatch context of that moment, as for `relay_lite.build`.
    """

    def __init__(self, target: Target | str = "c") -> None:
        self.target = Target.of(target)
        self._modules: dict[Function, GraphModule] = {}

    def __call__(self, function: Function, inputs: Sequence[Array]) -> tuple[Array, ...]:
        if function not in self._modules:
            self._modules[function] = GraphModule(relay.build(function, target=self.target)["default"]())
        module = self._modules[function]
        module.run(**{p.name: a for p, a in zip(function.params, inputs, strict=True)})
        return tuple([module.get_output(k).numpy().copy() for k in range(module.get_num_outputs())])


class VtaNetwork:
    """A network in parts; `plan` says which.  With `run_steps` those of the machine that follow each other are run by
    it, all at once."""

    def __init__(
        self, graph: IRModule | Function, run_kernel: RunKernel = numpy_kernel, cpu: RunFunction = reference_cpu
    ) -> None:
        """Raises GraphError for a network that cannot be divided, see `vta_sim.graph.split`."""
        self.plan: NetworkPlan = split(main_function(graph))
        self.run_kernel = run_kernel
        self.run_steps: RunSteps | None = None
        self.cpu = cpu

    def run(self, inputs: Mapping[str, Any]) -> Array:
        """The result for inputs by name.

        Raises GraphError for an input that is missing, unknown or of another shape or dtype, and when a part gives
        another shape or dtype than it promised.
        """
        values = dict(self.plan.constants)
        names = [v.name for v, _ in self.plan.inputs]
        law = f"the inputs are {', '.join(names)}"
        require(set(inputs) == set(names), GraphError, "VtaNetwork", law, got=sorted(inputs))
        for v, number in self.plan.inputs:
            values[number] = _checked(f"input {v.name}", np.asarray(inputs[v.name]), v.var_type)
        for _, steps in groupby(self.plan.steps, lambda step: isinstance(step, VtaStep)):
            self._run(list(steps), values)
        return values[self.plan.result]

    def _run(self, steps: Sequence[Step], values: dict[int, Array]) -> None:
        """Steps of one kind that follow each other."""
        machine = [step for step in steps if isinstance(step, VtaStep)]
        if machine and self.run_steps is not None:
            made = self.run_steps(machine, values)
            values.update({s.output: _checked(s.name, made[s.output], s.kernel.output) for s in machine})
            return
        for step in steps:
            given = [values[k] for k in step.inputs]
            if isinstance(step, VtaStep):
                values[step.output] = _checked(step.name, self.run_kernel(step.kernel, given), step.kernel.output)
            else:
                values.update(zip(step.outputs, self.cpu(step.function, given), strict=True))


def _checked(what: str, value: Array, promised: TensorType) -> Array:
    found = TensorType(tuple(value.shape), str(value.dtype))
    require(found == promised, GraphError, what, f"{promised} is needed", got=str(found))
    return value
