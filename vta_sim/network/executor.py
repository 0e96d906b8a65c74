"""A network on the accelerator under the names of a graph executor.

    module = VtaModule(graph, config, cpu="c")
    module.set_input("data", image)
    module.run()
    out = module.get_output(0).numpy()
    print(module.time_evaluator("run", number=1, repeat=10)().mean)

Times are those of a board as it is modelled: seconds of the processor as measured here, and of the machine by the
cycle model.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ansor.core.device import nd
from ansor.core.target.target import Target
from relay_lite.ir.errors import GraphError
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Array, Function
from relay_lite.runtime.benchmark import TimeEvaluator
from te_lite.errors import require

from ..core.config import Config
from ..sim import PYNQ, CycleModel, Device
from .chain import ChainedKernels
from .device_kernels import DeviceKernels
from .vta_network import CompiledCpu, RunFunction, VtaNetwork


class VtaModule:
    """A packed network, ready to run; kernels are compiled at the first run, with the configurations of the dispatch
    context of that moment."""

    def __init__(
        self,
        graph: IRModule | Function,
        config: Config | None = None,
        cpu: Target | str = "c",
        model: CycleModel = PYNQ,
        chained: bool = False,
    ) -> None:
        """`cpu` is the target of the parts of the processor.  With `chained` kernels that follow each other are one
        launch.  Raises GraphError for a graph that cannot be divided."""
        self.kernels = DeviceKernels(Device(config))
        self.chains = ChainedKernels(self.kernels)
        self.network = VtaNetwork(graph, self.kernels, self._timed(CompiledCpu(cpu)))
        self.network.run_steps = self.chains if chained else None
        self.model = model
        self.cpu_seconds = 0.0
        self._inputs: dict[str, Array] = {}
        self._output: Array | None = None

    def set_input(self, key: str | None = None, value: Any = None, **inputs: Any) -> None:
        """Keep arrays for the inputs of these names.  Raises GraphError for a name that is no input."""
        given = inputs if key is None else {key: value, **inputs}
        names = [v.name for v, _ in self.network.plan.inputs]
        for name, array in given.items():
            require(name in names, GraphError, "VtaModule", f"the inputs are {', '.join(names)}", got=name)
            self._inputs[name] = np.asarray(array.numpy() if hasattr(array, "numpy") else array)

    def run(self, **inputs: Any) -> None:
        """Set `inputs` by name, if there are any, and run the network.  Raises GraphError when an input is missing."""
        self.set_input(**inputs)
        self.kernels.launches.clear()
        self.chains.launches.clear()
        self.cpu_seconds = 0.0
        self._output = self.network.run(self._inputs)

    def get_output(self, index: int = 0) -> Any:
        """The result of the last run.  Raises GraphError before it, and for another index than 0."""
        require(index == 0, GraphError, "VtaModule", "there is one output, number 0", got=index)
        require(self._output is not None, GraphError, "VtaModule", "there is no result before run()")
        return nd.array(self._output)

    def vta_seconds(self) -> float:
        """Modelled seconds of the machine in the last run."""
        launches = [*[launch for _, launch in self.kernels.launches], *self.chains.launches]
        return sum(launch.timing(self.model).ms for launch in launches) / 1e3

    def time_evaluator(
        self, func_name: str = "run", dev: Any = None, number: int = 10, repeat: int = 1
    ) -> TimeEvaluator:
        """A function without arguments that times `run`: `repeat` timings, each the mean of `number` runs.

        `dev` is not looked at.  Raises GraphError for another function.
        """
        require(func_name == "run", GraphError, "time_evaluator", "the function is 'run'", func_name=func_name)
        return TimeEvaluator(lambda n: sum(self._seconds() for _ in range(n)), number, repeat)

    def _seconds(self) -> float:
        self.run()
        return self.cpu_seconds + self.vta_seconds()

    def _timed(self, cpu: RunFunction) -> RunFunction:
        """Adds the seconds of every call to `cpu_seconds`."""

        def call(function: Function, inputs: Sequence[Array]) -> tuple[Array, ...]:
            start = time.perf_counter()
            out = cpu(function, inputs)
            self.cpu_seconds += time.perf_counter() - start
            return out

        return call
