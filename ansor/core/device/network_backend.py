"""What a backend supplies to compile and run whole networks (`Backend.networks`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from te_lite.loops.stmt import LoweredFunc

from ..files.kernel_store import KernelStore
from ..values.recurrence import Recurrence
from .network_plan import ExecutionPlan, KernelCode

Array = np.ndarray[Any, np.dtype[Any]]


class CompiledNetwork(Protocol):
    """A network as an executor sees it: its plan, machine code by file name, kernels and parameters by name."""

    @property
    def plan(self) -> ExecutionPlan:
        """What runs in which order, and where every tensor lives."""

    @property
    def kernels(self) -> Mapping[str, KernelCode]:
        """Source and launch facts of every kernel."""

    @property
    def binaries(self) -> Mapping[str, bytes]:
        """What `NetworkBackend.link` made."""

    @property
    def values(self) -> Mapping[str, Array]:
        """The parameters."""

    @property
    def lent(self) -> Mapping[str, int]:
        """The addresses of parameters that are in the memory of the device already; who lends them keeps them."""

    def aligned_value(self, name: str) -> Array:
        """A parameter at an address that is a multiple of 64 bytes, read-only; all executors share it."""


class Executor(Protocol):
    """A network on a device.  Storages are numbers of the plan; only those outside the arena are named here."""

    def write(self, storage: int, array: Array) -> None:
        """Copy an array of the storage's shape and dtype into it."""

    def array(self, storage: int, shape: Sequence[int], dtype: str) -> Any:
        """The storage as an array object with `shape`, `dtype`, `numpy()`; it shows what later runs leave there."""

    def attach(self, storage: int, array: Any) -> None:
        """Use the memory of `array` from now on.  Raises GraphError when it is not on the device, or not aligned."""

    def point(self, storage: int, address: int) -> None:
        """Use the memory at an address from now on, as `attach` does; the caller vouches for its size and alignment,
        and keeps it."""

    def point_arena(self, address: int) -> None:
        """Use the memory at an address, `plan.arena_bytes` of it, for what steps share, as `point` does."""

    def run(self, stream: int | None = None) -> None:
        """Queue one run of all steps; later reads wait for its end.  A GPU queues it on the stream with that handle."""

    def synchronize(self) -> None:
        """Wait until all runs are done."""

    def seconds(self, number: int, first: int = 0, last: int | None = None) -> float:
        """The time of `number` runs of steps `first .. last - 1` in a row."""

    def flush(self, nbytes: int) -> None:
        """Overwrite `nbytes` bytes elsewhere, to empty caches."""


class NetworkBackend(Protocol):
    """What compiles and runs whole networks.

    A kernel is compiled alone (`code`, then `compile`), so that kernels can be compiled side by side, and kept in
    `store`; `link` then makes the files of the network; `open` gives an executor: memory for the storages of a plan,
    and running its steps.  Arrays are on devices called `device_type`; places in the arena are multiples of `alignment`
    bytes and are not used again for `slack` steps; files with a kernel's source end in `suffix`.
    """

    device_type: str
    alignment: int
    slack: int
    suffix: str

    def accept(self, func: LoweredFunc, target: str) -> None:
        """Raise the backend's error for a program that the target cannot run."""

    def store(self) -> KernelStore | None:
        """Where compiled kernels are kept; None when they are not.  Raises the backend's error."""

    def code(self, func: LoweredFunc, target: str) -> KernelCode:
        """Source text.  Raises the backend's error for a program that has none."""

    def recurrence(self, loop: Recurrence, target: str) -> KernelCode | None:
        """Source text of a kernel that runs a whole loop; None where its steps are better run one by one."""

    def asked(self, target: str) -> str | None:
        """The target with all that else a device would be asked for, as workers are told it that have none.

        None where machine code is not made of the source alone, so that workers cannot write that.
        """

    def compile(self, func: LoweredFunc | None, code: KernelCode, target: str) -> bytes:
        """Machine code of one kernel; threads may compile side by side.  Raises the backend's error.

        `func` may be None where `asked` gives a text.
        """

    def link(self, plan: ExecutionPlan, compiled: Mapping[str, bytes]) -> tuple[dict[str, str], dict[str, bytes]]:
        """`(more sources, binaries)` by file name, from the machine code of the kernels by name."""

    def machine(self, target: str) -> dict[str, Any]:
        """What the binaries were made for, as JSON."""

    def check_machine(self, facts: Mapping[str, Any], index: int) -> None:
        """Raises GraphError when device `index` cannot run binaries made for `facts`."""

    def open(self, network: CompiledNetwork, index: int) -> Executor:
        """The network on device `index`, parameters in place."""
