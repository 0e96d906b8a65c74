"""Running a network with open extents: what the sizes are, the arrays that it is given say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ansor.core.device.nd import DeviceId, NDArray, cpu
from te_lite.errors import require
from te_lite.expr.expr import SizeVar

from ..ir.errors import GraphError
from ..ir.extents import is_computed, is_open, value_of
from ..ir.module import host_array
from ..ir.nodes import Array, Function
from ..ir.types import TensorType, fields_of
from .benchmark import BenchmarkResult, TimeEvaluator
from .graph_executor import GraphModule, UnknownInput, WrongShape
from .library import NetworkOnDevice

MOST_KEPT = 8
"""Sizes for which a network on a device keeps its plan and its memory."""


class Unopened:
    """In place of the executor of a network whose sizes are not known yet."""

    def __getattr__(self, name: str) -> Any:
        raise GraphError("network: one with open extents has an executor for the sizes of a run, use GraphModule")


@dataclass(frozen=True, eq=False)
class OpenOnDevice(NetworkOnDevice):
    """A network for all sizes on a device: `main` is its graph, `made` gives it at some sizes."""

    main: Function = field(kw_only=True)
    made: Callable[[Mapping[SizeVar, int]], NetworkOnDevice] = field(kw_only=True)
    kept: dict[tuple[int, ...], NetworkOnDevice] = field(default_factory=dict)

    def runs_as(self, kind: type[Any]) -> type[Any]:
        """See `NetworkOnDevice`."""
        return OpenGraphModule

    def at(self, sizes: Mapping[SizeVar, int]) -> NetworkOnDevice:
        """The network at some sizes, with memory of its own; the last ones are kept."""
        key = tuple(sizes.values())
        found = self.kept.pop(key, None) or self.made(sizes)
        if len(self.kept) == MOST_KEPT:
            self.kept.pop(next(iter(self.kept)))
        self.kept[key] = found
        return found


class OpenGraphModule(GraphModule):
    """As `GraphModule`, for arrays of all sizes within the bounds; its inputs are those of the graph alone."""

    module: OpenOnDevice

    def __init__(self, module: OpenOnDevice) -> None:
        self.module = module
        self.plan = module.library.plan
        self._types: dict[str, TensorType] = {v.name: v.var_type for v in module.main.params}
        self._given: dict[str, Array] = {}
        self._now: GraphModule | None = None

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Keep an array for the input `key`, a name or number, and each of `params` by name; see `GraphModule`."""
        if key is not None:
            self._set(self._name(key), value)
        self._set_known(params)

    def _set_known(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if name in self._types:
                self._set(name, value)

    def _set(self, name: str, value: Any) -> None:
        kind = self._types[name]
        array = np.array(host_array(value), kind.dtype, order="C")
        fits = array.ndim == len(kind.shape)
        fits = fits and all(isinstance(d, SizeVar) or d == n for d, n in zip(kind.shape, array.shape, strict=True))
        if not fits:
            raise WrongShape(f"input {name}: its shape must be {kind.shape}, got {array.shape}")
        self._given[name] = array

    def _name(self, key: str | int) -> str:
        names = list(self._types)
        if isinstance(key, int | np.integer) and 0 <= key < len(names):
            return names[int(key)]
        if key not in self._types:
            raise UnknownInput(f"Could not find '{key}' in graph's inputs")
        return str(key)

    def get_input(self, index: str | int, out: Any = None) -> Any:
        """An input as it was given, or copied into `out`.  Raises UnknownInput, GraphError for one that was not."""
        name = self._name(index)
        require(name in self._given, GraphError, f"input {name}", "it was not set")
        if out is None:
            return NDArray(self._given[name], cpu())
        out[...] = self._given[name]
        return out

    def get_num_inputs(self) -> int:
        """How many inputs there are."""
        return len(self._types)

    def get_input_index(self, name: str) -> int:
        """The number of an input; -1 for an unknown name."""
        return list(self._types).index(name) if name in self._types else -1

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """The shapes, in which open extents are sizes, and the dtypes of the inputs by name."""
        return {n: t.shape for n, t in self._types.items()}, {n: t.dtype for n, t in self._types.items()}

    def set_input_zero_copy(self, key: str | int, value: Any) -> None:
        """Raises GraphError: memory is had for the sizes of a run."""
        raise GraphError("zero copy: a network with open extents copies its inputs, use set_input")

    def set_output_zero_copy(self, index: int, value: Any) -> None:
        """Raises GraphError: memory is had for the sizes of a run."""
        raise GraphError("zero copy: a network with open extents has its outputs itself, use get_output")

    # ---------------------------------------------------------------------------------------------- sizes

    def sizes(self) -> dict[SizeVar, int]:
        """The sizes that the inputs have.  Raises GraphError for inputs that are missing or do not fit together."""
        missing = [name for name in self._types if name not in self._given]
        law = f"inputs must be set before the network runs; missing: {', '.join(missing)}"
        require(not missing, GraphError, "GraphModule", law)
        found: dict[SizeVar, int] = {}
        for name, d, n in self._extents():
            if not is_computed(d):
                law = f"{d.name} must be {d.range[0]} to {d.range[1]}, the same in all inputs"
                fits = found.setdefault(d, n) == n and d.range[0] <= n <= d.range[1]
                require(fits, GraphError, f"input {name}{_text(self._types[name])}", law, got=n)
        for name, d, n in self._extents():
            wanted = value_of(d, found)
            require(n == wanted, GraphError, f"input {name}{_text(self._types[name])}", f"{d} must be {wanted}", got=n)
        return found

    def _extents(self) -> list[tuple[str, SizeVar, int]]:
        """The open extents of all inputs, with the numbers that they have."""
        pairs: list[tuple[str, Any, int]] = [
            (k, d, n) for k, t in self._types.items() for d, n in zip(t.shape, self._given[k].shape, strict=True)
        ]
        return [(k, d, n) for k, d, n in pairs if is_open(d)]

    def _ready(self) -> GraphModule:
        """The network at the sizes of the inputs, which it has."""
        self._now = GraphModule(self.module.at(self.sizes()))
        for name, array in self._given.items():
            self._now.set_input(name, array)
        return self._now

    # ------------------------------------------------------------------------------------------------- run

    def run(self, /, **inputs: Any) -> None:
        """Set `inputs` by name, if there are any, and run the network at their sizes.

        Raises GraphError when an input was never set, and for sizes out of their bounds.
        """
        self._set_known(inputs)
        self._ready().run()

    def get_output(self, index: int, out: Any = None) -> Any:
        """Output number `index` of the last run; see `GraphModule`.  Raises GraphError before the first run."""
        require(self._now is not None, GraphError, "GraphModule", "the network has not run, so its sizes are not known")
        assert self._now is not None
        return self._now.get_output(index, out)

    def get_num_outputs(self) -> int:
        """How many outputs there are."""
        return len(fields_of(self.module.main.body.type))

    # ------------------------------------------------------------------------------------------------ time

    def time_evaluator(
        self, func_name: str = "run", dev: DeviceId | None = None, *args: Any, **named: Any
    ) -> TimeEvaluator:
        """See `GraphModule`; at the sizes of the inputs that are set."""
        return self._ready().time_evaluator(func_name, dev, *args, **named)

    def benchmark(self, device: DeviceId | None = None, *args: Any, **named: Any) -> BenchmarkResult:
        """See `GraphModule`; at the sizes of the inputs that are set or given."""
        self._set_known(named)
        return self._ready().benchmark(device, *args, **named)

    def profile(self, number: int = 10) -> list[tuple[str, float]]:
        """See `GraphModule`."""
        return self._ready().profile(number)


def _text(kind: TensorType) -> str:
    return f"[{', '.join(map(str, kind.shape))}]"
