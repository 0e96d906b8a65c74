"""What a device supplies to run whole networks, by target kind: `c_network.py`, `cuda_network.py`.

A kernel is compiled alone (`code`, then `compile`), so that kernels can be compiled side by side; `link` then makes the
files of the network; `open` gives an executor: memory for the storages of a plan, and running its steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from te_lite.stmt import LoweredFunc

from ..ir.nodes import Array
from .compiled_network import CompiledNetwork, KernelCode
from .execution_plan import ExecutionPlan


class Executor(Protocol):
    """A network on a device.  Storages are numbers of the plan; only those outside the arena are named here."""

    def write(self, storage: int, array: Array) -> None:
        """Copy an array of the storage's shape and dtype into it."""

    def array(self, storage: int, shape: Sequence[int], dtype: str) -> Any:
        """The storage as an array object with `shape`, `dtype`, `numpy()`; it shows what later runs leave there."""

    def attach(self, storage: int, array: Any) -> None:
        """Use the memory of `array` from now on.  Raises GraphError when it is not on the device, or not aligned."""

    def run(self) -> None:
        """Queue one run of all steps; later reads wait for its end."""

    def synchronize(self) -> None:
        """Wait until all runs are done."""

    def seconds(self, number: int, first: int = 0, last: int | None = None) -> float:
        """The time of `number` runs of steps `first .. last - 1` in a row."""

    def flush(self, nbytes: int) -> None:
        """Overwrite `nbytes` bytes elsewhere, to empty caches."""


class NetworkBackend(Protocol):
    """A target kind for networks; `alignment` and `slack` are those of `make_plan`."""

    device_type: str
    alignment: int
    slack: int
    suffix: str

    def accept(self, func: LoweredFunc, target: str) -> None:
        """Raise the backend's error for a program that the target cannot run."""

    def code(self, func: LoweredFunc, target: str) -> KernelCode:
        """Source text.  Raises the backend's error for a program that has none."""

    def compile(self, code: KernelCode, target: str) -> bytes:
        """Machine code of one kernel; threads may compile side by side.  Raises the backend's error."""

    def link(self, plan: ExecutionPlan, compiled: Mapping[str, bytes]) -> tuple[dict[str, str], dict[str, bytes]]:
        """`(more sources, binaries)` by file name, from the machine code of the kernels by name."""

    def machine(self, target: str) -> dict[str, Any]:
        """What the binaries were made for, as JSON."""

    def check_machine(self, facts: Mapping[str, Any], index: int) -> None:
        """Raises GraphError when device `index` cannot run binaries made for `facts`."""

    def open(self, library: CompiledNetwork, index: int) -> Executor:
        """The network on device `index`, parameters in place."""
