"""Running a compiled network, under the names that TVM's users know.

module = graph_executor.GraphModule(lib["default"](dev))
module.set_input("data", data)
module.run()
out = module.get_output(0).numpy()
print(module.benchmark(dev, repeat=3, min_repeat_ms=500))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ansor.core.device.nd import DeviceId
from ansor.core.device.network_plan import TensorPlace
from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.module import host_array
from ..ir.nodes import Array
from ..ir.param_dict import load_param_dict
from .benchmark import BenchmarkResult, TimeEvaluator
from .library import NetworkOnDevice

METHODS = (
    "set_input", "run", "get_output", "get_input", "get_num_outputs", "get_num_inputs", "get_input_index",
    "get_input_info", "set_input_zero_copy", "set_output_zero_copy", "load_params", "benchmark", "time_evaluator",
)  # fmt: skip


class UnknownInput(GraphError, RuntimeError):
    """A name or number that is no input, parameter or output of the network."""


class WrongShape(GraphError, ValueError):
    """An array of another shape than the tensor it is for."""


class GraphModule:
    """A network on a device, `lib["default"](device)`.  Its inputs are those of the graph, then the parameters."""

    def __new__(cls, module: NetworkOnDevice) -> GraphModule:
        kind: type[GraphModule] = module.runs_as(cls) if isinstance(module, NetworkOnDevice) else cls
        return object.__new__(kind)

    def __init__(self, module: NetworkOnDevice) -> None:
        ok = isinstance(module, NetworkOnDevice)
        law = "is made from lib['default'](device)"
        require(ok, GraphError, "GraphModule", law, got=type(module).__name__)
        self.module = module
        self.plan = module.library.plan
        self._executor = module.executor
        self._inputs = {place.name: place for place in (*self.plan.inputs, *self.plan.params)}

    # ---------------------------------------------------------------------------------------------- inputs

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Copy an array into the input or parameter `key` (a name or number), and each of `params` by name.

        Values are NumPy arrays or array objects with `numpy()`; another dtype is converted.  Unknown names among
        `params` are passed over.  Raises UnknownInput (a RuntimeError) for an unknown `key` and WrongShape (a
        ValueError).
        """
        if key is not None:
            self._write(self._input(key), value)
        self._set_known(params)

    def _set_known(self, values: Mapping[str, Any]) -> None:
        """Largest first."""
        known = [(self._inputs[name], value) for name, value in values.items() if name in self._inputs]
        for place, value in sorted(known, key=lambda item: -item[0].nbytes):
            self._write(place, value)

    def get_input(self, index: str | int, out: Any = None) -> Any:
        """An input or parameter as it is now, or copied into `out`.  Raises UnknownInput.

        Who has an input may write to it, so it counts as set.
        """
        place = self._input(index)
        if out is None:
            self.module.given.add(place.name)
        return self._read(place, out)

    def get_num_inputs(self) -> int:
        """How many inputs there are, parameters included."""
        return len(self._inputs)

    def get_input_index(self, name: str) -> int:
        """The number of an input or parameter; -1 for an unknown name."""
        return list(self._inputs).index(name) if name in self._inputs else -1

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """The shapes and the dtypes of the inputs by name, without parameters."""
        inputs = self.plan.inputs
        return {p.name: p.shape for p in inputs}, {p.name: p.dtype for p in inputs}

    def set_input_zero_copy(self, key: str | int, value: Any) -> None:
        """Let the network read `value` itself from now on, an array on the device, aligned as the device needs it.

        Raises UnknownInput, WrongShape, or GraphError for another dtype, device or alignment.
        """
        place = self._input(key)
        self._attach(place, value)
        self.module.given.add(place.name)

    def load_params(self, data: bytes) -> None:
        """Copy parameters from the bytes of `relay_lite.save_param_dict`; unknown names are passed over."""
        self._set_known(load_param_dict(data))

    def _input(self, key: str | int) -> TensorPlace:
        places = list(self._inputs.values())
        if isinstance(key, int | np.integer) and 0 <= key < len(places):
            return places[int(key)]
        if key not in self._inputs:
            raise UnknownInput(f"Could not find '{key}' in graph's inputs")
        return self._inputs[str(key)]

    # ------------------------------------------------------------------------------------------------- run

    def run(self, /, **inputs: Any) -> None:
        """Set `inputs` by name, if there are any, and run the network.  On a GPU this does not wait for the end.

        Raises GraphError when an input was never set, naming those that are missing.
        """
        self._set_known(inputs)
        self._require_inputs()
        self._executor.run()

    def _require_inputs(self) -> None:
        missing = [place.name for place in self.plan.inputs if place.name not in self.module.given]
        law = f"inputs must be set before the network runs; missing: {', '.join(missing)}"
        require(not missing, GraphError, "GraphModule", law)

    def get_output(self, index: int, out: Any = None) -> Any:
        """Output number `index`, an array that the next run overwrites; or a copy in `out`.  Raises UnknownInput."""
        return self._read(self._output(index), out)

    def get_num_outputs(self) -> int:
        """How many outputs there are."""
        return len(self.plan.outputs)

    def set_output_zero_copy(self, index: int, value: Any) -> None:
        """Let the network write output `index` to `value` itself, see `set_input_zero_copy`.

        Raises GraphError also for an output that is an input, a constant, or another output at the same time.
        """
        place = self._output(index)
        shared = sum(other.storage == place.storage for other in self.plan.outputs) > 1
        ok = self.plan.storages[place.storage].kind == "output" and not shared
        law = "it must not be an input, a constant or another output as well; copy it with get_output"
        require(ok, GraphError, "zero copy", law, output=index)
        self._attach(place, value)

    def _output(self, index: int) -> TensorPlace:
        if not isinstance(index, int | np.integer) or not 0 <= index < len(self.plan.outputs):
            raise UnknownInput(f"graph output: there are {len(self.plan.outputs)} outputs, got index={index!r}")
        return self.plan.outputs[index]

    # ------------------------------------------------------------------------------------------------ time

    def time_evaluator(
        self, func_name: str = "run", dev: DeviceId | None = None, number: int = 10, repeat: int = 1,
        min_repeat_ms: float = 0, limit_zero_time_iterations: int = 100, cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1, cache_flush_bytes: int = 0, f_preproc: Callable[[], None] | None = None,
    ) -> TimeEvaluator:  # fmt: skip
        """A function without arguments that times `run`, see `TimeEvaluator`.

        `cache_flush_bytes` are overwritten before every attempt; `f_preproc` is called before every repeat.
        Raises GraphError for another function, or a device that is not that of the network; when it is called, also
        for inputs that were never set.
        """
        require(func_name == "run", GraphError, "time_evaluator", "the function is 'run'", func_name=func_name)
        self._check_device(dev)
        executor = self._executor

        def before() -> None:
            executor.flush(cache_flush_bytes)
            executor.synchronize()

        def seconds(number: int) -> float:
            self._require_inputs()
            return executor.seconds(number)

        return TimeEvaluator(
            seconds, number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms,
            repeats_to_cooldown, f_preproc, before if cache_flush_bytes else executor.synchronize,
        )  # fmt: skip

    def benchmark(
        self, device: DeviceId | None = None, func_name: str = "run", repeat: int = 5, number: int = 5,
        min_repeat_ms: float | None = None, limit_zero_time_iterations: int = 100, end_to_end: bool = False,
        cooldown_interval_ms: float = 0, repeats_to_cooldown: int = 1, **inputs: Any,
    ) -> BenchmarkResult:  # fmt: skip
        """Seconds per run: `repeat` figures, each the mean of at least `number` runs lasting `min_repeat_ms`.

        `inputs` are set once, before.  With `end_to_end` a run includes copying the inputs to the device and all
        outputs back (there is no cooling down then).  Raises as `time_evaluator` does.
        """
        least = 0 if min_repeat_ms is None else min_repeat_ms
        if end_to_end:
            self._check_device(device)
            seconds = self._end_to_end(inputs)
            return TimeEvaluator(seconds, number, repeat, least, limit_zero_time_iterations)()
        self._set_known(inputs)
        return self.time_evaluator(
            func_name, device, number, repeat, least, limit_zero_time_iterations, cooldown_interval_ms,
            repeats_to_cooldown,
        )()  # fmt: skip

    def _end_to_end(self, inputs: Mapping[str, Any]) -> Callable[[int], float]:
        def seconds(number: int) -> float:
            self._executor.synchronize()
            start = time.perf_counter()
            for _ in range(number):
                self.run(**inputs)
                for k in range(self.get_num_outputs()):
                    self.get_output(k).numpy()
            return time.perf_counter() - start

        return seconds

    def profile(self, number: int = 10) -> list[tuple[str, float]]:
        """The kernel of every step in order, and its seconds as the mean of `number` calls in a row.

        Raises GraphError when an input was never set.
        """
        self._require_inputs()
        seconds = self._executor.seconds
        kernels = [(step.kernel, k) for k, step in enumerate(self.plan.steps) if step.kernel]
        for _, k in kernels:
            seconds(1, k, k + 1)
        return [(name, seconds(number, k, k + 1) / number) for name, k in kernels]

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """A method by name, as TVM's modules have it.  Raises GraphError for another name."""
        require(name in METHODS, GraphError, "GraphModule", f"functions are {', '.join(METHODS)}", name=name)
        method: Callable[..., Any] = getattr(self, name)
        return method

    # --------------------------------------------------------------------------------------------- arrays

    def _write(self, place: TensorPlace, value: Any) -> None:
        self._executor.write(place.storage, _converted(place, value))
        self.module.given.add(place.name)

    def _read(self, place: TensorPlace, out: Any) -> Any:
        found = self._executor.array(place.storage, place.shape, place.dtype)
        if out is None:
            return found
        _check_shape(place, out.shape)
        if isinstance(out, np.ndarray):
            out[...] = found.numpy()
            return out
        return out.copyfrom(found.numpy())

    def _attach(self, place: TensorPlace, value: Any) -> None:
        _check_shape(place, value.shape)
        law = f"the dtype must be {place.dtype}"
        require(str(value.dtype) == place.dtype, GraphError, f"tensor {place.name}", law, got=str(value.dtype))
        self._executor.attach(place.storage, value)

    def _check_device(self, device: DeviceId | None) -> None:
        mine = self.module.device
        ok = device is None or device == mine
        require(ok, GraphError, "timing", f"the network is on {mine}", device=str(device))


def _converted(place: TensorPlace, value: Any) -> Array:
    array = host_array(value)
    _check_shape(place, array.shape)
    return array.astype(place.dtype, copy=False)


def _check_shape(place: TensorPlace, shape: Any) -> None:
    if tuple(shape) != place.shape:
        raise WrongShape(f"array shape do not match the shape of NDArray {tuple(shape)} vs {place.shape}")
